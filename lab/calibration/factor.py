"""A Hessian ordered, damped and factored: what GPTQ and SparseGPT need of it.

Frantar et al. 2022, "GPTQ"; Frantar and Alistarh 2023, "SparseGPT": the upper triangular U with H^-1 = U^T U.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import torch
from torch import Tensor

DAMPING_LEAST, DAMPING_STEP, DAMPING_MOST = 1e-3, 3.0, 1.0
SMALL = 128
"""Sides of the triangles that are inverted at once."""


@dataclass(frozen=True)
class Factor:
    """What is needed of a Hessian.

    Attributes:
        upper: (in, in) fp32, U in the order of `columns`; None if no damping made the Hessian positive definite.
        columns: (in,) int64: the columns in the order in which they are taken.
        dead: (in,) bool, in the original order: columns whose inputs were always 0.
        damping: the share of the diagonal's mean that was added in the end.
    """

    upper: Tensor | None
    columns: Tensor
    dead: Tensor
    damping: float


def factoring(hessian: Tensor, *, damping: float, act_order: bool) -> Generator[None, None, Factor]:
    """Order, damp and factor a Hessian, (in, in), which is not changed. Pauses between its two halves.

    U is the inverse of the upper triangular R with H = R R^T, which a Cholesky factorization of H read backwards
    gives; the published form, chol(H^-1)^T, is the same matrix by two factorizations and an inverse. Where H is not
    positive definite the damping is tripled, up to 1.
    """
    diagonal = hessian.diagonal()
    dead = diagonal == 0
    if act_order:
        columns = torch.argsort(torch.where(dead, 1.0, diagonal), descending=True, stable=True)
    else:
        columns = torch.arange(hessian.shape[0], device=hessian.device)
    # An input that is not finite shows on the diagonal.
    if not bool(torch.isfinite(diagonal).all()) or bool(dead.all()):
        return Factor(None, columns, dead, damping)
    backwards = columns.flip(0)
    turned = hessian.index_select(0, backwards).index_select(1, backwards)
    turned.diagonal().add_(dead[backwards].to(turned.dtype))
    mean, added = float(turned.diagonal().mean()), 0.0
    while True:
        turned.diagonal().add_((damping - added) * mean)
        added = damping
        lower, failed = torch.linalg.cholesky_ex(turned)
        yield
        if int(failed) == 0:
            upper = inverse_lower(lower).flip(0, 1)
            if bool(torch.isfinite(upper).all()):
                yield
                return Factor(upper, columns, dead, damping)
        if damping >= DAMPING_MOST:
            return Factor(None, columns, dead, damping)
        damping = min(max(damping, DAMPING_LEAST) * DAMPING_STEP, DAMPING_MOST)


def inverse_lower(lower: Tensor) -> Tensor:
    """The inverse of a lower triangular matrix, by halves: a third of the work of solving for the identity."""
    size = lower.shape[0]
    if size <= SMALL:
        identity = torch.eye(size, dtype=lower.dtype, device=lower.device)
        solved: Tensor = torch.linalg.solve_triangular(lower, identity, upper=False)
        return solved
    half = (size // 2 + 63) // 64 * 64
    inverse = torch.zeros_like(lower)
    first, second = inverse_lower(lower[:half, :half]), inverse_lower(lower[half:, half:])
    inverse[:half, :half], inverse[half:, half:] = first, second
    torch.mm(second, lower[half:, :half] @ first, out=inverse[half:, :half])
    inverse[half:, :half].neg_()
    return inverse
