"""The merged model of a run, with its deliberate mistake, and entries of it computed again in plain Python."""

from __future__ import annotations

import math
import random
from collections.abc import Generator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from lab.errors import BadInput
from lab.experiments.compared.finding import Counted, Finding
from lab.experiments.compared.progress import Made, shares
from lab.experiments.lora.choices import BreakRun
from lab.lora.adapter import Adapter
from lab.lora.merge import MergedShell
from lab.models.linear import out_in, set_weight
from lab.models.shell import make_shell
from lab.steps import relay

ENTRIES_A_MATRIX = 8
CLAIM = "entries of the merged weights are W + s (B A), computed again in plain Python"
NOTHING_ELSE = "nothing but the adapted weights differs"
_HALF_ULP = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
_SUMMED = 2.0**-20
"""Relative to the sum of the terms' sizes: how far fp32 sums of them may be off."""


@dataclass
class Entries:
    """Entries of merged weights computed again so far."""

    seed: int
    compared: int = 0
    matched: int = 0
    matrices: int = 0
    words: str = ""
    worst: float = 0.0
    dtypes: set[str] = field(default_factory=set)

    def counted(self) -> Counted:
        """For the proof."""
        return Counted(
            claim=CLAIM,
            compared=self.compared,
            matched=self.matched,
            unit="weights",
            words=self.words,
            detail={"matrices": self.matrices, "worst_entry_error": self.worst, "dtypes": sorted(self.dtypes)},
        )


def merging(model: nn.Module, adapter: Adapter, factor: float, mistake: BreakRun, stage: str) -> Made[MergedShell]:
    """A shell of `model` with the adapter merged, the mistake in it."""
    shell = MergedShell(make_shell(model))
    yield None
    wrong = adapter
    if mistake == "scale_of_another_rank":
        wrong = replace(
            adapter,
            config=replace(adapter.config, alpha=adapter.config.alpha / 2),
            alphas={name: alpha / 2 for name, alpha in adapter.alphas.items()},
        )
    yield from relay(shell.merging(wrong, factor), shares(stage))
    if mistake in ("merged_twice", "transposed"):
        for name in adapter.tensors:
            module, update = shell.shell.get_submodule(name), adapter.delta(name, factor)
            if mistake == "merged_twice":
                values = out_in(module).float() + update.to(out_in(module).device)
            else:  # (in, out) read as if it were (out, in)
                base = out_in(model.get_submodule(name)).float()
                values = base + update.t().reshape(update.shape).to(base.device)
            set_weight(module, values)
            yield None
    return shell


def check_entries(
    entries: Entries, base: nn.Module, merged: nn.Module, adapter: Adapter, factor: float
) -> Generator[None, None, None]:
    """Some entries of each merged matrix: those where the update is large, and others at random."""
    for name in adapter.tensors:
        _check_matrix(entries, name, base, merged, adapter, factor)
        yield


def _check_matrix(
    entries: Entries, name: str, base: nn.Module, merged: nn.Module, adapter: Adapter, factor: float
) -> None:
    a, b = adapter.tensors[name]
    before, after = out_in(base.get_submodule(name)), out_in(merged.get_submodule(name))
    alpha, rank = adapter.alphas.get(name, adapter.config.alpha), a.shape[0]
    scale = factor * alpha / (math.sqrt(rank) if adapter.config.rslora else rank)
    dice = random.Random(f"{entries.seed} {adapter.name} {name}")  # noqa: S311 - chooses samples, keeps no secret
    entries.matrices += 1
    entries.dtypes.add(str(after.dtype).removeprefix("torch."))
    for row, column in _places(a, b, dice):
        left, right = b[row].tolist(), a[:, column].tolist()
        terms = [scale * x * y for x, y in zip(left, right, strict=True)]
        weight = float(before[row, column])
        wanted, found = weight + sum(terms), float(after[row, column])
        size = abs(weight) + sum(abs(term) for term in terms)
        allowed = _HALF_ULP.get(after.dtype, 2.0**-8) * abs(wanted) * 1.01 + _SUMMED * size
        entries.compared += 1
        off = abs(found - wanted)
        entries.worst = max(entries.worst, off / size if size else off)
        if off <= allowed:
            entries.matched += 1
        elif not entries.words:
            entries.words = (
                f"{name}, row {row}, column {column}: {weight:.6g} and an update of {sum(terms):.6g} "
                f"make {wanted:.6g}, and {found:.6g} runs."
            )


def _places(a: Tensor, b: Tensor, dice: random.Random) -> list[tuple[int, int]]:
    rows, columns = b.shape[0], a.shape[1]
    half = ENTRIES_A_MATRIX // 2
    largest = b.norm(dim=1).topk(min(half, rows)).indices.tolist()
    widest = a.norm(dim=0).topk(min(half, columns)).indices.tolist()
    found = [(largest[i % len(largest)], widest[i % len(widest)]) for i in range(half)]
    return found + [(dice.randrange(rows), dice.randrange(columns)) for _ in range(ENTRIES_A_MATRIX - half)]


def nothing_else(base: nn.Module, merged: nn.Module, adapter: Adapter) -> Finding:
    """Whether every tensor outside the adapted modules is the base's own, the very same memory or its bytes."""
    changed = {f"{name}.weight" for name in adapter.tensors}
    mine, theirs = base.state_dict(), merged.state_dict()
    for name, tensor in theirs.items():
        if name in changed:
            continue
        other = mine.get(name)
        if other is None or (other.data_ptr() != tensor.data_ptr() and not torch.equal(other, tensor)):
            return Finding(NOTHING_ELSE, "different", f"{name} is not the base's.")
    return Finding(NOTHING_ELSE, "equal", detail={"other_tensors": len(theirs.keys() - changed)})


def check_mistake(task: str, mistake: BreakRun) -> None:
    """Refuse a mistake that this task cannot make.

    Raises:
        BadInput: with the task that can.
    """
    if mistake == "base_trained" and task != "train":
        raise BadInput("Nothing is trained in this task, so the base cannot be.", remedy="Choose the task train.")
