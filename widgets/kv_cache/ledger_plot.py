"""The ledger: bytes in the cache against its length, counted and by formula."""

from __future__ import annotations

from typing import Any

from widgets.kv_cache.state import KVCacheState
from widgets.plot import Plot, add_hover, add_words, new_figure, paint, source

MIB = 1024 * 1024


class LedgerPlot(Plot):
    """Area of counted bytes (prefill lighter), formula as points on it, and the line of unshared heads."""

    def __init__(self) -> None:
        fig = new_figure(x_label="cache length, tokens", y_label="MiB in the cache", height=270)
        prefill = source("prefill", "x", "y")
        decode = source("decode", "x", "y")
        whole = source("counted", "x", "y", "formula", "difference", "phase")
        unshared = source("unshared", "x", "y")
        now = source("now", "x", "y")
        marks = source("marks", "x", "y", "text")
        paint(fig.varea("x", 0, "y", source=prefill, fill_alpha=0.16).glyph, fill_color="--lab-series-1")
        paint(fig.varea("x", 0, "y", source=decode, fill_alpha=0.32).glyph, fill_color="--lab-series-1")
        line = fig.line("x", "y", source=whole, line_width=2)
        paint(line.glyph, line_color="--lab-series-1")
        ticks = fig.scatter("x", "formula", source=whole, size=4, marker="dash", line_width=1.5)
        paint(ticks.glyph, line_color="--lab-text")
        dashed = fig.line("x", "y", source=unshared, line_width=1.5, line_dash=[5, 4])
        paint(dashed.glyph, line_color="--lab-series-4")
        dot = fig.scatter("x", "y", source=now, size=9, line_width=2.5)
        paint(dot.glyph, line_color="--lab-series-1", fill_color="--lab-surface")
        add_words(fig, marks, x_offset=6, y_offset=-4)
        add_hover(
            fig,
            [line],
            [
                ("cache length", "@x"),
                ("counted", "@y{0.000} MiB"),
                ("formula", "@formula{0.000} MiB"),
                ("difference", "@difference{0} bytes"),
            ],
        )
        super().__init__(fig, "Cache size against its length")

    def show(self, state: KVCacheState, upto: int, cursor: int | None = None) -> None:
        """Draw the run up to new token `upto`; `cursor` is the token pointed at, if another."""
        points = [*state.prefill_ledgers, *(state.ledgers[i] for i in sorted(state.ledgers) if i <= upto)]
        by_length = {p.cache_length: p for p in points}
        lengths = sorted(by_length)
        counted = [sum(by_length[n].layer_bytes) for n in lengths]
        formula = [sum(by_length[n].formula_bytes) for n in lengths]
        prompt = state.prompt_length
        pre = [(n, b / MIB) for n, b in zip(lengths, counted, strict=True) if n <= prompt]
        dec = [(n, b / MIB) for n, b in zip(lengths, counted, strict=True) if n >= prompt]
        limit = _planned_length(state)
        top = max([b / MIB for b in counted], default=0.0)
        top = max(top * (limit / lengths[-1]) if lengths else 0.0, 0.01)
        at = state.ledger_at(upto if cursor is None else cursor)
        data: dict[str, Any] = {
            "prefill": _xy([(0, 0.0), *pre]),
            "decode": _xy(dec),
            "counted": {
                "x": [0, *lengths],
                "y": [0.0, *(b / MIB for b in counted)],
                "formula": [0.0, *(b / MIB for b in formula)],
                "difference": [0, *(c - f for c, f in zip(counted, formula, strict=True))],
                "phase": ["", *(by_length[n].phase for n in lengths)],
            },
            "unshared": _unshared(state, limit, top),
            "now": _xy([(at.cache_length, sum(at.layer_bytes) / MIB)] if at else []),
            "marks": _marks(state, pre, dec, limit, top),
        }
        label = "No run yet"
        if lengths:
            label = f"Cache size grows to {counted[-1] / MIB:.2f} MiB at {lengths[-1]} tokens"
        props = {"x_range": {"start": 0, "end": limit * 1.02}, "y_range": {"start": 0, "end": top * 1.12}}
        self.update(data, props, label)


def _xy(points: list[tuple[int, float]]) -> dict[str, Any]:
    return {"x": [p[0] for p in points], "y": [p[1] for p in points]}


def _planned_length(state: KVCacheState) -> int:
    if state.started is None:
        return 64
    if state.finished is not None:
        return max(2, state.prompt_length + state.steps)
    planned = state.started.card.params.get("max_new_tokens", 0)
    return max(2, state.prompt_length + int(planned))


def _per_token(state: KVCacheState) -> float:
    """Bytes one more position costs while nothing has left a window."""
    first = state.prefill_ledgers[0] if state.prefill_ledgers else None
    return sum(first.layer_bytes) / first.cache_length if first and first.cache_length else 0.0


def _unshared(state: KVCacheState, limit: int, top: float) -> dict[str, Any]:
    facts = state.started.facts if state.started else None
    if facts is None or facts.query_heads == facts.kv_heads or not state.prefill_ledgers:
        return {"x": [], "y": []}
    slope = _per_token(state) * facts.query_heads / facts.kv_heads / MIB
    end = min(limit, top * 1.08 / slope) if slope else 0
    return {"x": [0, end], "y": [0.0, end * slope]}


def _marks(
    state: KVCacheState, pre: list[tuple[int, float]], dec: list[tuple[int, float]], limit: int, top: float
) -> dict[str, Any]:
    marks: list[tuple[float, float, str]] = []
    if pre and pre[-1][0] > limit * 0.12:
        marks.append((pre[-1][0] * 0.45, top * 0.02, "prefill"))
    if len(dec) > 1 and dec[-1][0] - dec[0][0] > limit * 0.2:
        marks.append(((dec[0][0] + dec[-1][0]) / 2, top * 0.02, "decode"))
    line = _unshared(state, limit, top)
    if line["x"]:
        heads = state.started.facts.query_heads if state.started else 0
        marks.append((line["x"][1], line["y"][1] * 0.94, f"if all {heads} query heads kept their own"))
    return {"x": [m[0] for m in marks], "y": [m[1] for m in marks], "text": [m[2] for m in marks]}
