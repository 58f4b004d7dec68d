"""The heart of the page: errors of one matrix at every group size, live as the sliders move."""

from __future__ import annotations

import json
from typing import Any

from lab.events.quantization import WorstWeight
from lab.experiments.quantization.choices import GRIDDED
from widgets.action_row import ActionRow
from widgets.asked import Asked
from widgets.controls import Controls
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.histogram_rows import HistogramRows
from widgets.quantization.counted import HEADS, Shown, from_answer, on_one_axis, own_of, rows_of
from widgets.quantization.group_sizes import compared
from widgets.quantization.histogram_fields import (
    PRESETS,
    QUICK,
    Values,
    from_link,
    presets_of,
    run_button,
    schema_of,
    to_run,
    values_of,
)
from widgets.quantization.histogram_words import notes_of, source_words
from widgets.quantization.state import Matrix, QuantizationState
from widgets.quantization.tables import histogram_table
from widgets.section import Section, heading, section
from widgets.text import Words

ASKED = ("layer", "projection", "method", "bits", "kind")


class HistogramSection(Section[QuantizationState]):
    """Sliders, histograms, and what they say.

    Attributes:
        own: the values a visitor chose; None follows the run.
        picked: the weight that a click holds, see `GroupSection`; None shows the worst.
        log: whether heights are logarithms. Part of the link, as `own` is.
    """

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.own: Values | None = None
        self.picked: WorstWeight | None = None
        self.log = False
        self.columns: dict[str, int] = {}
        self._run: Values = {}
        self._card: Values | None = None
        self._shown: list[Shown] = []
        self._asked = Asked(desk, "histogram", self._read)
        self._keep = False
        self._controls = Controls()
        self._controls.add_class("lab-inline")
        self._controls.on_values(self._chosen)
        self._controls.on_preset(self._preset)
        self._source = Words(css_class="lab-caption")
        self._run_it = ActionRow(label="Run the method on screen")
        self._run_it.on_action(self._start)
        self._compares = False
        self._rows = HistogramRows(
            label="Errors at each group size",
            axis="error of a weight, W′ − W",
            first="group size",
            picture="histograms",
        )
        self._rows.on_row(self._choose_row)
        self._rows.on_dot(self._choose_dot)
        self._legend = Words(css_class="lab-caption")
        self._table = DataTable(summary="Table of the histograms")
        self.widget = section(
            heading(
                "What does a smaller group buy?",
                "One histogram of all errors for each group size, on one axis. Fewer weights with a scale in common: "
                "a finer scale, and more scales to keep.",
            ),
            self._controls,
            self._source,
            self._run_it,
            self._rows,
            self._legend,
            self._table,
        )

    # What is on screen

    @property
    def values(self) -> Values:
        """What is looked at: the visitor's choice, else the run's own."""
        return {**self._run, **(self.own or {})}

    @property
    def quick(self) -> bool:
        """Whether the method on screen answers without a run."""
        return self.values.get("method") in QUICK

    def question(self, values: Values) -> Values:
        """What is asked of the backend for these values."""
        method = values["method"] if values["method"] in QUICK else "nearest"
        columns = self.columns.get(values["projection"])
        sizes = compared(columns, values["group_size"]) if columns and method in GRIDDED else []
        return {
            "layer": values["layer"],
            "projection": values["projection"],
            "method": method,
            "bits": values["bits"],
            "kind": values["kind"],
            "scale_format": values["scale_format"],
            "group_sizes": sizes,
        }

    def chosen_row(self) -> str:
        """The row of the group size on screen; of the method, where it has no group size."""
        values = self.values
        labels = [h.setting for h, _ in self._shown]
        live = [s for s in labels if s.method == "nearest"] if self._compares else []
        same = live or [s for s in labels if s.method == values.get("method") or values.get("method") not in QUICK]
        at = next((s for s in same if s.share == values.get("group_size")), same[0] if same else None)
        return at.label if at else labels[-1].label if labels else ""

    def worst(self) -> tuple[WorstWeight, ...]:
        """The weights with the largest errors in the row on screen."""
        row = self.chosen_row()
        return next((worst for h, worst in self._shown if h.setting.label == row), ())

    # What a visitor does

    def _change(self, changes: Values) -> None:
        with self._desk.lock:
            if "log" in changes:
                self.log = changes.pop("log") == "log"
            if changes:
                self.own = {**(self.own or {}), **changes}
                self.picked = None
        self._desk.touch()

    def _chosen(self, values: Values) -> None:
        self._change(dict(values))

    def _preset(self, index: int) -> None:
        with self._desk.lock:
            wanted = dict(PRESETS[index - 1][1]) if index else None
            here = {k: v for k, v in (self.own or {}).items() if k in ("layer", "projection")}
            self.own = None if wanted is None else {**here, **wanted}
            self._keep = False  # what a link set is gone
            self.picked = None
        self._desk.touch()

    def _choose_row(self, label: str) -> None:
        setting = next((h.setting for h, _ in self._shown if h.setting.label == label), None)
        if setting is not None and setting.share:
            self._change({"group_size": setting.share})

    def _choose_dot(self, label: str, index: int) -> None:
        with self._desk.lock:
            found = next(((h, worst) for h, worst in self._shown if h.setting.label == label), None)
            marked = [w for w in found[1] if w.after != w.before] if found else []
            if found is not None and index < len(marked):
                share = found[0].setting.share
                if share and share != self.values.get("group_size"):
                    self.own = {**(self.own or {}), "group_size": share}
                self.picked = None if self.picked == marked[index] else marked[index]
        self._desk.touch()

    # Events in, picture out

    def reset(self) -> None:
        """Another run: what its model answered may differ."""
        self._asked.clear()
        self.columns.clear()
        self.picked = None
        self._shown = []

    def settle(self, state: QuantizationState) -> None:
        """Ask for the run's own values, so that all rows have their worst weights in the recording."""
        if state.task == "layer" and state.histograms:
            self._learn(state)
            if self.quick and self.as_asked(state):
                self._asked.ask(self.question(self.values))

    def _learn(self, state: QuantizationState) -> None:
        """The run's own values, and how long rows are."""
        if state.started is None and self._run:
            return
        self._run = values_of(state)
        card = dict(state.started.card.params) if state.started else None
        if card is not None and card != self._card:
            # Another question, be it only a clip or a mistake: the visitor's own values were about the last one.
            if self._card is not None:
                self.own = self.own if self._keep else None
                self._keep = False
            self._card = card
        for histogram in state.histograms:
            self.columns[histogram.projection] = histogram.columns

    def as_asked(self, state: QuantizationState) -> bool:
        """Whether the run did what the question does: nothing clipped, nothing broken."""
        return bool(state.param("clip", "none") == "none" and state.param("break_run", "nothing") == "nothing")

    def _of_run(self, state: QuantizationState) -> bool:
        """Whether the values on screen are among those of the run."""
        values, layers = self.values, state.param("layers", (0,))
        sizes = {self._run["group_size"], *(h.setting.share for h in state.histograms)}
        if any(values[name] != self._run[name] for name in ASKED[1:]) or values["layer"] not in layers:
            return False
        return bool(values["method"] not in GRIDDED or values["group_size"] in sizes)

    def _find(self, state: QuantizationState, upto: int) -> tuple[list[Shown], bool]:
        """What is to be drawn, and whether it is what was asked for."""
        values = self.values
        question = self.question(values)
        if self._of_run(state):
            matrix = Matrix(values["layer"], values["projection"])
            told = state.worst.get(matrix)
            asked = self._asked.known(question) if self.as_asked(state) else None
            answered = {h.setting.label: worst for h, worst in asked or ()}
            shown: list[Shown] = []
            for histogram in state.histograms_of(matrix, upto):
                own = told.weights if told and told.setting == histogram.setting else ()
                shown.append((histogram, own or answered.get(histogram.setting.label, ())))
            return shown, True
        asked = self._asked.ask(question)
        if asked is None:
            return self._shown, False
        here = Matrix(values["layer"], values["projection"])
        kept = [] if self.quick else own_of(state, here, values["method"], upto)
        return on_one_axis([*kept, *asked]), True

    def _start(self, _action: str) -> None:
        with self._desk.lock:
            start, params = self._desk.start, to_run(self.values, self._card or {})
        if start is not None:
            start(params, "")

    def _read(self, answer: Values) -> list[Shown]:
        found = from_answer(answer)
        for histogram, _ in found:
            self.columns[histogram.projection] = histogram.columns
        return found

    def render(self, state: QuantizationState, upto: int, *, live: bool) -> None:
        """Draw the histograms of the values on screen; while an answer is on its way, the last ones stay."""
        self._learn(state)
        values = self.values
        self._shown, there = self._find(state, upto)
        of_run = self._of_run(state)
        why = "" if of_run else self._asked.why_not(self.question(values))
        self._compares = not of_run and not self.quick
        facts = state.started.facts if state.started else None
        self._controls.update(
            schema=schema_of(facts, values, self.columns.get(values["projection"])),
            values={**values, "log": "log" if self.log else "linear"},
            presets=presets_of(self._run),
        )
        offered = self._compares and self._desk.start is not None and self._card is not None and not live
        self._run_it.show([run_button(values, self._run)] if offered else [])
        rows, reach = rows_of(self._shown, named=self._compares)
        locked = None
        if self.picked is not None:
            marked = [w for w in self.worst() if w.after != w.before]
            locked = (self.chosen_row(), marked.index(self.picked)) if self.picked in marked else None
        self._rows.show(
            rows,
            HEADS,
            low=-reach,
            high=reach,
            log=self.log,
            selected=self.chosen_row(),
            locked=locked,
            waiting=not there and not why,
            label=f"Errors at each group size, {Matrix(values['layer'], values['projection']).title}",
            empty=why or ("The first histogram is being made." if live or not there else "Nothing was measured."),
        )
        asked = self.question(values)["method"]
        own = next((h for h, _ in self._shown if h.chosen), None)
        said = source_words(values, asked, of_run=of_run, why=why, there=there, own=own)
        self._source.say(("p", said))
        self._legend.legend([("largest error", "--lab-rejected-edge", False), ("± s / 2", "--lab-text", True)])
        row = next((h for h, _ in self._shown if h.setting.label == self.chosen_row()), None)
        marked_here = any(w.after != w.before for w in self.worst())
        self._legend.say(*(("p", text) for text in notes_of(row, marked=marked_here)))
        if not live:
            self._table.show(histogram_table([h for h, _ in self._shown]))

    def tables(self, state: QuantizationState) -> list[Table]:
        """The histograms of the run."""
        return [histogram_table(state.histograms)]

    def link(self) -> dict[str, Any]:
        """The visitor's values as one text, and the scale of the heights."""
        own = {k: v for k, v in (self.own or {}).items() if v != self._run.get(k)}
        return {"look": json.dumps(own, sort_keys=True) if own else None, "heights": "log" if self.log else None}

    def restore(self, settings: dict[str, Any]) -> None:
        """Take values from a link where they could have been chosen here."""
        self.log = settings.get("heights") == "log"
        try:
            found = json.loads(str(settings.get("look", "")))
        except ValueError:
            return
        if isinstance(found, dict):
            good = from_link(found)
            self.own = good or None
            self._keep = bool(good)
