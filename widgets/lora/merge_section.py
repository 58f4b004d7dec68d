"""What does merging lose? The update in fp32, in bf16 and in codes, beside the same update unmerged."""

from __future__ import annotations

from collections.abc import Sequence

from widgets.bar_table import BarTable, Column, Line
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.figure import FigureRow
from widgets.lora.merge_words import (
    apart_rows,
    apart_words,
    base_lines,
    lost_rows,
    merge_figures,
    merge_table,
    merge_verdict,
    shape_rows,
    time_rows,
    time_words,
)
from widgets.lora.state import LoraState
from widgets.section import Section, heading, section, sections
from widgets.shown import show_if
from widgets.text import Words
from widgets.verdict import Verdict


class MergeSection(Section[LoraState]):
    """The verdict, figures, what is lost by kind of base, the way back, the time of a decode step."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._verdict = Verdict()
        self._figures = FigureRow()
        self._lost = BarTable(label="How much of the update is lost, by base", first="merged into", picture="lost")
        self._bases = Words(css_class="lab-caption")
        self._apart = BarTable(label="Merged beside unmerged, by base", first="merged into", picture="merged apart")
        self._apart_caption = Words(css_class="lab-caption")
        self._shapes = BarTable(label="Back again, and the form", first="merged into", picture="form")
        self._shape_caption = Words(css_class="lab-caption")
        self._times = BarTable(label="Time of a decode step", first="model", picture="decode steps")
        self._time_caption = Words(css_class="lab-caption")
        self._table = DataTable(summary="Table of all bases")
        self._notices = section(
            heading("What do the predictions notice?", "Merged beside unmerged, on the same base."),
            self._apart,
            self._apart_caption,
        )
        self._way_back = section(
            heading(
                "And back again?",
                "Unmerged from a backup the base is there bit for bit. Without one the update is subtracted, and "
                "rounded once more.",
            ),
            self._shapes,
            self._shape_caption,
        )
        self._race = section(
            heading("What does it cost per token?", "Base, adapter beside it, merged: a decode step each, in turn."),
            self._times,
            self._time_caption,
        )
        self.widget = sections(
            section(self._verdict, self._figures, self._lost, self._bases, self._table),
            self._notices,
            self._way_back,
            self._race,
        )

    def render(self, state: LoraState, upto: int, *, live: bool) -> None:
        found = state.merges[: upto + 1]
        self._verdict.show(*merge_verdict(state, found, live=live))
        self._figures.show(merge_figures(found))
        self._lost.show(
            lost_rows(found),
            (Column("lost"), Column("vanished")),
            most=max([1.2, *(f.lost for f in found if f.lost == f.lost and f.lost < 100)]),
            line=Line(1.0, "nothing merged"),
            empty="The merged models are being measured." if live else "Nothing was merged.",
        )
        self._bases.say(*(("p", line) for line in base_lines(found)))
        show_if(found, self._notices, self._way_back, self._race)
        self._apart.show(apart_rows(found), (Column("max |Δ logit|"), Column("KL, nats"), Column("flips")))
        self._apart_caption.say(("p", apart_words(found)))
        self._shapes.show(shape_rows(found), (Column("base restored"), Column("same form")))
        self._shape_caption.say(
            ("p", "MEASURED: bit for bit over all adapted matrices. Same form: the base's modules, shapes, dtypes.")
        )
        self._times.show(time_rows(found), (Column("ms a step"), Column("beside the base")), empty="Nothing was timed.")
        self._time_caption.say(("p", time_words(found)))
        if not live:
            self._table.show(merge_table(state))

    def tables(self, state: LoraState) -> Sequence[Table]:
        return (merge_table(state),)
