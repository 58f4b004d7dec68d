"""Packed kernels beside the dense model, token by token: the time that has passed when a token stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from bokeh.models import NumeralTickFormatter

from lab.events.quantization_words import PackedToken
from widgets.plot import Plot, add_hover, add_words, new_figure, paint, source

SERIES = ("--lab-series-1", "--lab-series-2", "--lab-series-3", "--lab-series-4", "--lab-series-5", "--lab-muted")
"""Colours of the variants in their order; dense comes first."""
_DASHES: tuple[list[int], ...] = ([], [8, 3], [2, 3], [8, 3, 2, 3], [5, 5], [1, 4])
_WITH_NAMES = 1.36
"""Width of the plot, 1 at the last token: "int4, dense head" has room behind it at 800 px."""


class PackedPlot(Plot):
    """A climbing line a variant, with its name at its end; the lowest is the fastest."""

    def __init__(self) -> None:
        fig = new_figure(x_label="new tokens after the first", y_label="ms since the first token", height=250)
        fig.yaxis[0].formatter = NumeralTickFormatter(format="0,0")
        lines = []
        for number, colour in enumerate(SERIES):
            data = source(f"row{number}", "x", "y", "step")
            line = fig.line("x", "y", source=data, line_width=2, line_dash=_DASHES[number])
            paint(line.glyph, line_color=colour)
            lines.append(line)
        names = source("names", "x", "y", "text", "dy")
        add_words(fig, names, text_align="left", text_baseline="middle", x_offset=5, y_offset="dy")
        add_hover(fig, lines[:1], [("new token", "@x"), ("dense", "@y{0} ms, this step @step{0.0} ms")])
        super().__init__(fig, "Time of packed and of dense decoding")

    def show(self, rows: Mapping[str, Sequence[PackedToken]], labels: Mapping[str, str], planned: int) -> None:
        """Draw the steps after the first token; `planned` tokens are on the axis at least."""
        shown = list(rows)[: len(SERIES)]
        data: dict[str, dict[str, list[float | str]]] = {}
        sums: dict[str, list[float]] = {}
        for number in range(len(SERIES)):
            steps = [t.ms for t in rows[shown[number]] if t.index > 0] if number < len(shown) else []
            climbed = list(accumulate(steps, initial=0.0)) if number < len(shown) else []
            data[f"row{number}"] = {
                "x": list(range(len(climbed))),
                "y": [round(v, 2) for v in climbed],
                "step": [0.0, *(round(v, 2) for v in steps)] if climbed else [],
            }
            if climbed:
                sums[shown[number]] = climbed
        longest = max([2, planned, *(len(s) - 1 for s in sums.values())])
        top = max([s[-1] for s in sums.values()], default=0.0) or 1.0
        ends = sorted((s[-1], name) for name, s in sums.items() if len(s) > 1)
        data["names"] = {
            "x": [len(sums[name]) - 1 for _, name in ends],
            "y": [y for y, _ in ends],
            "text": [line_name(name) for _, name in ends],
            "dy": [*_apart([y / top for y, _ in ends])],
        }
        self.update(
            data,
            {"x_range": {"start": 0, "end": longest * _WITH_NAMES}, "y_range": {"start": 0, "end": top * 1.08}},
            ", ".join(f"{labels.get(n, n)}: {len(sums[n]) - 1} tokens in {y:.0f} ms" for y, n in ends) or "Nothing yet",
        )


def line_name(variant: str) -> str:
    """A variant's name beside its line, as short as it tells the lines apart: "int4, dense head"."""
    name, _, rest = variant.partition("_")
    return f"{name}, {rest.replace('_', ' ')}" if rest else name


def _apart(heights: Sequence[float], pixels: float = 190.0, least: float = 13.0) -> list[float]:
    """Offsets, in pixels downwards, that keep names of lines (heights 0..1, ascending) from covering one another."""
    offsets: list[float] = []
    floor = -1e9
    for height in heights:
        at = max(height * pixels, floor + least)
        floor = at
        offsets.append(-(at - height * pixels))
    return offsets
