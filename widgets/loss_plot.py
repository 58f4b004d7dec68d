"""The loss of a training: of each batch, and on held-out text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from widgets.format import format_number
from widgets.plot import Plot, add_hover, add_point_hover, add_words, new_figure, paint, source

BATCH, HELDOUT = "--lab-series-1", "--lab-series-2"
LEGEND = [("a batch of training text", BATCH, False), ("held-out text", HELDOUT, True)]


class LossStep(Protocol):
    """One optimizer step as events tell it."""

    @property
    def step(self) -> int: ...

    @property
    def loss(self) -> float: ...

    @property
    def heldout_loss(self) -> float | None: ...


class LossPlot(Plot):
    """A thin line for batches, a thick one with squares for held-out text; the best held-out point in a ring.

    Args:
        label: what the picture shows, before there is anything.
    """

    def __init__(self, label: str) -> None:
        fig = new_figure(x_label="optimizer step", y_label="loss, nats a token", height=280)
        batch = fig.line("x", "y", source=source("batch", "x", "y", "words"), line_width=1.2)
        paint(batch.glyph, line_color=BATCH)
        held = source("heldout", "x", "y", "words")
        line = fig.line("x", "y", source=held, line_width=2.5, line_dash=[8, 3])
        dots = fig.scatter("x", "y", source=held, size=8, marker="square")
        paint(line.glyph, line_color=HELDOUT)
        paint(dots.glyph, fill_color=HELDOUT, line_color=HELDOUT)
        ring = fig.scatter("x", "y", source=source("best", "x", "y"), size=18, line_width=2.5, fill_alpha=0)
        paint(ring.glyph, line_color="--lab-text")
        add_words(fig, source("names", "x", "y", "text", "dy"), text_baseline="middle", x_offset=12, y_offset="dy")
        add_hover(fig, [batch], [("step", "@x"), ("batch", "@words nats")])
        add_point_hover(fig, [dots], [("step", "@x"), ("held-out", "@words nats")])
        super().__init__(fig, label)

    def show(self, steps: Sequence[LossStep], planned: int) -> None:
        """Draw the steps so far; `planned` of them are on the axis at least."""
        batch = [(s.step, s.loss) for s in steps if math.isfinite(s.loss)]
        held = [(s.step, s.heldout_loss) for s in steps if s.heldout_loss is not None and math.isfinite(s.heldout_loss)]
        best = min(held, key=lambda pair: pair[1], default=None)
        ys = [y for _, y in (*batch, *held)]
        low, high = (min(ys), max(ys)) if ys else (0.0, 1.0)
        room = max(high - low, 0.05) * 0.08
        longest = max([planned, 2, *(s.step for s in steps)])
        ends = sorted((part[-1][1], part[-1][0], name) for part, name in ((batch, "batch"), (held, "held-out")) if part)
        near = len(ends) == 2 and ends[1][0] - ends[0][0] < (high - low + 2 * room) * 0.07
        self.update(
            {
                "batch": _columns(batch),
                "heldout": _columns(held),
                "best": {"x": [best[0]] if best else [], "y": [best[1]] if best else []},
                "names": {
                    "x": [x for _, x, _ in ends],
                    "y": [y for y, _, _ in ends],
                    "text": [name for _, _, name in ends],
                    "dy": ([8, -8] if near else [0, 0])[: len(ends)],
                },
            },
            {
                "x_range": {"start": -longest * 0.015, "end": longest * 1.24},
                "y_range": {"start": low - room, "end": high + room},
            },
            f"Loss after {len(steps)} steps: batch {format_number(batch[-1][1] if batch else None)}, held-out "
            f"{format_number(held[-1][1] if held else None)}, least {format_number(best[1] if best else None)}",
        )


def _columns(pairs: Sequence[tuple[int, float]]) -> dict[str, list[float | str]]:
    return {"x": [x for x, _ in pairs], "y": [y for _, y in pairs], "words": [format_number(y) for _, y in pairs]}
