"""Round by round: what was proposed, what it took, what the caches kept."""

from __future__ import annotations

from statistics import median
from typing import Any

from lab.events.speculative import SpeculativeRound
from widgets.data_table import DataTable
from widgets.experiment import Desk
from widgets.format import format_ms
from widgets.round_rows import RoundRows
from widgets.section import heading, section
from widgets.speculative import sentences
from widgets.speculative.state import SpeculativeState, Spot
from widgets.speculative.tables import round_table
from widgets.speculative.trace_section import TraceSection
from widgets.text import Words
from widgets.token_text import visible


class RoundsSection:
    """Rows of rounds and their table; what is pointed at is shared with the strip."""

    def __init__(self, desk: Desk, trace: TraceSection) -> None:
        self._desk = desk
        self._rows = RoundRows(empty="No round yet.")
        self._rows.on_hover(lambda spot: trace.point(Spot(*spot) if spot else None))
        self._rows.on_lock(lambda spot: trace.hold(Spot(*spot) if spot else None))
        self._rows.on_fold(lambda _expanded: desk.touch())
        self._table = DataTable(summary="All rounds")
        self._caption = Words(css_class="lab-caption")
        self.widget = section(
            heading(
                "Round by round",
                "Each row is one pass of the model: what the draft proposed, then the model's own token.",
            ),
            self._rows,
            self._caption,
            self._table,
        )

    def render(self, state: SpeculativeState, upto: int, spot: Spot | None, locked: Spot | None, *, live: bool) -> None:
        """Draw the rounds up to `upto`, the newest on top."""
        total = min(upto + 1, len(state.rounds))
        plain = state.plain_ms()
        shown = [state.rounds[i] for i in self._rows.window(total, spot.round if spot else None)]
        self._rows.show(
            [_row(state, r, plain) for r in shown],
            total=total,
            most_ms=_most(shown, plain),
            selected=(spot.round, spot.row) if spot and spot.round >= 0 else None,
            locked=(locked.round, locked.row) if locked and locked.round >= 0 else None,
        )
        self._caption.say(*(("p", text) for text in [_caption(state, plain)] if text))
        if not live:
            self._table.show(round_table(state, upto))


def _most(rounds: list[SpeculativeRound], plain: float | None) -> float:
    """The length of a full bar, ms: one slow round does not squeeze the others."""
    sums = [r.draft_ms + r.verify_ms + r.judge_ms for r in rounds]
    if not sums:
        return 0.0
    ticks = [plain * r.emitted for r in rounds] if plain else []
    return min(max([*sums, *ticks]), 3 * max(median(sums), median(ticks or [0.0])))


def _row(state: SpeculativeState, round_: SpeculativeRound, plain: float | None) -> dict[str, Any]:
    ms = [round_.draft_ms, round_.verify_ms, round_.judge_ms]
    parts = ", ".join(f"{n} {format_ms(m)}" for n, m in zip(("draft", "verify", "judge"), ms, strict=True))
    beside = f"; plain decoding takes {format_ms(plain * round_.emitted)} for as many tokens" if plain else ""
    caches = [["model", *round_.target_positions]]
    if any(round_.draft_positions):
        caches.append(["draft", *round_.draft_positions])
    return {
        "index": round_.index,
        "tokens": [
            {"row": i, "text": visible(t.text), "kind": t.kind, "title": sentences.short(state, Spot(round_.index, i))}
            for i, t in enumerate(round_.tokens)
        ],
        "source": round_.source or ("" if len(round_.tokens) > 1 else "nothing proposed"),
        "ms": ms,
        "ms_title": f"{parts}{beside}",
        "plain_ms": plain * round_.emitted if plain and round_.emitted else None,
        "caches": caches,
    }


def _caption(state: SpeculativeState, plain: float | None) -> str:
    if not state.rounds:
        return ""
    own = "" if any(any(r.draft_positions) for r in state.rounds) else " The draft keeps no cache of its own."
    tick = (
        " A round whose bar ends before the tick paid. Clocks jitter by some per cent, and a round without an "
        "accepted token cannot pay."
        if plain
        else ""
    )
    return f"MEASURED.{tick} Cached positions of tokens that do not stand are cropped after the round.{own}"
