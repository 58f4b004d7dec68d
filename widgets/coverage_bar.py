"""All parameters of a model as one bar: what is quantized or pruned, and what stays dense."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from widgets.view import View


@dataclass(frozen=True)
class Part:
    """A part of the bar: its share of the whole, 0..1, whether it was changed, and what it is in words."""

    name: str
    share: float
    quantized: bool
    title: str


class CoverageBar(View):
    """Quantized parts are filled, dense ones hatched; a badge says whether memory is really saved.

    Args:
        word: what was done to the filled parts.
    """

    module: ClassVar[str] = "coverage_bar"
    defaults: ClassVar[Mapping[str, Any]] = {"parts": [], "truth": "simulated", "label": "", "word": "quantized"}

    def __init__(self, *, word: str = "quantized") -> None:
        super().__init__(word=word)

    def show(self, parts: Sequence[Part], truth: str) -> None:
        """Show the parts in their order.

        Args:
            truth: "simulated", "packed" or "dense, smaller".
        """
        share = sum(p.share for p in parts if p.quantized)
        self._put(
            parts=[[p.name, p.share, p.quantized, p.title] for p in parts],
            truth=truth,
            label=f"{share * 100:.3g} % of the parameters are {self.state['word']}, {truth}",
        )
