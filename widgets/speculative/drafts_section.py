"""Which draft? All of them on one set of prompts, ranked by what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from lab.events.speculative import DraftRanked
from widgets.bar_table import Bar, BarRow, BarTable, Column, Line
from widgets.data_table import DataTable
from widgets.format import NOTHING, format_bytes
from widgets.section import section
from widgets.speculative.figures import EVEN, ratio, tone, typeset
from widgets.speculative.sections import Q
from widgets.speculative.state import SpeculativeState
from widgets.speculative.tables import draft_table
from widgets.text import Words
from widgets.verdict import Verdict


class DraftsSection:
    """The verdict, ranked bars with the kinds of prompts as circles, and the table."""

    def __init__(self) -> None:
        self._verdict = Verdict()
        self._bars = BarTable(label="Speed-up of each draft", first="draft", picture="drafts")
        self._bars.add_class("lab-first-picture")  # there is no plot that the page could wait for
        self._caption = Words(css_class="lab-caption")
        self._table = DataTable(summary="Table with the kinds of prompts")
        self.widget = section(self._verdict, self._bars, self._caption, self._table)

    def render(self, state: SpeculativeState, upto: int, *, live: bool) -> None:
        """Draw the drafts that were ranked up to `upto`."""
        ranked = state.ranked(upto)
        best = next((d for d in ranked if d.figures and d.figures.measured is not None and not d.skipped), None)
        speed = best.figures.measured if best and best.figures else None
        done, planned = _prompts(ranked)
        partial = done < planned
        so_far = " so far" if live or partial else ""
        stopped = partial and state.end is not None
        how = f"{'Stopped after' if stopped else 'After'} {done} of {planned} prompts." if partial else ""
        if best is None or speed is None:
            text = "No draft measured yet." if live or not state.end else "No draft was measured."
        elif speed > 1 + EVEN:
            text = f"Fastest{so_far}: {best.title}, {speed:.2f} times plain decoding"
        else:
            text = f"No draft pays{so_far}: the best, {best.title}, reaches {speed:.2f} times plain decoding"
        mark = "pending" if live or best is None else "none" if partial else tone(speed)
        self._verdict.show(mark, text, how)
        self._bars.show(
            [_row(d) for d in ranked],
            (Column("× plain"), Column("accepted"), Column("memory")),
            line=Line(1.0, "plain decoding"),
            empty="" if state.end else "The first draft is being measured.",
        )
        kinds = sorted({k for d in ranked for k, s, _ in d.by_kind if s == s})
        circles = f" Circles: the kinds of prompts ({', '.join(kinds)}), one by one." if kinds else ""
        self._caption.say(("p", f"MEASURED: milliseconds a token, plain divided by speculative.{circles}"))
        if not live:
            self._table.show(draft_table(state), caption="Drafts, the fastest first")


def _prompts(ranked: Sequence[DraftRanked]) -> tuple[int, int]:
    """How many prompts every draft has been through, and of how many; (0, 0) where that is not told."""
    told = [d for d in ranked if not d.skipped and d.of_prompts]
    return min((d.prompts for d in told), default=0), max((d.of_prompts for d in told), default=0)


def _row(draft: DraftRanked) -> BarRow:
    figures = draft.figures
    speed = figures.measured if figures else None
    if draft.skipped or figures is None or speed is None:
        return BarRow(label=draft.title, note=f"skipped: {draft.skipped}" if draft.skipped else "no figure")
    return BarRow(
        label=draft.title,
        bars=[Bar(speed, Q)],
        dots=[(s, f"{kind}: {s:.2f} × plain, {ratio(a)} accepted") for kind, s, a in draft.by_kind if s == s],
        cells=[
            f"{speed:.2f}",
            ratio(figures.accept_judged),
            format_bytes(draft.bytes) if draft.bytes else NOTHING if draft.bytes < 0 else "none",
        ],
        title=f"{draft.prompts} of {draft.of_prompts} prompts. {typeset(figures.verdict)}"
        if draft.of_prompts
        else typeset(figures.verdict),
    )
