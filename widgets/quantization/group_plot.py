"""One group of weights on its levels: what each was, and what it became."""

from __future__ import annotations

from collections.abc import Sequence

from widgets.plot import Plot, add_hover, new_figure, paint, source

MOST_LEVELS = 40
"""With more than this no lines are drawn for levels: they would be a grey ground."""
LEGEND = (
    ("what it was (ring)", "--lab-text", False),
    ("what it became (dot)", "--lab-series-1", False),
    ("error", "--lab-rejected-edge", False),
    ("level", "--lab-line", False),
)
"""What the colours and signs stand for."""


class GroupPlot(Plot):
    """Columns across, values up: a ring for the weight, a dot for what it became, a line for its error."""

    def __init__(self, *, height: int = 230) -> None:
        fig = new_figure(x_label="column", y_label="weight", height=height)
        fig.ygrid.visible = False
        levels = source("levels", "y", "x0", "x1")
        errors = source("errors", "x", "before", "after")
        marked = source("marked", "x", "before", "after")
        points = source("points", "x", "before", "after", "error", "size")
        lines = fig.segment("x0", "y", "x1", "y", source=levels, line_width=1)
        paint(lines.glyph, line_color="--lab-line")
        drawn = fig.segment("x", "before", "x", "after", source=errors, line_width=1.5)
        paint(drawn.glyph, line_color="--lab-rejected-edge")
        after = fig.scatter("x", "after", source=points, size="size", line_color=None)
        paint(after.glyph, fill_color="--lab-series-1")
        before = fig.scatter("x", "before", source=points, size="size", fill_alpha=0, line_width=1.25)
        paint(before.glyph, line_color="--lab-text")
        ring = fig.scatter("x", "before", source=marked, size=15, fill_alpha=0, line_width=2)
        paint(ring.glyph, line_color="--lab-accent")
        add_hover(
            fig,
            [after],
            [("column", "@x"), ("was", "@before{0.0000}"), ("became", "@after{0.0000}"), ("error", "@error{0.0000}")],
        )
        super().__init__(fig, "A group of weights before and after")

    def show(
        self,
        columns: Sequence[int],
        before: Sequence[float],
        after: Sequence[float],
        levels: Sequence[float],
        marked: int | None,
        what: str,
    ) -> None:
        """Draw a group.

        Args:
            marked: the column of a weight to put a ring around.
        """
        errors = [b - a for a, b in zip(before, after, strict=True)]
        size = 7 if len(columns) <= 80 else 4 if len(columns) <= 300 else 3
        values = [*before, *after] or [0.0, 1.0]
        low, high = min(values), max(values)
        room = 0.08 * (high - low) or abs(high) * 0.1 or 1.0
        start, end = (columns[0] - 0.8, columns[-1] + 0.8) if columns else (0.0, 1.0)
        lines = [v for v in levels if low - room <= v <= high + room] if len(levels) <= MOST_LEVELS else []
        at = [i for i, column in enumerate(columns) if column == marked]
        self.update(
            {
                "levels": {"y": lines, "x0": [start] * len(lines), "x1": [end] * len(lines)},
                "errors": {"x": list(columns), "before": list(before), "after": list(after)},
                "points": {
                    "x": list(columns),
                    "before": list(before),
                    "after": list(after),
                    "error": errors,
                    "size": [size] * len(columns),
                },
                "marked": {
                    "x": [columns[i] for i in at],
                    "before": [before[i] for i in at],
                    "after": [after[i] for i in at],
                },
            },
            {"x_range": {"start": start, "end": end}, "y_range": {"start": low - room, "end": high + room}},
            what,
        )
