"""The lesson's 2 x 2 example both ways: beside the weights and inside them, by the code that adapts a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from widgets.asked import Answer, Asked
from widgets.choice import Slider, float_slider
from widgets.equations import Equations, Line, Matrix
from widgets.experiment import Desk, Table
from widgets.lora.state import LoraState
from widgets.section import Section, heading, section
from widgets.shown import show_if
from widgets.text import Words
from widgets.verdict import Verdict

WEIGHT = ((1.0, 2.0), (3.0, 4.0))
A = ((1.0,), (0.0,))
B = ((0.5, 0.5),)
X = (1.0, 1.0)
"""What the example starts from: `lab.lora.example`."""


class ExampleSection(Section[LoraState]):
    """Two lines of small matrices that end in the same row; a slider for the scale."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.factor = 1.0
        self._field = float_slider("Scale in the example", 0.0, 2.0, 0.25, 1.0)
        self._slider = Slider(desk, "factor", self._field, self._moved)
        self._asked = Asked(desk, "worked_example", checked)
        self._verdict = Verdict()
        self._lines = Equations(label="The worked example", picture="worked example")
        self._caption = Words(css_class="lab-caption")
        self.widget = section(
            heading("By hand", "Two inputs, two outputs, rank 1, alpha 2."),
            self._slider.widget,
            self._verdict,
            self._lines,
            self._caption,
        )

    def _moved(self, value: float) -> None:
        self.factor = value

    def settle(self, state: LoraState) -> None:
        """Ask for the example; it is recorded with the run."""
        del state
        self._asked.ask(_question(self.factor))

    def render(self, state: LoraState, upto: int, *, live: bool) -> None:
        del state, upto, live
        self._slider.show(self._field, self.factor)
        question = _question(self.factor)
        found = self._asked.ask(question)
        why = self._asked.why_not(question)
        answer = found or (None if why else self._asked.last)
        show_if(answer, self._lines, self._caption)
        if answer is None:
            self._verdict.show("none", why or "The example is being asked for.")
            return
        self._verdict.show(*said(answer))
        lines = both_ways(answer)
        self._lines.show(lines, in_words(lines))
        self._caption.say(
            ("p", "DERIVED by the code that adapts a model. The lesson writes rows, y = x W; modules hold transposes.")
        )

    def tables(self, state: LoraState) -> Sequence[Table]:
        del state
        last = self._asked.last
        if not last:
            return ()
        rows = [[name, *last[key]] for name, key in (("beside", "unmerged_output"), ("merged", "merged_output"))]
        return (Table("worked_example", ["way", "y1", "y2"], rows),)


def _question(factor: float) -> dict[str, Any]:
    return {} if factor == 1 else {"factor": factor}


def checked(answer: Answer) -> Answer:
    """The answer, if it can be drawn.

    Raises:
        KeyError, TypeError, ValueError: it cannot.
    """
    for name in ("base_output", "inner", "added", "unmerged_output", "merged_output"):
        if not all(math.isfinite(float(value)) for value in answer[name]) or not answer[name]:
            raise ValueError(f"{name} is no row of numbers")
    for name in ("update", "merged"):
        if {len(row) for row in answer[name]} != {2}:
            raise ValueError(f"{name} is no 2 x 2 matrix")
    both_ways(answer)
    return answer


def n(value: float) -> str:
    """A number of the example: few digits, a real minus."""
    return f"{float(value):.4g}".replace("-", "−")


def _matrix(sign: str, rows: Sequence[Sequence[float]], name: str, *, mark: bool = False) -> Matrix:
    return Matrix(sign, [[n(value) for value in row] for row in rows], name, mark)


def row(values: Sequence[float]) -> str:
    """A row in words: "(5, 7)"."""
    return f"({', '.join(n(value) for value in values)})"


def _scale(answer: Answer) -> float:
    """What A B is really multiplied by: the added row over the plain one."""
    plain = [float(answer["inner"][0]) * value for value in B[0]]
    at = next((i for i, value in enumerate(plain) if value), None)
    return float(answer["added"][at]) / plain[at] if at is not None else float(answer["scale"])


def both_ways(answer: Answer) -> list[Line]:
    """The lines."""
    s = n(_scale(answer))
    beside = Line(
        "Beside the weights: two thin products, then a sum",
        (
            _matrix("", [X], "x"),
            _matrix("·", WEIGHT, "W"),
            _matrix(f"+ {s} ·", [X], "x"),
            _matrix("·", A, "A"),
            _matrix("·", B, "B"),
            _matrix("=", [answer["base_output"]], "x W"),
            _matrix("+", [answer["added"]], "s (x A) B"),
            _matrix("=", [answer["unmerged_output"]], "y", mark=True),
        ),
    )
    merged = Line(
        "Inside the weights: merged once",
        (
            _matrix("", WEIGHT, "W"),
            _matrix(f"+ {s} ·", answer["update"], "A B"),
            _matrix("=", answer["merged"], "W′"),
        ),
    )
    after = Line(
        "Then one product",
        (
            _matrix("", [X], "x"),
            _matrix("·", answer["merged"], "W′"),
            _matrix("=", [answer["merged_output"]], "y", mark=True),
        ),
    )
    return [beside, merged, after]


def said(answer: Answer) -> tuple[str, str]:
    """Whether both ways end in the same row."""
    one, other = answer["unmerged_output"], answer["merged_output"]
    same = all(math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6) for a, b in zip(one, other, strict=True))
    if same:
        return "good", f"y = {row(one)} both ways"
    return "bad", f"y = {row(one)} beside, {row(other)} merged"


def in_words(lines: Sequence[Line]) -> str:
    """All lines for those who cannot see them."""
    return ". ".join(
        f"{line.title}: "
        + " ".join(
            f"{part.sign} {part.name} [{'; '.join(' '.join(r) for r in part.rows)}]".strip() for part in line.parts
        )
        for line in lines
    )
