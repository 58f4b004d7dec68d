"""Plain decoding beside speculative: time that has passed when a token stands. Both are measured."""

from __future__ import annotations

from itertools import accumulate

from bokeh.core.properties import field

from widgets.plot import Plot, add_hover, add_words, new_figure, paint, source
from widgets.speculative.state import SpeculativeState


class RacePlot(Plot):
    """Two climbing lines over the new tokens; the lower one is the faster."""

    def __init__(self) -> None:
        fig = new_figure(x_label="new tokens after the first", y_label="ms since the first token", height=220)
        plain, spec = source("plain", "x", "y"), source("speculative", "x", "y")
        names, now = source("names", "x", "y", "text", "align", "dx"), source("now", "x", "y")
        upper = fig.line("x", "y", source=plain, line_width=2)
        paint(upper.glyph, line_color="--lab-series-2")
        lower = fig.line("x", "y", source=spec, line_width=2)
        paint(lower.glyph, line_color="--lab-series-1")
        dots = fig.scatter("x", "y", source=spec, size=4)
        paint(dots.glyph, fill_color="--lab-series-1", line_color="--lab-series-1")
        ring = fig.scatter("x", "y", source=now, size=9, line_width=2.5)
        paint(ring.glyph, line_color="--lab-text", fill_color="--lab-surface")
        add_words(fig, names, text_align=field("align"), text_baseline="middle", x_offset=field("dx"))
        add_hover(fig, [upper, lower], [("new tokens", "@x"), ("ms", "@y{0}")])
        super().__init__(fig, "Time of plain and of speculative decoding")

    def show(self, state: SpeculativeState, upto: int, at: int | None) -> None:
        """Draw the rounds up to `upto` and all plain steps; `at` is the round pointed at, if another."""
        rounds = state.rounds[: upto + 1]
        spec_x = list(accumulate((r.emitted for r in rounds), initial=0))
        spec_y = list(accumulate((r.draft_ms + r.verify_ms + r.judge_ms for r in rounds), initial=0.0))
        steps = [t.ms for t in state.plain if t.index > 0]
        plain_x, plain_y = list(range(len(steps) + 1)), list(accumulate(steps, initial=0.0))
        lines = {"plain": (plain_x, plain_y), "with the draft": (spec_x, spec_y)}
        planned = int(state.param("max_new_tokens", 1)) - 1 if state.end is None else 1
        top = max([spec_y[-1], plain_y[-1], 1.0])
        longest = max(2, spec_x[-1], plain_x[-1], planned)
        ends = _names({t: line for t, line in lines.items() if len(line[0]) > 2}, longest, top)
        here = upto if at is None else min(at, upto)
        self.update(
            {
                "plain": {"x": plain_x, "y": plain_y},
                "speculative": {"x": spec_x, "y": spec_y},
                "names": {k: [e[i] for e in ends] for i, k in enumerate(("x", "y", "text", "align", "dx"))},
                "now": {"x": spec_x[here + 1 : here + 2], "y": spec_y[here + 1 : here + 2]} if rounds else _NOTHING,
            },
            {
                "x_range": {"start": 0, "end": longest * 1.02},
                "y_range": {"start": 0, "end": top * 1.16},
            },
            f"{spec_x[-1]} tokens in {spec_y[-1]:.0f} ms with the draft; {plain_x[-1]} in {plain_y[-1]:.0f} ms plain",
        )


Line = tuple[list[int], list[float]]
Name = tuple[float, float, str, str, int]
"""x, y, text, alignment, and pixels to move it."""
_NOTHING: dict[str, list[float]] = {"x": [], "y": []}


def _names(lines: dict[str, Line], longest: int, top: float) -> list[Name]:
    """Where the names stand: right of the lines' ends while there is room, else over the upper, under the lower."""
    upper = max(lines, key=lambda t: lines[t][1][-1] / max(lines[t][0][-1], 1), default="")
    names: list[Name] = []
    for text, (xs, ys) in lines.items():
        room = xs[-1] < 0.75 * longest
        shift = (0.05 if text == upper else -0.05) * top
        if room:
            names.append((xs[-1], ys[-1] + shift, text, "left", 9))
        elif text == upper:
            names.append((xs[-1], ys[-1] + 0.06 * top, text, "right", -9))
        else:  # where its name begins, the line is lower than at its end
            begin = next(y for x, y in zip(xs, ys, strict=True) if x >= 0.72 * xs[-1])
            names.append((xs[-1], begin - 0.07 * top, text, "right", -9))
    return names
