"""GPTQ column by column on a few rows of one matrix: for a picture, and as a check of the fast way.

Errors go to all later columns at once, without blocks, as the paper's first formula has it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lab.calibration.factor import Factor, factoring
from lab.calibration.inputs import LayerInputs
from lab.errors import BadInput, shown
from lab.models.linear import check_weight
from lab.quantization.affine import Affine, affine_of, affine_of_range, decode_groups, encode_groups
from lab.quantization.gptq import Gptq

MOST_ROWS, MOST_COLUMNS = 16, 256
PAUSE = 256
"""Columns between pauses: a few ms."""


@dataclass(frozen=True)
class Replay:
    """Some rows and, in the order in which they were taken, some columns of one GPTQ run.

    When column k is rounded, a later column j of row r changes by -error[r, k] * spread[k, j].

    Attributes:
        rows: (row,) of the matrix.
        columns: (column,) int64: where each shown column lies in the matrix.
        groups: (column,) int64: its group.
        start: position of the first shown column in the order; 0 is the first that was rounded.
        original: (row, column) fp32: the weights as they were.
        at_turn: (row, column) fp32: as they stood when they were rounded; less `original`, what they had absorbed.
        codes: (row, column) int16.
        values: (row, column) fp32: what the codes stand for.
        error: (row, column) fp32: at_turn - values.
        spread: (column, column) fp32, U_kj / U_kk: the share of column k's error that column j takes; 0 for j <= k.
        passed_on: (row, column) fp32: the sum over all later columns, shown or not, of what they changed by, in
            magnitudes.
        loss: (row, column) fp32: what each column's error adds to the output's mean square error (with the damping's
            share in it).
        rounded_loss: (row,) fp32: the mean square error of the row's output when it is rounded to nearest.
        final_loss: (row,) fp32: and after GPTQ.
        damping: used in the end.
    """

    rows: tuple[int, ...]
    columns: Tensor
    groups: Tensor
    start: int
    original: Tensor
    at_turn: Tensor
    codes: Tensor
    values: Tensor
    error: Tensor
    spread: Tensor
    passed_on: Tensor
    loss: Tensor
    rounded_loss: Tensor
    final_loss: Tensor
    damping: float


def replaying(
    weight: Tensor, inputs: LayerInputs, method: Gptq, rows: Sequence[int], *, start: int = 0, count: int = 128
) -> Generator[float, None, Replay]:
    """Replay `method` on `rows` of `weight`, (out, in), and keep `count` columns from position `start` of the order.

    Raises:
        BadInput: rows or columns that are not there or too many, inputs without a Hessian, or a Hessian that no
            damping makes positive definite.
    """
    check_weight(weight)
    width = weight.shape[1]
    _check(weight, rows, start, count)
    if inputs.hessian is None or inputs.hessian.shape[0] != width:
        raise BadInput(f"A replay needs the Hessian of the layer's {width} inputs.", remedy="Calibrate this layer.")
    factors = factoring(inputs.hessian.float(), damping=method.damping, act_order=method.act_order)
    while True:
        try:
            next(factors)
        except StopIteration as end:
            parts: Factor = end.value
            break
        yield 0.1
    if parts.upper is None:
        raise BadInput(
            "There is nothing to replay: the Hessian could not be made positive definite.", remedy="Use more text."
        )
    # A whole tensor's scale is of all rows; other scales are each row's own.
    whole = weight.detach().float().masked_fill(parts.dead, 0.0)
    picked = whole[list(rows)]
    grid, size = method.grid, method.grid.group_size(width)
    fixed = method.static_groups or grid.share == "tensor"
    affine = affine_of(whole if grid.share == "tensor" else picked, grid) if fixed else Affine(torch.empty(0))
    work = picked.t()[parts.columns].clone()
    turn, values, codes, error = (torch.zeros_like(work) for _ in range(4))
    groups = parts.columns // size if fixed else torch.arange(width, device=work.device) // size
    diagonal = parts.upper.diagonal()
    spread = parts.upper / diagonal[:, None]
    for i in range(width):
        with torch.no_grad():
            if not fixed and i % size == 0:
                low, high = torch.aminmax(work[i : i + size], dim=0)
                own = affine_of_range(low[:, None], high[:, None], grid)
            elif fixed:
                own = affine.part(groups=slice(int(groups[i]), int(groups[i]) + 1))
            column = work[i][:, None, None]
            code = encode_groups(column, own, grid)
            turn[i], codes[i] = work[i], code[:, 0, 0]
            values[i] = decode_groups(code, own, grid)[:, 0, 0]
            error[i] = turn[i] - values[i]
            work[i + 1 :].addr_(spread[i, i + 1 :], error[i], alpha=-1.0)
        if i % PAUSE == PAUSE - 1:
            yield 0.1 + 0.8 * i / width
    shown_ = slice(start, min(start + count, width))
    with torch.no_grad():
        final = torch.empty_like(values)
        final[parts.columns] = values
        nearest = _nearest(whole, picked, method)
        return Replay(
            rows=tuple(rows),
            columns=parts.columns[shown_],
            groups=groups[shown_],
            start=start,
            original=weight.detach().float()[list(rows)][:, parts.columns[shown_]],
            at_turn=turn[shown_].t().contiguous(),
            codes=codes[shown_].t().to(torch.int16),
            values=values[shown_].t().contiguous(),
            error=error[shown_].t().contiguous(),
            spread=spread[shown_, shown_].triu(1),
            passed_on=(error[shown_].abs() * spread[shown_].abs().triu(1 + start).sum(dim=1)[:, None]).t().contiguous(),
            loss=(error[shown_] / diagonal[shown_, None]).square().div_(2.0).t().contiguous(),
            rounded_loss=_loss(nearest - weight.detach().float()[list(rows)], inputs.hessian),
            final_loss=_loss(final.t() - weight.detach().float()[list(rows)], inputs.hessian),
            damping=parts.damping,
        )


def _nearest(whole: Tensor, picked: Tensor, method: Gptq) -> Tensor:
    grid, size = method.grid, method.grid.group_size(picked.shape[1])
    affine = affine_of(whole if grid.share == "tensor" else picked, grid)
    columns = []
    for i in range(picked.shape[1]):
        own = affine.part(groups=slice(i // size, i // size + 1))
        columns.append(decode_groups(encode_groups(picked[:, i, None, None], own, grid), own, grid)[:, 0, 0])
    return torch.stack(columns, dim=1)


def _loss(change: Tensor, hessian: Tensor) -> Tensor:
    return (change @ hessian.float()).mul_(change).sum(dim=1).div_(2.0)


def _check(weight: Tensor, rows: Sequence[int], start: int, count: int) -> None:
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
