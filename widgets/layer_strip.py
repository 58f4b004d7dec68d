"""One bar a layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from widgets.format import format_bytes
from widgets.view import Message, View, integer

_KINDS = {"full": "full attention", "sliding": "sliding window", "other": "another kind"}


class LayerStrip(View):
    """A thin row of bars: how much each layer keeps, and of which kind it is."""

    module: ClassVar[str] = "layer_strip"
    defaults: ClassVar[Mapping[str, Any]] = {
        "layers": [],
        "selected": None,
        "max_bytes": 0,
        "caption": "",
        "title": "Bytes of each layer",
    }

    def __init__(self, *, title: str = "Bytes of each layer") -> None:
        super().__init__(title=title)

    def show(
        self,
        layers: Sequence[Mapping[str, Any]],
        selected: int | None = None,
        *,
        max_bytes: int = 0,
        caption: str = "",
    ) -> None:
        """Show layers in their order.

        Args:
            layers: `{"bytes", "kind"}` with kind "full", "sliding" or "other"; optionally `positions` and `title`.
            selected: index of the chosen layer.
            max_bytes: what a full bar means, if more than the largest layer holds.
        """
        bars = [
            {
                "index": index,
                "bytes": layer["bytes"],
                "kind": layer.get("kind", "full"),
                "title": layer.get("title") or _words(index, layer),
            }
            for index, layer in enumerate(layers)
        ]
        self._put(layers=bars, selected=selected, max_bytes=max_bytes, caption=caption)

    def on_select(self, callback: Callable[[int | None], None]) -> None:
        """Call `callback(index)` when a layer is chosen, None when the chosen one is clicked again."""

        def heard(message: Message) -> None:
            index = integer(message, "index")
            callback(index if index is not None and 0 <= index < len(self.state["layers"]) else None)

        self._listen("layer", heard)


def _words(index: int, layer: Mapping[str, Any]) -> str:
    kind = _KINDS.get(str(layer.get("kind", "full")), _KINDS["other"])
    positions = layer.get("positions")
    held = "" if positions is None else f", {positions:,} positions"
    return f"layer {index}: {format_bytes(layer['bytes'])}{held}, {kind}"
