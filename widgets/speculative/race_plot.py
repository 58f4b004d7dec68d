"""Plain decoding beside speculative: time that has passed when a token stands. Both are measured, and summed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from widgets.plot import Plot, add_hover, new_figure, paint, source
from widgets.speculative.state import SpeculativeState

PLAIN, SPECULATIVE = "--lab-series-1", "--lab-series-2"
"""The model alone has the colour of p, with the draft that of q, as in the bars and the rounds."""
_NOTHING: dict[str, list[float]] = {"x": [], "y": []}


@dataclass(frozen=True)
class Race:
    """Tokens after the first and the milliseconds when they stand, from the sums of what was measured.

    Attributes:
        at: (tokens, ms with the draft, ms plain) at the last end of a round up to which both ran; None if none.
    """

    plain: tuple[list[int], list[float]]
    speculative: tuple[list[int], list[float]]
    at: tuple[int, float, float] | None

    @property
    def speed(self) -> float | None:
        """Plain time over the time with the draft, for the same tokens."""
        return self.at[2] / self.at[1] if self.at and self.at[1] > 0 else None


def race_of(state: SpeculativeState, upto: int) -> Race:
    """The rounds up to `upto` (draft, verify and judge) and all plain steps after the first token."""
    rounds = state.rounds[: upto + 1]
    tokens = list(accumulate((r.emitted for r in rounds), initial=0))
    ms = list(accumulate((r.draft_ms + r.verify_ms + r.judge_ms for r in rounds), initial=0.0))
    steps = list(accumulate((t.ms for t in state.plain if t.index > 0), initial=0.0))
    both = [(n, m, steps[n]) for n, m in zip(tokens, ms, strict=True) if 0 < n < len(steps)]
    return Race((list(range(len(steps))), steps), (tokens, ms), both[-1] if both else None)


class RacePlot(Plot):
    """Two climbing lines over the new tokens; the lower one is the faster."""

    def __init__(self) -> None:
        fig = new_figure(x_label="new tokens after the first", y_label="ms since the first token", height=220)
        plain, spec, now = source("plain", "x", "y"), source("speculative", "x", "y"), source("now", "x", "y")
        upper = fig.line("x", "y", source=plain, line_width=2)
        paint(upper.glyph, line_color=PLAIN)
        lower = fig.line("x", "y", source=spec, line_width=2)
        paint(lower.glyph, line_color=SPECULATIVE)
        dots = fig.scatter("x", "y", source=spec, size=4)
        paint(dots.glyph, fill_color=SPECULATIVE, line_color=SPECULATIVE)
        ring = fig.scatter("x", "y", source=now, size=9, line_width=2.5)
        paint(ring.glyph, line_color="--lab-text", fill_color="--lab-surface")
        add_hover(fig, [upper, lower], [("new tokens", "@x"), ("ms", "@y{0}")])
        super().__init__(fig, "Time of plain and of speculative decoding")

    def show(self, race: Race, planned: int, at: int | None) -> None:
        """Draw both lines; `planned` tokens are on the axis at least, `at` is the round that is marked."""
        (plain_x, plain_y), (spec_x, spec_y) = race.plain, race.speculative
        longest = max(2, spec_x[-1], plain_x[-1], planned)
        here = slice(0, 0) if at is None else slice(at + 1, at + 2)
        self.update(
            {
                "plain": {"x": plain_x, "y": plain_y},
                "speculative": {"x": spec_x, "y": spec_y},
                "now": {"x": spec_x[here], "y": spec_y[here]} if len(spec_x) > 1 else _NOTHING,
            },
            {
                "x_range": {"start": 0, "end": longest * 1.02},
                "y_range": {"start": 0, "end": max(spec_y[-1], plain_y[-1], 1.0) * 1.06},
            },
            f"{spec_x[-1]} tokens in {spec_y[-1]:.0f} ms with the draft; {plain_x[-1]} in {plain_y[-1]:.0f} ms plain",
        )
