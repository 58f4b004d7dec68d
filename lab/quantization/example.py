"""The lesson's small groups, rounded by the same code as a model's."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lab.quantization.affine import Affine, decode_groups, encode_groups
from lab.quantization.grid import Grid

FOUR = (0.4, -1.2, 0.05, 0.9)
OUTLIER = (0.1, 0.3, -0.2, 0.25, 10.0, -0.1, 0.15, 0.3)
"""Seven small weights and one of 10."""


@dataclass(frozen=True)
class ExampleGroup:
    """One group, step by step; in float64, its scale not rounded to a stored format.

    Attributes:
        bits: of a code.
        weights: as given.
        scale: max |w| / (2^(bits - 1) - 1).
        ratios: w / scale.
        codes: those rounded.
        became: code times scale.
        errors: w - became.
    """

    bits: int
    weights: tuple[float, ...]
    scale: float
    ratios: tuple[float, ...]
    codes: tuple[int, ...]
    became: tuple[float, ...]
    errors: tuple[float, ...]

    @property
    def bound(self) -> float:
        """s / 2."""
        return self.scale / 2


def absmax_example(weights: tuple[float, ...] = FOUR, bits: int = 4) -> ExampleGroup:
    """A group on the symmetric grid.

    >>> absmax_example().codes
    (2, -7, 0, 5)
    """
    grid = Grid(bits, "absmax", "tensor", scale_format="float32")
    group = torch.tensor([[weights]], dtype=torch.float64)
    affine = Affine(group.abs().amax(-1) / grid.highest)
    codes = encode_groups(group, affine, grid)
    became = decode_groups(codes, affine, grid)
    scale = float(affine.scale)
    return ExampleGroup(
        bits=bits,
        weights=weights,
        scale=scale,
        ratios=tuple(w / scale for w in weights),
        codes=tuple(int(q) for q in codes[0, 0]),
        became=tuple((became[0, 0] + 0.0).tolist()),  # -0 becomes 0
        errors=tuple((group - became)[0, 0].tolist()),
    )


def outlier_example(bits: int = 4) -> tuple[ExampleGroup, ExampleGroup]:
    """A group with an outlier, and the same without it: what one weight costs the others."""
    return absmax_example(OUTLIER, bits), absmax_example(tuple(w for w in OUTLIER if abs(w) < 1), bits)
