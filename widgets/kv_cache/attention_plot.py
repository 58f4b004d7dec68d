"""Which cached positions the newest token reads, for one layer and head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from widgets.plot import Plot, add_hover, new_figure, paint, source


@dataclass(frozen=True)
class Reading:
    """Attention weights over positions: bar i covers positions starts[i] .. starts[i]+size-1."""

    starts: tuple[int, ...]
    size: int
    weights: tuple[float, ...]


class AttentionPlot(Plot):
    """Bars over positions; the prompt's and the new tokens' differ in shade."""

    def __init__(self) -> None:
        fig = new_figure(x_label="position in the cache", y_label="attention weight", height=190)
        bars = source("bars", "left", "right", "top", "alpha")
        quads = fig.quad("left", "right", "top", 0, source=bars, fill_alpha="alpha", line_color=None)
        paint(quads.glyph, fill_color="--lab-series-1")
        add_hover(fig, [quads], [("position", "@left{0}"), ("weight", "@top{0.0000}")])
        super().__init__(fig, "Attention weights of one head over the cached positions")

    def show(self, reading: Reading | None, prompt_length: int, what: str) -> None:
        """Draw one reading; `what` says whose it is (token, layer, head)."""
        if reading is None:
            self.update({"bars": {"left": [], "right": [], "top": [], "alpha": []}}, None, what)
            return
        gap = 0.12 * reading.size
        end = reading.starts[-1] + reading.size
        self.update(
            {
                "bars": {
                    "left": list(reading.starts),
                    "right": [s + reading.size - gap for s in reading.starts],
                    "top": list(reading.weights),
                    "alpha": [0.45 if s < prompt_length else 0.95 for s in reading.starts],
                }
            },
            {
                "x_range": {"start": reading.starts[0] - gap, "end": end + gap},
                "y_range": {"start": 0, "end": max(0.02, max(reading.weights) * 1.12)},
            },
            f"{what}: {_strongest(reading)}",
        )


def _strongest(reading: Reading) -> str:
    best: Sequence[int] = sorted(range(len(reading.weights)), key=lambda i: -reading.weights[i])[:3]
    return "strongest at positions " + ", ".join(f"{reading.starts[i]} ({reading.weights[i]:.2f})" for i in best)
