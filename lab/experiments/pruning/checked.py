"""What a run's masks are held against: some rows of each, computed once more."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lab.experiments.pruning.reference import (
    NEAR,
    counted_bits,
    magnitudes,
    wanda_scores,
    wrong_choice,
    wrong_count,
    wrong_pattern,
    wrong_values,
)
from lab.experiments.pruning.settings import Scheme
from lab.pruning.mask_bits import pack_mask

ROWS_A_MATRIX = 4


@dataclass
class Sample:
    """Rows of one matrix chosen to be computed again.

    Attributes:
        title: for a sentence.
        scheme: how the matrix was pruned.
        rows: their numbers.
        before: of each row the dense weights; kept: its mask; values: what the method made of it, in the run's dtype.
        mean_square: of the inputs, for Wanda.
        whole: what is wrong with the mask as a whole; "" if nothing.
    """

    title: str
    scheme: Scheme
    rows: list[int]
    before: list[list[float]]
    kept: list[list[bool]]
    values: list[list[float]]
    mean_square: list[float] | None
    whole: str


@dataclass
class Checked:
    """Rows computed again so far.

    Attributes:
        seed: chooses the rows.
        dtype: that the weights run in.
        rows, right: how many were compared, and how many of them were as they should be.
        words: of the first that was not.
    """

    seed: int
    dtype: torch.dtype
    rows: int = 0
    right: int = 0
    matrices: int = 0
    words: str = ""
    methods: set[str] = field(default_factory=set)

    def take(
        self,
        title: str,
        scheme: Scheme,
        weight: Tensor,
        mask: Tensor,
        values: Tensor,
        mean_square: Tensor | None = None,
        count: int = ROWS_A_MATRIX,
    ) -> Sample:
        """Choose rows of a matrix.

        Args:
            weight: the dense matrix, (out, in). mask: (out, in) bool, as told. values: what the method made of it.
            mean_square: (in,) of the inputs that Wanda saw.
        """
        dice = random.Random(f"{self.seed} {title}")  # noqa: S311 - chooses samples, keeps no secret
        rows = sorted(dice.sample(range(weight.shape[0]), min(count, weight.shape[0])))
        before = weight[rows].double().tolist()
        kept = mask[rows].tolist()
        return Sample(
            title,
            scheme,
            rows,
            before,
            kept,
            values[rows].to(self.dtype).double().tolist(),
            None if mean_square is None else mean_square.double().tolist(),
            wrong_whole(scheme, weight, mask, before, kept),
        )

    def settle(self, sample: Sample, runs: Tensor) -> None:
        """Compare the rows with the weights that run, (out, in)."""
        self.matrices += 1
        self.methods.add(sample.scheme.method)
        for place, (row, weights) in enumerate(zip(sample.rows, runs[sample.rows].double().tolist(), strict=True)):
            wrong = (sample.whole if place == 0 else "") or wrong_row(sample, place, weights)
            self.note(f"{sample.title}, row {row}", wrong)

    def note(self, where: str, wrong: str) -> None:
        """One comparison and what was wrong with it."""
        self.rows += 1
        if not wrong:
            self.right += 1
        elif not self.words:
            self.words = f"{where}: {wrong}."


def wrong_row(sample: Sample, place: int, runs: list[float]) -> str:
    """What is wrong with one row; "" if nothing."""
    scheme, before, kept = sample.scheme, sample.before[place], sample.kept[place]
    n, m = scheme.n_of_m
    # Methods that keep weights as they are have no values of their own.
    values = sample.values[place] if scheme.method == "sparsegpt" else before
    if m:
        wrong = wrong_pattern(kept, n, m)
    elif scheme.among == "row":
        wrong = wrong_count(sum(kept), len(kept), scheme.sparsity, "the row")
    else:
        wrong = ""
    if not wrong and (m or scheme.among == "row"):
        if scheme.method == "magnitude":
            wrong = wrong_choice(magnitudes(before), kept, m or len(kept))
        elif scheme.method == "wanda" and sample.mean_square is not None:
            wrong = wrong_choice(wanda_scores(before, sample.mean_square), kept, m or len(kept), NEAR)
    return wrong or wrong_values(kept, values, runs)


def wrong_whole(scheme: Scheme, weight: Tensor, mask: Tensor, before: list[list[float]], kept: list[list[bool]]) -> str:
    """The count of a whole mask; and by magnitude, whether the rows at hand fall on the right sides of the threshold.

    A weight goes if fewer weights of the matrix than go in all are smaller; one that stays has as many before it.
    """
    if scheme.among != "matrix":
        return ""
    total = counted_bits(pack_mask(mask).numpy().tobytes())
    wrong = wrong_count(total, mask.numel(), scheme.sparsity, "the mask")
    if wrong or scheme.method != "magnitude":
        return wrong
    pairs = [(abs(w), keep) for row, bits in zip(before, kept, strict=True) for w, keep in zip(row, bits, strict=True)]
    gone, left = [w for w, keep in pairs if not keep], [w for w, keep in pairs if keep]
    pruned, size = mask.numel() - total, weight.abs()
    if gone and int((size < max(gone)).sum()) >= pruned:
        return f"a weight of {max(gone):.6g} went, and {pruned:,} are smaller"
    if left and int((size <= min(left)).sum()) <= pruned:
        return f"a weight of {min(left):.6g} stayed, and fewer than {pruned:,} others are as small"
    return ""
