"""What a run's matrices are held against: some groups of each, computed once more."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from lab.experiments.quantization.reference import (
    ROUNDING,
    Group,
    wrong_distance,
    wrong_nf4,
    wrong_scale,
    wrong_value,
)
from lab.quantization.affine import AffineWeight
from lab.quantization.grid import Grid
from lab.quantization.nf4 import Nf4Weight

GROUPS_A_MATRIX = 6
WEIGHTS_A_MATRIX = 4096
"""About 3 ms of plain Python."""
NUMBERS_A_MATRIX = 64


@dataclass
class Sample:
    """A group chosen to be computed again: `where` are the flat places of its weights in the matrix."""

    words: str
    where: Tensor
    group: Group
    wrong: Callable[[Group], str]
    kind: str = "group"


@dataclass
class Checked:
    """Groups computed again so far.

    Attributes:
        seed: chooses the groups.
        dtype: that the weights run in.
        groups, right: how many were compared, and how many of them were as they should be.
        words: of the first that was not.
    """

    seed: int
    dtype: torch.dtype
    groups: int = 0
    right: int = 0
    matrices: int = 0
    words: str = ""
    seen: set[str] = field(default_factory=set)

    @property
    def rounding(self) -> float:
        """Relative, of a weight in the run's dtype."""
        return ROUNDING if self.dtype == torch.float32 else 2.0**-8

    def grid_samples(
        self, title: str, weight: Tensor, made: AffineWeight, *, nearest: bool, whole_range: bool
    ) -> list[Sample]:
        """Groups of a matrix on a grid.

        Args:
            title: for a sentence.
            weight: the dense matrix, (out, in).
            nearest: each weight takes the nearest level, so that none in range is further than s / 2.
            whole_range: scales cover all weights of a group: nothing was clipped.
        """
        grid, rounding = made.grid, self.rounding

        def wrong(group: Group) -> str:
            found = wrong_value(group, grid, rounding)
            if not found and whole_range:
                found = wrong_scale(group, grid)
            return found or (wrong_distance(group, grid, rounding) if nearest else "")

        return [
            Sample(f"{title}, row {row}, group {number}", where, group, wrong)
            for row, number, where, group in _grid_groups(weight, made, self._dice(title))
        ]

    def nf4_samples(self, title: str, weight: Tensor, made: Nf4Weight) -> list[Sample]:
        """Blocks of a matrix in NF4, which run over the flattened matrix."""
        dice, magnitudes, rounding = self._dice(title), made.block_magnitudes(), self.rounding
        doubled = not isinstance(made.magnitudes, Tensor)

        def wrong(group: Group) -> str:
            return wrong_nf4(group, rounding, double_quant=doubled)

        found = []
        for _ in range(GROUPS_A_MATRIX):
            block = dice.randrange(magnitudes.numel())
            where = torch.arange(block * made.block, min((block + 1) * made.block, weight.numel()))
            before = weight.reshape(-1)[where].double().tolist()
            codes = made.codes.reshape(-1)[where].tolist()
            group = Group(before, codes, float(magnitudes[block]), None, (), min(before), max(before))
            found.append(Sample(f"{title}, block {block}", where, group, wrong))
        return found

    def number_samples(self, title: str, weight: Tensor, expected: Callable[[int, float], float]) -> list[Sample]:
        """Single numbers of a matrix.

        Args:
            expected: what the number at a flat place must become.
        """
        dice, rounding = self._dice(title), self.rounding
        places = [dice.randrange(weight.numel()) for _ in range(NUMBERS_A_MATRIX)]
        found = []
        for place in places:
            value = float(weight.reshape(-1)[place])
            group = Group([value], (), 0.0, None, (), value, value)

            def wrong(group: Group, place: int = place) -> str:
                wanted, runs = expected(place, group.before[0]), group.after[0]
                if abs(runs - wanted) <= rounding * abs(wanted):
                    return ""
                return f"{group.before[0]:.6g} is {wanted:.6g} there, and {runs:.6g} runs"

            found.append(Sample(f"{title}, weight {place}", torch.tensor([place]), group, wrong, "weight"))
        return found

    def settle(self, samples: list[Sample], runs: Tensor) -> None:
        """Compare chosen groups with the weights that run, (out, in)."""
        self.matrices += bool(samples)
        flat = runs.reshape(-1)
        for sample in samples:
            self.settle_one(sample, flat[sample.where.to(flat.device)])

    def settle_one(self, sample: Sample, after: Tensor) -> None:
        """Compare one group with the weights that run in its places."""
        self._note(sample.wrong(replace(sample.group, after=after.double().tolist())), sample)

    def dice_for(self, title: str, count: int) -> list[random.Random]:
        """`count` times the dice of a matrix."""
        return [self._dice(title)] * count

    def _note(self, wrong: str, sample: Sample) -> None:
        self.groups += 1
        self.seen.add(sample.kind)
        if not wrong:
            self.right += 1
        elif not self.words:
            self.words = f"{sample.words}: {wrong}."

    def _dice(self, title: str) -> random.Random:
        return random.Random(f"{self.seed} {title}")  # noqa: S311 - chooses samples, keeps no secret


def _grid_groups(
    weight: Tensor, made: AffineWeight, dice: random.Random
) -> Generator[tuple[int, int, Tensor, Group], None, None]:
    rows, columns = made.shape
    tensors = made.tensors()
    scales, zeros = tensors["scales"], tensors.get("zeros")
    order, channels = tensors.get("order"), tensors.get("channel_scales")
    grid: Grid = made.grid
    single = grid.share == "tensor"
    size = grid.group_size(columns)
    ends = (float(weight.min()), float(weight.max())) if single else None
    for _ in range(max(1, min(GROUPS_A_MATRIX, WEIGHTS_A_MATRIX // size))):
        row, number = dice.randrange(rows), dice.randrange(1 if single else scales.shape[1])
        if order is not None:
            where = torch.nonzero(order == number)[:, 0]
        else:
            where = torch.arange(number * size, min((number + 1) * size, columns), device=weight.device)
        at = (0, 0) if single else (row, number)
        before = weight[row, where].double()
        group = Group(
            before=before.tolist(),
            codes=[int(c) for c in tensors["codes"][row, where].tolist()],
            scale=float(scales[at]),
            offset=None if zeros is None else float(zeros[at]),
            after=(),
            low=ends[0] if ends else float(before.min()),
            high=ends[1] if ends else float(before.max()),
            channel_scales=() if channels is None else channels[where].double().tolist(),
        )
        yield row, number, row * columns + where, group
