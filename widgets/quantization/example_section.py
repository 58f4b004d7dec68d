"""The lesson's worked examples, from the code that runs: four weights at 4 and 8 bits, and one outlier in eight."""

from __future__ import annotations

from typing import Any

from widgets.asked import Answer, Asked
from widgets.controls import Controls
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.numbers import number, signed
from widgets.quantization.group_plot import LEGEND, GroupPlot
from widgets.quantization.state import QuantizationState
from widgets.section import Section, heading, section
from widgets.shown import show_if
from widgets.text import Words


class ExampleSection(Section[QuantizationState]):
    """Three small groups in words; one of them drawn as the model's own groups are."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._asked = Asked(desk, "worked_example", _checked)
        self._which = "outlier"
        self._words = Words(css_class="lab-answer")
        self._controls = Controls(schema=_SCHEMA, values={"which": self._which})
        self._controls.add_class("lab-inline")
        self._controls.on_values(self._chosen)
        self._plot = GroupPlot(height=170)
        self._legend = Words(css_class="lab-caption")
        self._legend.legend(LEGEND)
        self._table = DataTable(summary="Table of the examples")
        self.widget = section(
            heading(
                "By hand",
                "DERIVED. Small enough for a pencil: symmetric levels, s = largest |w| / Q, code = w / s, rounded.",
            ),
            self._controls,
            self._plot,
            self._legend,
            self._words,
            self._table,
        )

    def _chosen(self, values: dict[str, Any]) -> None:
        with self._desk.lock:
            self._which = str(values.get("which", self._which))
        self._desk.touch()

    def settle(self, state: QuantizationState) -> None:
        """Ask for the examples; they are recorded with the run."""
        if state.task == "layer":
            self._asked.ask({})

    def render(self, state: QuantizationState, upto: int, *, live: bool) -> None:
        """Draw the examples."""
        del state, upto
        answer = self._asked.ask({}) or self._asked.last
        show_if(answer is not None, self._controls, self._plot, self._legend, self._table)
        if answer is None:
            self._words.say(("p", self._asked.why_not({}) or "The examples are being asked for."))
            return
        named: dict[str, Answer] = {str(group["bits"]): group for group in answer["four"]}
        named["outlier"] = answer["outlier"]
        self._controls.set_values({"which": self._which})
        group = named.get(self._which) or named["outlier"]
        said = [example_words(group), *(outlier_words(answer) for _ in "x" if group is answer["outlier"])]
        self._words.say(*(("p", text) for text in said))
        levels = [code * group["scale"] for code in range(-_most(group), _most(group) + 1)]
        columns = list(range(1, len(group["weights"]) + 1))
        self._plot.show(columns, group["weights"], group["became"], levels, None, example_words(group))
        if not live:
            self._table.show(example_table(answer))

    def tables(self, state: QuantizationState) -> list[Table]:
        """All weights of the examples."""
        del state
        return [example_table(self._asked.last)] if self._asked.last else []


def _most(group: Answer) -> int:
    """Q: codes go from -Q to Q."""
    return (1 << (int(group["bits"]) - 1)) - 1


def _listed(values: list[float]) -> str:
    return ", ".join(f"{v:g}".replace("-", "−") for v in values)


def example_words(group: Answer) -> str:
    """The group, its scale, its codes and its largest error."""
    largest = max(abs(w) for w in group["weights"])
    worst = max(abs(e) for e in group["errors"])
    codes = ", ".join(str(c).replace("-", "−") for c in group["codes"])
    return (
        f"{_listed(group['weights'])} at {group['bits']} bits: s = {largest:g} / {_most(group)} = "
        f"{number(group['scale'])}, codes {codes}. Largest error {number(worst)}, "
        f"at most s / 2 = {number(group['bound'])}."
    )


def outlier_words(answer: Answer) -> str:
    """What the outlier does to the others."""
    group, without = answer["outlier"], answer["without_outlier"]
    lost = sum(became == 0 and weight != 0 for weight, became in zip(group["weights"], group["became"], strict=True))
    worst = max(abs(e) for e in without["errors"])
    return (
        f"One weight decides the scale: {lost} of the others become 0. Without it s = {number(without['scale'])} and "
        f"no error is larger than {number(worst)}. A smaller group keeps an outlier's harm to fewer weights."
    )


def example_table(answer: Answer) -> Table:
    """Every weight of every example."""
    named: list[tuple[str, Answer]] = [(f"four weights, {g['bits']} bits", g) for g in answer["four"]]
    named += [("with an outlier", answer["outlier"]), ("without it", answer["without_outlier"])]
    rows: list[list[Any]] = [
        [name, weight, g["scale"], code, became, signed(became - weight)]
        for name, g in named
        for weight, code, became in zip(g["weights"], g["codes"], g["became"], strict=True)
    ]
    return Table("worked_examples", ["example", "weight", "s", "code", "becomes", "error"], rows)


def _checked(answer: Answer) -> Answer:
    """The answer, if it can be drawn.

    Raises:
        KeyError, TypeError, ValueError: it cannot.
    """
    for group in [*answer["four"], answer["outlier"], answer["without_outlier"]]:
        if not len(group["weights"]) == len(group["became"]) == len(group["codes"]) == len(group["errors"]) > 0:
            raise ValueError("an example's columns do not go together")
        example_words(group)
    return answer


_SCHEMA: dict[str, Any] = {
    "properties": {
        "which": {
            "type": "string",
            "title": "Drawn",
            "enum": ["4", "8", "outlier"],
            "labels": ["four at 4 bits", "four at 8 bits", "an outlier among eight"],
            "default": "outlier",
            "hint": "segmented",
            "group": "main",
        }
    }
}
