"""The heart of the page: errors of one matrix at every group size, live as the sliders move."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from lab.events.quantization import WorstWeight
from lab.experiments.quantization.choices import FORMATS, GRIDDED, GROUP_SIZES, KINDS, PROJECTIONS
from lab.experiments.quantization.params import missing_projections
from widgets.controls import Controls
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.histogram_rows import HistogramRows
from widgets.quantization.asked import Asked
from widgets.quantization.counted import HEADS, Shown, from_answer, rows_of
from widgets.quantization.group_sizes import compared, fitting
from widgets.quantization.sections import Section, heading, section
from widgets.quantization.sentences import method_words, share_words
from widgets.quantization.state import Matrix, QuantizationState
from widgets.quantization.tables import histogram_table
from widgets.text import Words

QUICK = ("nearest", "nf4", *FORMATS)
"""Methods that answer while a slider moves; the others take a run."""
ASKED = ("layer", "projection", "method", "bits", "kind")
Values = dict[str, Any]


class HistogramSection(Section):
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
        same = [s for s in labels if s.method == values.get("method") or values.get("method") not in QUICK]
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
        layers = state.param("layers", (0,))
        self._run = {
            "layer": layers[0] if isinstance(layers, list | tuple) and layers else 0,
            "projection": str(state.param("projection", "q_proj")),
            "method": str(state.param("method", "nearest")),
            "bits": state.param("bits", 4),
            "kind": str(state.param("kind", "absmax")),
            "group_size": str(state.param("group_size", "64")),
            "scale_format": str(state.param("scale_format", "float16")),
        }
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
        return (self._shown, False) if asked is None else (asked, True)

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
        why = "" if self._of_run(state) else self._asked.why_not(self.question(values))
        self._controls.update(
            schema=self._schema(state),
            values={**values, "log": "log" if self.log else "linear"},
            presets=self._presets(),
        )
        rows, reach = rows_of(self._shown)
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
        self._source.say(("p", self._source_words(state, why, there=there)))
        self._legend.legend([("largest error", "--lab-rejected-edge", False), ("± s / 2", "--lab-text", True)])
        self._legend.say(*(("p", text) for text in self._notes()))
        if not live:
            self._table.show(histogram_table([h for h, _ in self._shown]))

    def _source_words(self, state: QuantizationState, why: str, *, there: bool) -> str:
        values = self.values
        what = f"layer {values['layer']} {values['projection']}"
        if self._of_run(state):
            return f"MEASURED in the run: {what}, {self._how(values['method'])}."
        if why:
            return f"{why} Shown is what was asked before."
        said = f"MEASURED on the model as you move the sliders, not in the run: {what}, "
        said += f"{self._how(self.question(values)['method'])}, nothing clipped."
        if not self.quick:
            said += f" {method_words(values['method'])} takes a run: set it on the left and press Run."
        return said if there else f"{said} …"

    def _how(self, method: str) -> str:
        values = self.values
        if method not in GRIDDED:
            return method_words(method)
        kind = KINDS.get(values["kind"], values["kind"])
        return f"{method_words(method)}, {values['bits']} bits, {kind}"

    def _notes(self) -> list[str]:
        row = self.chosen_row()
        histogram = next((h for h, _ in self._shown if h.setting.label == row), None)
        if histogram is None:
            return []
        said = f"{share_words(histogram.setting.share)}: " if histogram.setting.share else ""
        said += f"{histogram.groups:,} scales for {histogram.rows * histogram.columns:,} weights."
        if histogram.max_error == 0:
            said += " Every weight came back exactly."
        marked = any(w.after != w.before for w in self.worst())
        hint = "The dots below the line are the weights with the largest errors: click one to see its group."
        return [said[:1].upper() + said[1:], *(hint for _ in "x" if marked), *histogram.notes]

    def _schema(self, state: QuantizationState) -> dict[str, Any]:
        facts = state.started.facts if state.started else None
        missing = missing_projections(facts) if facts else {}
        values = self.values
        last = len(facts.layers) - 1 if facts and facts.layers else 29
        have = [name for name in PROJECTIONS if name not in missing]
        methods = list(dict.fromkeys((*QUICK, values["method"])))
        columns = self.columns.get(values["projection"]) or (facts.hidden if facts else 576)
        sizes = list(dict.fromkeys((*fitting(columns), values["group_size"])))
        on_grid = {"method": list(GRIDDED)}
        return {
            "properties": {
                "layer": _field("integer", "Layer", "slider", minimum=0, maximum=last),
                "projection": _field("string", "Projection", "select", enum=have),
                "method": _field(
                    "string", "Method", "select", enum=methods, labels=[method_words(name) for name in methods]
                ),
                "bits": _field("integer", "Bits", "slider", minimum=2, maximum=8, unit="bits", when=on_grid),
                "group_size": _field("string", "Group size", "slider", enum=sizes, when=on_grid),
                "kind": _field(
                    "string", "Levels", "select", enum=list(KINDS), labels=list(KINDS.values()), when=on_grid
                ),
                "log": _field(
                    "string", "Heights", "segmented", enum=["linear", "log"], labels=["counts", "logarithms"]
                ),
            }
        }

    def _presets(self) -> list[dict[str, Any]]:
        run = {"question": "As the run", "params": dict(self._run)}
        return [run, *({"question": words, "params": params} for words, params in PRESETS)]

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
            good = {name: found[name] for name, fits in _FITS.items() if name in found and fits(found[name])}
            self.own = good or None
            self._keep = bool(good)


def _field(kind: str, title: str, hint: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "title": title, "hint": hint, "group": "main", **more}


def _whole(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


_FITS: dict[str, Callable[[Any], bool]] = {
    "layer": lambda v: _whole(v, 0, 999),
    "projection": lambda v: v in PROJECTIONS,
    "method": lambda v: v in QUICK,
    "bits": lambda v: _whole(v, 2, 8),
    "kind": lambda v: isinstance(v, str) and v in KINDS,
    "group_size": lambda v: v in GROUP_SIZES,
}
PRESETS: tuple[tuple[str, Values], ...] = (
    (
        "On a Q4_1 grid: float minimum, groups of 32",
        {"method": "nearest", "bits": 4, "kind": "float_minimum", "group_size": "32"},
    ),
    ("2 bits", {"method": "nearest", "bits": 2}),
    ("8 bits", {"method": "nearest", "bits": 8}),
)
