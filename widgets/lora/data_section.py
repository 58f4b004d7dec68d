"""What is to be learnt: the task, its examples, how many are trained on and how many held out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.events.lora import TrainingData
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.figure import FigureRow
from widgets.lora.state import LoraState
from widgets.numbers import capital
from widgets.section import Section, heading, section
from widgets.shown import show_if
from widgets.text import Words
from widgets.token_text import plain_text

SHOWN = 3
MOST_CHARACTERS = 240


class DataSection(Section[LoraState]):
    """The task in words, its counts, the first examples; the others that were told stand in the table."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._about = Words(css_class="lab-answer")
        self._figures = FigureRow()
        self._examples = Words(css_class="lab-result")
        self._caption = Words(css_class="lab-caption")
        self._table = DataTable(summary="Table of the examples shown")
        self.widget = section(
            heading("What it learns", "Only the answer's tokens count: the prompt is read, not learnt."),
            self._about,
            self._figures,
            self._examples,
            self._caption,
            self._table,
        )

    def render(self, state: LoraState, upto: int, *, live: bool) -> None:
        del upto
        data = state.data
        show_if(data, self._figures, self._examples, self._caption, self._table)
        if data is None:
            waiting = live and state.end is None
            self._about.say(("p", "The lines are being encoded." if waiting else "The run ended before its lines."))
            return
        self._about.say(("p", capital(plain_text(data.words))))
        self._figures.show(data_figures(data))
        self._examples.say(("p", "For instance"), *(("p", example) for example in examples(data)))
        self._caption.say(("p", f"Lines with the hash {data.hash}. {held_out_words(data)}"))
        if not live:
            self._table.show(data_table(data))

    def tables(self, state: LoraState) -> Sequence[Table]:
        return (data_table(state.data),) if state.data else ()


def data_figures(data: TrainingData) -> list[dict[str, Any]]:
    """Examples and answer tokens of both splits."""
    return [
        {
            "id": "train_examples",
            "value": f"{data.train_examples:,}",
            "unit": "examples to learn from",
            "badge": "DERIVED",
            "note": f"{data.train_tokens:,} answer tokens",
            "title": "Counted after the tokenizer. Each step draws a few of them.",
        },
        {
            "id": "heldout_examples",
            "value": f"{data.heldout_examples:,}",
            "unit": "held out",
            "badge": "DERIVED",
            "note": f"{data.heldout_tokens:,} answer tokens" if data.heldout_examples else "too few lines to spare any",
            "title": "Never trained on: the loss on them says whether more than the lines was learnt.",
        },
        {
            "id": "answer_length",
            "value": f"{data.train_tokens / data.train_examples:.1f}" if data.train_examples else "",
            "unit": "tokens an answer",
            "badge": "DERIVED",
            "note": "mean",
            "title": "Answer tokens of the training split, divided by its examples.",
        },
    ]


def examples(data: TrainingData) -> list[str]:
    """The first few, as prompt and answer."""
    return [f"{_short(prompt)}  →  {_short(answer)}" for prompt, answer in data.examples[:SHOWN]]


def _short(text: str) -> str:
    shown = plain_text(text.replace("\n", " ↵ "))
    return shown if len(shown) <= MOST_CHARACTERS else f"{shown[: MOST_CHARACTERS - 1]}…"


def held_out_words(data: TrainingData) -> str:
    """What the held-out split is for, or why there is none."""
    if not data.heldout_examples:
        return (
            "With fewer than 12 prompts none is held out: the last step is kept, and nobody can tell learning by heart."
        )
    return "The adapter kept is the one with the least loss on the held-out lines."


def data_table(data: TrainingData) -> Table:
    """The examples that the run told."""
    return Table("examples", ["prompt", "answer"], [[prompt, answer] for prompt, answer in data.examples])
