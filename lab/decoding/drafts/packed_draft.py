"""The model itself with packed weights as draft: int8 or int4, with a pass and a cache of its own.

It agrees with the target far more often than any other draft, and costs far more.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from torch import nn

from lab.decoding.choose_pass import choose_pass
from lab.decoding.distribution import Distribution
from lab.decoding.drafts.base import Proposal, Sight
from lab.decoding.drafts.chain import ModelChain
from lab.errors import ModelError
from lab.quantization.packed.pack import Bits, Packed, packing

if TYPE_CHECKING:
    from lab.decoding.drafts.choose import Source, Stage, Wish
    from lab.models.loading import LoadedModel

MIB = 1024 * 1024


class PackedDraft:
    """Proposes what the packed model says.

    Args:
        shell: the packed variant; read, not changed.
        capacity: positions the run may reach.
        name: "int8" or "int4".
    """

    wants_features = False

    def __init__(self, shell: nn.Module, capacity: int, name: str) -> None:
        self.name = name
        self._chain = ModelChain(choose_pass(shell, capacity, layers=(), fast=None, mistake="nothing"))

    def warm(self, ids: list[int]) -> Generator[None, None, None]:
        """Send the prompt through in slices. See `ModelChain.warm`."""
        yield from self._chain.warm(ids)

    def propose(self, sight: Sight, count: int, distribution: Distribution) -> Proposal:
        """At most `count` tokens with the distributions they were drawn from. Must run inside inference mode."""
        return self._chain.propose(sight, count, distribution)

    def settle(self, sight: Sight, accepted: int) -> None:
        """Forget what does not stand."""
        del accepted
        self._chain.settle(sight)

    def rewind(self, sight: Sight) -> None:
        """Go back to a shorter text; see `ModelChain.rewind`."""
        self._chain.rewind(sight.ids)

    def cache_bytes(self) -> tuple[int, int]:
        """Bytes that its cache holds, and positions."""
        return self._chain.cache_bytes()


def packed_source(target: LoadedModel, wish: Wish) -> Generator[Stage, None, Source]:
    """Pack the target, a matrix a slice, and say what came of it.

    Raises:
        ModelError: the target is not on the CPU.
        BadInput: none of its matrices fits a packed kernel.
    """
    from lab.decoding.drafts.choose import TITLES, Source, Stage

    if target.device.type != "cpu":
        raise ModelError(
            f"Packed weights run on the CPU only; this model is on {target.device}.", remedy="Load it on the CPU."
        )
    bits: Bits = 8 if wish.name == "int8" else 4
    steps = packing(target.model, bits)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            packed: Packed = end.value
            break
        yield Stage(f"packing to {wish.name}")
    notes = [f"{packed.resident_bytes / MIB:.0f} MiB packed, scales counted, beside the target's own weights."]
    if target.facts.tied:
        notes.append("The head is packed; the embedding, which it is tied to, stays as it is.")
    if target.facts.grid:
        notes.append(f"The weights came from a grid of 4 bits ({target.facts.grid}), which flatters low-bit drafts.")
    notes += [f"{name} is not packed: {why}." for name, why in packed.skipped]
    name = wish.name
    return Source(
        name, TITLES[name], lambda room: PackedDraft(packed.shell, room, name), tuple(notes), packed.resident_bytes
    )
