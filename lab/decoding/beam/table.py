"""A distribution written down in a table, and the lesson's example on it, through the very same search."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence

import torch
from torch import Tensor

from lab.decoding.beam.hypotheses import Finished
from lab.decoding.beam.search import SearchStep, Settings, Tree, beam_search

NAMES = ("A", "B", "continue", "another", "a third", "end")
END = NAMES.index("end")
LESSON: dict[tuple[str, ...], dict[str, float]] = {
    (): {"A": 0.6, "B": 0.4},
    ("A",): {"continue": 0.4, "another": 0.3, "a third": 0.3},
    ("B",): {"end": 0.9, "continue": 0.1},
}
"""Two steps of the lesson. Where it names no probability, after B, the rest goes to "continue"."""


class TableBeams:
    """Log-probabilities looked up by the text so far.

    Args:
        vocab: number of tokens.
        table: for each text its next tokens' probabilities; those not named are 0.
    """

    def __init__(self, vocab: int, table: Mapping[tuple[int, ...], Mapping[int, float]]) -> None:
        self._vocab, self._table = vocab, table
        self._texts: list[tuple[int, ...]] = [()]

    def first(self) -> Generator[None, None, Tensor]:
        yield from ()
        return self._look_up()

    def extend(self, rows: Sequence[int], token_ids: Sequence[int]) -> Generator[None, None, Tensor]:
        yield from ()
        self._texts = [(*self._texts[row], token) for row, token in zip(rows, token_ids, strict=True)]
        return self._look_up()

    def _look_up(self) -> Tensor:
        result = torch.full((len(self._texts), self._vocab), -math.inf)
        for row, text in enumerate(self._texts):
            for token, probability in self._table.get(text, {}).items():
                if probability > 0:
                    result[row, token] = math.log(probability)
        return result


def lesson_search(width: int) -> tuple[list[SearchStep], list[Finished], Tree]:
    """The lesson's two steps with `width` beams, compared by their plain sums. Width 1 is greedy."""
    number = {name: index for index, name in enumerate(NAMES)}
    table = {
        tuple(number[name] for name in text): {number[name]: p for name, p in row.items()}
        for text, row in LESSON.items()
    }
    settings = Settings(width=width, max_new_tokens=2, length_penalty=0.0, end_token_ids=(END,))
    tree = Tree()
    search = beam_search(TableBeams(len(NAMES), table), settings, tree=tree)
    steps: list[SearchStep] = []
    while True:
        try:
            step = next(search)
        except StopIteration as stop:
            return steps, stop.value, tree
        if step is not None:
            steps.append(step)
