"""The plain model on a finished text: what it would have drawn each token from, by transformers' own forward.

Nothing of the speculative run is used: no fast path, no cache of its, no draft. So what a run did wrong to its cache,
its positions or its processors shows as a difference here.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lab.decoding.distribution import Distribution
from lab.decoding.half_pack import packing_pays
from lab.decoding.passes import TransformersPass

CHUNK, SHORT = 24, 4
"""Tokens in one pass: its logits are wanted for all of them."""


@dataclass(frozen=True)
class TaughtRow:
    """The plain model before one new token.

    Attributes:
        index: of the new token.
        logits: (vocab,) fp32, after the processors that look back and before temperature.
        p: (vocab,) what the token would be drawn from.
    """

    index: int
    logits: Tensor
    p: Tensor


def taught(
    model: nn.Module, prompt_ids: Sequence[int], new_ids: Sequence[int], distribution: Distribution
) -> Generator[TaughtRow | None, None, None]:
    """Read the finished text once and give a row for each new token.

    Yields:
        None after each pass, then a `TaughtRow` for each new token in it, in order.
    """
    ids = [*prompt_ids, *new_ids]
    first = len(prompt_ids) - 1
    runner = TransformersPass(model, len(ids))
    # transformers' own bf16 products go row by row where the CPU has none: fewer tokens keep the slice short.
    chunk = SHORT if next(model.parameters()).dtype == torch.bfloat16 and packing_pays() else CHUNK
    for start in range(0, len(ids) - 1, chunk):
        piece = ids[start : min(start + chunk, len(ids) - 1)]
        with torch.inference_mode():
            logits = runner.rows(piece, start).logits
        yield None
        for offset in range(len(piece)):
            position = start + offset
            if position < first:
                continue
            with torch.inference_mode():
                before = ids[: position + 1]
                row = distribution.processed(logits[offset], before)
                p = distribution.of(logits[offset], before)
            yield TaughtRow(position - first, row, p)
