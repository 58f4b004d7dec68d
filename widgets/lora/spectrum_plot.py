"""Singular values of an update: those of every matrix, one of them with its points, and how many are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bokeh.models import AdaptiveTicker

from widgets.plot import Plot, add_point_hover, add_words, new_figure, paint, source

ONE, ALL = "--lab-series-2", "--lab-muted"
MOST_LINES = 240


class SpectrumPlot(Plot):
    """Thin grey lines for all matrices; the chosen one thick, kept values filled, cut ones hollow."""

    def __init__(self) -> None:
        fig = new_figure(x_label="singular value, largest first", y_label="σ of ΔW", height=250)
        fig.xaxis[0].ticker = AdaptiveTicker(min_interval=1, mantissas=[1, 2, 5])
        others = fig.multi_line("xs", "ys", source=source("all", "xs", "ys"), line_width=1, line_alpha=0.16)
        paint(others.glyph, line_color=ALL)
        one = fig.line("x", "y", source=source("line", "x", "y"), line_width=2)
        paint(one.glyph, line_color=ONE)
        kept = fig.scatter("x", "y", source=source("kept", "x", "y", "words"), size=9)
        paint(kept.glyph, fill_color=ONE, line_color=ONE)
        cut = fig.scatter("x", "y", source=source("cut", "x", "y", "words"), size=9, line_width=2)
        paint(cut.glyph, fill_color="--lab-surface", line_color=ONE)
        mark = fig.line("x", "y", source=source("mark", "x", "y"), line_width=1.5, line_dash=[4, 4])
        paint(mark.glyph, line_color="--lab-text")
        add_words(fig, source("names", "x", "y", "text"), text_baseline="top", x_offset=6, y_offset=4)
        add_point_hover(fig, [kept, cut], [("number", "@x"), ("σ", "@words")])
        super().__init__(fig, "Singular values of the update")

    def show(self, values: Sequence[Sequence[float]], chosen: int, keep: int, title: str) -> None:
        """Draw the values of all matrices.

        Args:
            chosen: which one has points.
            keep: how many of its values are kept.
        """
        rank = max((len(row) for row in values), default=1)
        top = max((row[0] for row in values if row), default=1.0) or 1.0
        mine = list(values[chosen]) if 0 <= chosen < len(values) else []
        numbers = list(range(1, len(mine) + 1))
        words = [f"{value:.3g}" for value in mine]
        lines: dict[str, list[Any]] = {
            "xs": [list(range(1, len(row) + 1)) for row in values[:MOST_LINES]],
            "ys": [list(row) for row in values[:MOST_LINES]],
        }
        self.update(
            {
                "all": lines,
                "line": {"x": numbers, "y": mine},
                "kept": {"x": numbers[:keep], "y": mine[:keep], "words": words[:keep]},
                "cut": {"x": numbers[keep:], "y": mine[keep:], "words": words[keep:]},
                "mark": {"x": [keep + 0.5] * 2, "y": [0, top * 1.06]},
                "names": {
                    "x": [keep + 0.5] if keep < rank else [],
                    "y": [top * 1.06] if keep < rank else [],
                    "text": ["cut from here on"] if keep < rank else [],
                },
            },
            {"x_range": {"start": 0.4, "end": rank + 0.9}, "y_range": {"start": -top * 0.03, "end": top * 1.08}},
            f"Singular values of {title}: {', '.join(words)}; {keep} kept" if mine else "No singular values yet",
        )
