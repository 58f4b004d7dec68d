"""Several adapters on one base: kept, switched, merged and deleted; what each takes, and what switching takes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lab.errors import BadInput, NotFound, shown
from lab.lora.adapter import Adapter, effectless
from lab.lora.attach import Attached
from lab.lora.merge import MergedShell, MergeFacts
from lab.models.shell import make_shell


@dataclass(frozen=True)
class Held:
    """One adapter in memory.

    Attributes:
        name, rank, parameters: its own.
        bytes: of its factors.
        share: parameters as a share of the matrices it adapts.
        without_effect: why it changes nothing; "" if it does.
    """

    name: str
    rank: int
    parameters: int
    bytes: int
    share: float
    without_effect: str


@dataclass(frozen=True)
class Switching:
    """Going from one adapter to another and back, on one text.

    Attributes:
        names: (A, B).
        switch_s: median time of setting the active adapter; nothing is copied.
        merge_s: median time of unmerging one and merging the other, the other way to switch.
        back_equal: whether A's logits are bit for bit the same after B.
        differ: max |logit of A - logit of B|: that the switch did something.
        merged_back_equal: the same as `back_equal` for the merged way.
    """

    names: tuple[str, str]
    switch_s: float
    merge_s: float
    back_equal: bool
    differ: float
    merged_back_equal: bool


class Shelf:
    """Adapters on one base, both ways: unmerged on one shell, merged on another.

    Args:
        model: shared and read-only.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.attached = Attached(make_shell(model))
        self.merging = MergedShell(make_shell(model))

    def add(self, adapter: Adapter) -> Held:
        """Keep one more.

        Raises:
            ModelError: it does not fit.
            BadInput: there is one of that name.
        """
        self.attached.add(adapter)
        return self._held(adapter)

    def merge(self, name: str, factor: float = 1.0) -> MergeFacts:
        """Merge one into the shell for that.

        Raises:
            NotFound: there is none of that name.
            BadInput: one is merged already.
        """
        return self.merging.merge(self._named(name), factor)

    def delete(self, name: str) -> str:
        """Forget one; if it was merged it is unmerged first, if it was active the base alone is. Gives that in words.

        Raises:
            NotFound: there is none of that name.
        """
        self._named(name)
        notes = []
        if self.merging.merged is not None and self.merging.merged.adapter == name:
            self.merging.unmerge()
            notes.append("It was merged: the weights from before were put back first.")
        if self.attached.active == name:
            notes.append("It was active: the base alone is now.")
        self.attached.remove(name)
        return " ".join(notes)

    def held(self) -> list[Held]:
        """All, in the order in which they came."""
        return [self._held(adapter) for adapter in self.attached.adapters.values()]

    def _named(self, name: str) -> Adapter:
        found = self.attached.adapters.get(name)
        if found is None:
            raise NotFound(f"There is no adapter {shown(name)} here.", remedy="Name one that was added.")
        return found

    def _held(self, adapter: Adapter) -> Held:
        return Held(
            name=adapter.name,
            rank=adapter.config.rank,
            parameters=adapter.parameters,
            bytes=adapter.bytes,
            share=adapter.share,
            without_effect=effectless(adapter, self.model),
        )


def switching(shelf: Shelf, first: str, second: str, ids: Sequence[int], rounds: int = 3) -> Switching:
    """Switch A, B, A on a text, both ways, and compare. What was active and merged before is so afterwards.

    Args:
        ids: token ids, at least one.
        rounds: 1 or more.

    Raises:
        NotFound: an adapter that is not on the shelf.
        BadInput: no ids, no rounds, or one adapter twice.
    """
    adapters = shelf.attached.adapters
    for name in (first, second):
        if name not in adapters:
            raise NotFound(f"There is no adapter {shown(name)} here.", remedy="Name one that was added.")
    if first == second or not ids or rounds < 1:
        raise BadInput("Switching takes two adapters, a text and at least one round.", remedy="Choose two adapters.")
    tokens = torch.tensor([list(ids)])
    before = shelf.attached.active
    switch_times: list[float] = []
    unmerged: list[Tensor] = []
    try:
        for _ in range(rounds):
            for name in (first, second):
                start = time.perf_counter()
                shelf.attached.active = name
                switch_times.append(time.perf_counter() - start)
                unmerged.append(_logits(shelf.attached.shell, tokens))
        shelf.attached.active = first
        unmerged.append(_logits(shelf.attached.shell, tokens))
    finally:
        shelf.attached.active = before
    merge_times, merged = _merged_way(shelf, adapters[first], adapters[second], tokens, rounds)
    return Switching(
        names=(first, second),
        switch_s=sorted(switch_times)[len(switch_times) // 2],
        merge_s=sorted(merge_times)[len(merge_times) // 2],
        back_equal=all(torch.equal(unmerged[0], again) for again in unmerged[2::2]),
        differ=float((unmerged[0] - unmerged[1]).abs().max()),
        merged_back_equal=torch.equal(merged[0], merged[-1]),
    )


def _merged_way(
    shelf: Shelf, first: Adapter, second: Adapter, tokens: Tensor, rounds: int
) -> tuple[list[float], list[Tensor]]:
    """On a shell of its own: what the shelf has merged stays."""
    merging = MergedShell(make_shell(shelf.model))
    merging.merge(first)
    logits = [_logits(merging.shell, tokens)]
    times = []
    for turn in range(2 * rounds):
        start = time.perf_counter()
        merging.unmerge()
        merging.merge(second if turn % 2 == 0 else first)
        times.append(time.perf_counter() - start)
    logits.append(_logits(merging.shell, tokens))
    return times, logits


def _logits(model: nn.Module, tokens: Tensor) -> Tensor:
    with torch.inference_mode():
        logits: Tensor = model(tokens.to(next(model.parameters()).device)).logits[0]
        return logits.float()
