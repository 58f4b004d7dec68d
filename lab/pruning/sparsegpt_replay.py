"""SparseGPT column by column on a few rows of one matrix: for a picture, and as a check of the fast way.

Which weights go is decided for whole blocks of the matrix at once, so the mask is that of a full run; what each
removed weight passes on is computed again without blocks, as the paper's first formula has it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lab.calibration.factor import Factor, factoring
from lab.calibration.inputs import LayerInputs
from lab.errors import BadInput, shown
from lab.pruning.magnitude import Magnitude
from lab.pruning.method import Pruned
from lab.pruning.sparsegpt import SparseGpt, checked_hessian, why_not
from lab.steps import relay

MOST_ROWS, MOST_COLUMNS = 16, 256
PAUSE = 256
"""Columns between pauses: a few ms."""


@dataclass(frozen=True)
class Replay:
    """Some rows and some neighbouring columns of one SparseGPT run.

    When column k is pruned in row r, a later column j changes by -error[r, k] * spread[k, j].

    Attributes:
        rows: of the matrix. start: the first column shown.
        original: (row, column) fp32: the weights as they were.
        at_turn: (row, column) fp32: as they stood when their column came; less `original`, what they had absorbed.
        score: (row, column) fp32: w^2 / [U_kk]^2 at that time: what removing it costs.
        mask: (row, column) bool: True where a weight is kept.
        values: (row, column) fp32: in the end.
        error: (row, column) fp32: what is passed on: the weight where it was pruned, else 0.
        spread: (column, column) fp32, U_kj / U_kk; 0 for j <= k.
        whole: (row, in) fp32: all values of the rows, to compare with the fast way's.
        magnitude_loss, final_loss: (row,) fp32: mean square error of the row's output, pruned by magnitude with the
            same pattern, and by SparseGPT.
        damping: used in the end.
    """

    rows: tuple[int, ...]
    start: int
    original: Tensor
    at_turn: Tensor
    score: Tensor
    mask: Tensor
    values: Tensor
    error: Tensor
    spread: Tensor
    whole: Tensor
    magnitude_loss: Tensor
    final_loss: Tensor
    damping: float


def replaying(
    weight: Tensor, inputs: LayerInputs, method: SparseGpt, rows: Sequence[int], *, start: int = 0, count: int = 64
) -> Generator[float, None, Replay]:
    """Replay `method` on `rows` of `weight`, (out, in), and keep `count` columns from `start` on.

    Raises:
        BadInput: rows or columns that are not there or too many, inputs without a Hessian, or a Hessian that no
            damping makes positive definite.
    """
    hessian = checked_hessian([weight], inputs)
    height, width = weight.shape
    if not 1 <= len(rows) <= MOST_ROWS or any(not 0 <= row < height for row in rows):
        raise BadInput(
            f"A replay shows 1 to {MOST_ROWS} of the {height} rows 0 to {height - 1}, not {shown(list(rows))}.",
            remedy="Choose other rows.",
        )
    if not 0 <= start < width or not 1 <= count <= MOST_COLUMNS:
        raise BadInput(
            f"A replay shows 1 to {MOST_COLUMNS} columns from one of 0 to {width - 1}, not {shown(count)} from "
            f"{shown(start)}.",
            remedy="Choose other columns.",
        )
    picked = list(rows)
    made: Pruned = yield from relay(method.prune(weight, inputs), lambda share: 0.5 * share)
    simple: Pruned = yield from relay(Magnitude(method.pattern).prune(weight), lambda share: 0.5 + 0.1 * share)
    parts: Factor = yield from relay(factoring(hessian, damping=method.damping, act_order=False), lambda _: 0.6)
    if parts.upper is None:
        raise BadInput(f"There is nothing to replay: {why_not(parts)}.", remedy="Use more text.")
    diagonal = parts.upper.diagonal()
    spread = (parts.upper / diagonal[:, None]).triu(1)
    original = weight.detach()[picked].float()
    mask = made.mask[picked]
    work = original.t().clone()
    turn, error = torch.zeros_like(work), torch.zeros_like(work)
    for i in range(width):
        turn[i] = work[i]
        error[i] = work[i].masked_fill(mask[:, i], 0.0)
        work[i + 1 :].addr_(spread[i, i + 1 :], error[i], alpha=-1.0)
        if i % PAUSE == PAUSE - 1:
            yield 0.6 + 0.4 * i / width
    at_turn, passed = turn.t().contiguous(), error.t().contiguous()
    values = at_turn - passed
    seen = slice(start, min(start + count, width))
    return Replay(
        rows=tuple(picked),
        start=start,
        original=original[:, seen].contiguous(),
        at_turn=at_turn[:, seen].contiguous(),
        score=(at_turn / diagonal).square()[:, seen].contiguous(),
        mask=mask[:, seen].contiguous(),
        values=values[:, seen].contiguous(),
        error=passed[:, seen].contiguous(),
        spread=spread[seen, seen].contiguous(),
        whole=values,
        magnitude_loss=_loss(simple.values[picked] - original, hessian),
        final_loss=_loss(values - original, hessian),
        damping=parts.damping,
    )


def _loss(change: Tensor, hessian: Tensor) -> Tensor:
    """Of each row: with H the mean of 2 x x^T the output's mean square error is d H d^T / 2."""
    return (change @ hessian).mul_(change).sum(dim=1).div_(2.0)
