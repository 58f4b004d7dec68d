"""One group before and after: the one of the weight that was clicked, of the worst one, or any by its number."""

from __future__ import annotations

from typing import Any

from lab.events.quantization import WorstWeight
from lab.experiments.quantization.choices import GRIDDED
from widgets.asked import Answer, Asked
from widgets.controls import Controls
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.numbers import number, signed
from widgets.quantization.group_plot import LEGEND, GroupPlot
from widgets.quantization.histogram_section import HistogramSection
from widgets.quantization.sentences import method_words
from widgets.quantization.state import QuantizationState
from widgets.section import Section, heading, section
from widgets.shown import show_if
from widgets.text import Words

NEEDED = ("columns", "before", "after", "row", "group")
NO_GROUPS = "NF4's groups have no even levels; they are not drawn here. Number formats have no groups."


class GroupSection(Section[QuantizationState]):
    """Follows the histograms: their matrix, their setting, their clicked weight."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.histograms: HistogramSection | None = None
        self._at: tuple[int, int] | None = None
        self._followed: WorstWeight | None = None
        self._asked = Asked(desk, "group", _checked)
        self._controls = Controls(schema=_SCHEMA, values={"row": 0, "group": 0})
        self._controls.add_class("lab-inline")
        self._controls.on_values(self._chosen)
        self._words = Words(css_class="lab-answer")
        self._plot = GroupPlot()
        self._legend = Words(css_class="lab-caption")
        self._legend.legend(LEGEND)
        self._table = DataTable(summary="Table of the group")
        self.widget = section(
            heading(
                "One group, before and after",
                "All weights of a group share a scale, so the largest of them decides how far apart the levels are.",
            ),
            self._controls,
            self._words,
            self._plot,
            self._legend,
            self._table,
        )

    def follow(self, histograms: HistogramSection) -> None:
        """Show groups of what this section shows."""
        self.histograms = histograms

    def _chosen(self, values: dict[str, Any]) -> None:
        with self._desk.lock:
            row, group = self._place()
            self._at = (int(values.get("row", row)), int(values.get("group", group)))
        self._desk.touch()

    def _weight(self) -> WorstWeight | None:
        """The weight that is looked at: the clicked one, else the one with the largest error."""
        if self.histograms is None:
            return None
        worst = self.histograms.worst()
        return self.histograms.picked or (worst[0] if worst else None)

    def _place(self) -> tuple[int, int]:
        weight = self._weight()
        return self._at or (self._at_weight(weight) if weight else (0, 0))

    def _at_weight(self, weight: WorstWeight) -> tuple[int, int]:
        """Row and group of a weight as they are asked: neighbours share a scale, whatever order the run took."""
        share = str(self.histograms.values["group_size"]) if self.histograms else ""
        size = share.partition("+")[0]
        return weight.row, weight.column // int(size) if size.isdecimal() and int(size) else 0

    def reset(self) -> None:
        """Another run begins."""
        self._asked.clear()
        self._at = None

    def settle(self, state: QuantizationState) -> None:
        """Ask for the group of the worst weight, so that a recording has it."""
        if state.task == "layer" and self.histograms is not None and self._weight() is not None:
            self._asked.ask(self._question(self.histograms, *self._place()))

    def _question(self, histograms: HistogramSection, row: int, group: int) -> Answer:
        values = histograms.values
        asked = histograms.question(values)
        asked.pop("group_sizes")
        return {**asked, "group_size": values["group_size"], "row": row, "group": group}

    def render(self, state: QuantizationState, upto: int, *, live: bool) -> None:
        """Draw the group; while an answer is on its way, the last one stays."""
        del upto
        if self.histograms is None:
            return
        weight = self._weight()
        if weight != self._followed:
            self._followed, self._at = weight, None
        row, group = self._place()
        question = self._question(self.histograms, row, group)
        self._controls.set_values({"row": row, "group": group})
        if question["method"] not in GRIDDED:
            self._words.say(("p", NO_GROUPS))
            self._hide(True)
            return
        asked = bool(state.histograms or self.histograms.own)
        if asked:
            self._asked.ask(question)
        why, answer = self._asked.why_not(question), self._asked.last if asked or live else None
        if why or answer is None:
            waiting = "The group is being asked for." if asked else "No matrix measured yet." if live else ""
            self._words.say(("p", why or waiting or "Nothing was measured."))
            self._hide(True)
            return
        self._hide(False)
        here = weight is not None and self._at_weight(weight) == (answer["row"], answer["group"])
        marked = weight.column if weight and here else None
        what = f"{answer.get('matrix', '')}, row {answer['row']}, group {answer['group']}: before and after"
        columns, before, after = answer["columns"], answer["before"], answer["after"]
        self._plot.show(columns, before, after, answer.get("levels") or (), marked, what)
        said = group_words(answer, marked)
        said[0] = f"MEASURED. {said[0]}"
        if not self.histograms.as_asked(state):
            said.append("Here nothing is clipped or broken, unlike in the run.")
        if state.param("method", "") == "gptq" and state.param("act_order", 0) and not state.param("static_groups", 0):
            said.append("Neighbouring columns share a scale here; the run grouped them by activation order.")
        if not self.histograms.quick:
            said.append(f"Here by round to nearest: {method_words(self.histograms.values['method'])} takes a run.")
        self._words.say(*(("p", text) for text in said))
        if not live:
            self._table.show(group_table(answer))

    def _hide(self, off: bool) -> None:
        """Whether there is no group to draw."""
        show_if(not off, self._plot, self._legend, self._table)

    def tables(self, state: QuantizationState) -> list[Table]:
        """The group on screen."""
        del state
        return [group_table(self._asked.last)] if self._asked.last else []


def _checked(answer: Answer) -> Answer:
    """The answer, if a group can be drawn from it.

    Raises:
        KeyError, ValueError: it cannot.
    """
    columns, before, after = (answer[name] for name in NEEDED[:3])
    if not len(columns) == len(before) == len(after):
        raise ValueError("columns and weights do not go together")
    return {**answer, "row": answer["row"], "group": answer["group"]}


def group_words(answer: Answer, marked: int | None) -> list[str]:
    """What the group is and what became of the weight that is looked at.

    Args:
        marked: its column; None takes the one with the largest error.
    """
    columns, before, after = answer["columns"], answer["before"], answer["after"]
    if not columns:
        return ["The group is empty."]
    where = f"Row {answer['row']}, columns {columns[0]} to {columns[-1]}"
    said = f"{where}: {len(columns)} weights from {number(min(before))} to {number(max(before))}."
    scale = answer.get("scale")
    if scale is not None and answer.get("method") in GRIDDED:
        said = f"{said[:-1]}, so one step is s = {number(scale)}."
    errors = [abs(b - a) for a, b in zip(before, after, strict=True)]
    at = columns.index(marked) if marked in columns else errors.index(max(errors))
    if max(errors) == 0:
        return [said, "Every weight lies on a level: no error at all."]
    one = (
        f"Column {columns[at]}: {number(before[at])} became {number(after[at])}, error {signed(after[at] - before[at])}"
    )
    if scale:
        one += f", {number(errors[at] / scale, 2)} of a step"
    exact = sum(e == 0 for e in errors)
    beside = f" {exact} of {len(columns)} came back exactly." if exact else ""
    return [said, f"{one}.{beside}"]


def group_table(answer: Answer) -> Table:
    """Every weight of the group."""
    codes = answer.get("codes") or [None] * len(answer["columns"])
    rows = [
        [column, before, code, after, after - before]
        for column, before, code, after in zip(
            answer["columns"], answer["before"], codes, answer["after"], strict=False
        )
    ]
    return Table("group", ["column", "weight", "code", "becomes", "error"], rows)


def _number(title: str) -> dict[str, Any]:
    return {"type": "integer", "title": title, "minimum": 0, "default": 0, "hint": "number", "group": "main"}


_SCHEMA: dict[str, Any] = {"properties": {"row": _number("Row"), "group": _number("Group of the row")}}
