"""How far each path lies behind the best running text: where greedy's falls out of the beams."""

from __future__ import annotations

from typing import Any

from bokeh.models import AdaptiveTicker

from widgets.beam_search.state import BeamState
from widgets.plot import Plot, add_hover, add_words, new_figure, paint, source

COLOURS = {"best": "--lab-series-1", "greedy": "--lab-series-2", "sampled": "--lab-series-4"}
Points = list[tuple[int, float]]


class ScorePlot(Plot):
    """The band of the kept texts, the best text's line in it, and the other paths, marked where they leave."""

    def __init__(self) -> None:
        fig = new_figure(x_label="new token", y_label="log-probability behind the best running text", height=230)
        fig.xaxis[0].ticker = AdaptiveTicker(min_interval=1, mantissas=[1, 2, 5])  # tokens are whole
        band = source("band", "x", "low", "high")
        paint(fig.varea("x", "low", "high", source=band, fill_alpha=0.16).glyph, fill_color=COLOURS["best"])
        lines = []
        for kind, dash in (("sampled", [2, 4]), ("greedy", [6, 4]), ("best", [])):
            data = source(kind, "x", "y", "sum")
            line = fig.line("x", "y", source=data, line_width=2.5, line_dash=dash)
            paint(line.glyph, line_color=COLOURS[kind])
            lines.append(line)
            dots = fig.scatter("x", "y", source=data, size=4)
            paint(dots.glyph, fill_color=COLOURS[kind], line_color=COLOURS[kind])
        for kind, marker in (("greedy", "diamond"), ("sampled", "circle")):
            marks = fig.scatter("x", "y", source=source(f"{kind}_left", "x", "y"), size=12, marker=marker)
            paint(marks.glyph, fill_color=COLOURS[kind], line_color="--lab-surface")
        paint(fig.line("x", "y", source=source("now", "x", "y"), line_width=1).glyph, line_color="--lab-muted")
        words = source("words", "x", "y", "text", "align", "offset")
        add_words(fig, words, over_lines=True, text_align="align", y_offset="offset")
        add_hover(fig, lines, [("new token", "@x"), ("behind", "@y{0.000}"), ("sum", "@sum{0.000}")])
        super().__init__(fig, "How far each path lies behind the best running text")

    def show(self, state: BeamState, upto: int, best: int, cursor: int | None = None) -> None:
        """Draw up to step `upto`; `best` is the node of the leading text, `cursor` a step that is pointed at."""
        lead = _leaders(state, upto)
        band = [(i, _worst(state, i) - s) for i, s in sorted(lead.items()) if state.steps[i].running]
        lines = {"best": _sums([n.log_prob for n in state.path(best)])}
        lines |= {kind: _sums(path.log_probs) for kind, path in state.paths.items()}
        behind = {
            kind: [(i, total - lead[i], total) for i, total in enumerate(sums) if i in lead]
            for kind, sums in lines.items()
        }
        low = min([y for _, y in band] + [0.0])
        floor = min([low * 1.3, *(max(y, low * 3 - 1) for _, y, _ in behind.get("greedy", ()))])
        floor = min(floor * 1.08, -0.5)
        data: dict[str, Any] = {
            "band": {"x": [i + 1 for i, _ in band], "low": [y for _, y in band], "high": [0.0] * len(band)},
            "now": {
                "x": [cursor + 1] * 2 if cursor is not None else [],
                "y": [floor, 0.0] if cursor is not None else [],
            },
        }
        for kind in COLOURS:
            points = behind.get(kind, [])
            data[kind] = {
                "x": [i + 1 for i, _, _ in points],
                "y": [y for _, y, _ in points],
                "sum": [total for _, _, total in points],
            }
        data |= _marks(state, behind, floor, max(upto + 1, 1))
        props = {
            "x_range": {"start": 0.8, "end": max(upto + 1, 2) + 0.2},
            "y_range": {"start": floor, "end": max([0.0, *(y for _, y, _ in behind.get("greedy", ()))]) - floor * 0.16},
        }
        self.update(data, props, _label(state))


def _marks(state: BeamState, behind: dict[str, Any], floor: float, last: int) -> dict[str, Any]:
    """A mark and words where each path leaves the beams; below the mark where another's words stand above it.

    One far below stands whole at the lower edge.
    """
    data: dict[str, Any] = {}
    words: dict[str, list[Any]] = {"x": [], "y": [], "text": [], "align": [], "offset": []}
    for kind in ("greedy", "sampled"):
        left = state.left_at(kind)
        at = [(i + 1, max(y, floor * 0.94)) for i, y, _ in behind.get(kind, ()) if i == left]
        data[f"{kind}_left"] = {"x": [x for x, _ in at], "y": [y for _, y in at]}
        for x, y in at:
            words["offset"].append(20 if x in words["x"] and y > floor * 0.8 else -9)
            words["x"].append(x)
            words["y"].append(y)
            words["text"].append(f"{kind} leaves the beams at token {x}")
            words["align"].append("left" if x < last / 2 else "right")
    return {**data, "words": words}


def _leaders(state: BeamState, upto: int) -> dict[int, float]:
    """The best sum among those that were kept, or finished where none was, by step."""
    out = {}
    for i, step in enumerate(state.steps[: upto + 1]):
        kept = [n.score for n in step.nodes if n.fate == "kept"] or [
            n.score for n in step.nodes if n.fate == "finished"
        ]
        if kept:
            out[i] = max(kept)
    return out


def _worst(state: BeamState, step: int) -> float:
    return min(state.nodes[n].score for n in state.steps[step].running)


def _sums(log_probs: Any) -> list[float]:
    total, out = 0.0, []
    for value in log_probs:
        total += value
        out.append(total)
    return out


def _label(state: BeamState) -> str:
    words = []
    for kind in state.paths:
        left = state.left_at(kind)
        words.append(
            f"the {kind} path never leaves" if left is None else f"the {kind} path leaves the beams at token {left + 1}"
        )
    return "Behind the best running text: " + (", ".join(words) or "no other path yet")
