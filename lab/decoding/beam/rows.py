"""What the search's rows are on a model: prompt once, then one pass for all running beams."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from lab.decoding.beam.search import timed
from lab.decoding.passes import Pass
from lab.decoding.steps import Prefilled


@dataclass(frozen=True)
class Held:
    """What the cache of a search holds now.

    Attributes:
        prompt: positions of the prompt.
        generated: positions of new tokens in each row.
        rows: running beams.
        bytes: of the tensors that hold these positions.
        shares_prompt: whether all rows read one copy of the prompt; else each has its own.
    """

    prompt: int
    generated: int
    rows: int
    bytes: int
    shares_prompt: bool


class ModelBeams(Protocol):
    """`lab.decoding.beam.search.Beams` on a model.

    Attributes:
        name: "llama" or "transformers": which way the tokens go.
        texts: for each row the new tokens whose keys and values it holds, moved by the same call that moves those.
        reorder_ms: what putting the rows in order took in the last `extend`.
    """

    name: str
    texts: list[list[int]]
    reorder_ms: float

    def prefill(self) -> Generator[Prefilled | None, None, None]:
        """Send the prompt through; yields after each chunk, and None where a slice may end."""
        ...

    def first(self) -> Generator[None, None, Tensor]: ...

    def extend(self, rows: Sequence[int], token_ids: Sequence[int]) -> Generator[None, None, Tensor]: ...

    def rewind(self) -> None:
        """Forget everything but the prompt, for another search after it."""
        ...

    def held(self) -> Held: ...


def prefilled(runner: Pass, prompt_ids: Sequence[int]) -> Generator[Prefilled | None, None, Tensor]:
    """Send a prompt through `runner` in chunks. Returns (1, vocab) log-probabilities of what may follow."""
    logits: Tensor | None = None
    for start in range(0, len(prompt_ids), runner.chunk):
        stop = min(start + runner.chunk, len(prompt_ids))
        through = runner.sliced(prompt_ids[start:stop], start, last=stop == len(prompt_ids), attention=False)
        logits, ms = yield from timed(through)
        yield Prefilled(start, stop, ms, runner.cache)
    if logits is None:
        raise ValueError("a prompt has at least one token")
    return log_softmax(logits[None])


def log_softmax(logits: Tensor) -> Tensor:
    """(row, vocab) log-probabilities in fp32."""
    with torch.inference_mode():
        return torch.log_softmax(logits.float(), dim=-1)


def moved_texts(texts: Sequence[list[int]], rows: Sequence[int], token_ids: Sequence[int]) -> list[list[int]]:
    """Each row's text after the rows were moved and the tokens appended."""
    return [[*texts[row], token] for row, token in zip(rows, token_ids, strict=True)]


def unmoved(rows: Sequence[int], before: int) -> list[int]:
    """The order of a cache whose rows are left as they were, by mistake. Rows that are new must come from somewhere."""
    return [row if row < before else source for row, source in enumerate(rows)]
