"""A probability as a bar from 0 to 1, and the draw that it was compared with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from widgets.view import View


class Gauge(View):
    """Accepted if the draw falls into the filled part."""

    module: ClassVar[str] = "gauge"
    defaults: ClassVar[Mapping[str, Any]] = {"accept": None, "u": None, "accept_text": "", "u_text": "", "label": ""}

    def __init__(self) -> None:
        super().__init__()

    def show(self, accept: float, u: float, accept_text: str, u_text: str) -> None:
        """Show the probability of acceptance and the uniform draw; texts as they are to be written."""
        outcome = "accepted" if u < accept else "rejected"
        label = f"Accepted with probability {accept_text}; the draw was {u_text}: {outcome}"
        self._put(accept=accept, u=u, accept_text=accept_text, u_text=u_text, label=label)

    def hide(self) -> None:
        """Nothing was drawn here."""
        self._put(**self.defaults)
