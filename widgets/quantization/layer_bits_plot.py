"""Bits of each layer: mixed precision at a glance."""

from __future__ import annotations

from collections.abc import Sequence

from bokeh.models import FixedTicker

from widgets.format import format_bytes
from widgets.plot import Plot, add_hover, new_figure, paint, source


class LayerBitsPlot(Plot):
    """One bar a layer; a dense layer has none."""

    def __init__(self) -> None:
        fig = new_figure(x_label="layer", y_label="bits of a code", height=130)
        fig.yaxis.ticker = FixedTicker(ticks=[0, 2, 4, 8, 16])
        bars = source("bars", "x", "top", "size")
        drawn = fig.vbar("x", 0.72, "top", 0, source=bars, line_color=None)
        paint(drawn.glyph, fill_color="--lab-series-1")
        add_hover(fig, [drawn], [("layer", "@x"), ("bits", "@top{0.0}"), ("takes", "@size")])
        super().__init__(fig, "Bits of each layer")

    def show(self, bits: Sequence[float], sizes: Sequence[int]) -> None:
        """Draw all layers; 0 bits: dense."""
        texts = [format_bytes(size) for size in sizes] + [""] * (len(bits) - len(sizes))
        self.update(
            {"bars": {"x": list(range(len(bits))), "top": list(bits), "size": texts[: len(bits)]}},
            {
                "x_range": {"start": -0.6, "end": max(len(bits), 1) - 0.4},
                "y_range": {"start": 0, "end": max([*bits, 4]) * 1.1},
            },
            "Bits of each layer: " + ", ".join(f"{b:g}" if b else "dense" for b in bits),
        )
