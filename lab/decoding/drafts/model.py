"""Another model as draft: it has a cache of its own and speaks the same tokens.

Source: speculative decoding (Leviathan et al. 2023, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

from torch import nn

from lab.decoding.choose_pass import choose_pass
from lab.decoding.distribution import Distribution
from lab.decoding.drafts.base import Proposal, Sight
from lab.decoding.drafts.chain import ModelChain
from lab.decoding.drafts.fit import check_fit, embedded_tokens, vocab_rows
from lab.errors import BadInput, ModelError
from lab.models.registry import load_model

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

CAPACITY = 4096
"""Positions that a draft makes room for where nothing else is said."""


def load_draft(
    model_id: str, target: LoadedModel, progress: Callable[[str, float | None], None] | None = None
) -> LoadedModel:
    """Load the model that drafts for `target`, in the target's dtype and on its device, and check that it fits.

    The target's own id gives the target itself: its weights are not loaded twice.

    Args:
        model_id: a packaged name, a directory, a GGUF file or a hub id.
        progress: told each stage and the fraction of it that is done.

    Raises:
        NotEnoughMemory: it will not fit beside the target.
        ModelError: it cannot be found, fetched or read, or does not fit; the reason is named.
    """
    if not model_id.strip():
        raise BadInput(
            "No draft model is named.", remedy="Name a packaged model, a directory, a GGUF file or a hub id."
        )
    if model_id.strip() == target.facts.id:
        draft = target
    else:
        dtype = str(target.dtype).removeprefix("torch.")
        draft = load_model(model_id, dtype=dtype, device=str(target.device), progress=progress)
    verdict = check_fit(target, draft)
    if verdict.reason:
        raise ModelError(verdict.reason, remedy="Choose another draft.")
    return draft


class ModelDraft:
    """Proposes what another model says.

    Args:
        loaded: the draft; read, not changed. It may be the target itself.
        target: the model that verifies.
        capacity: positions the run may reach, at most; None: 4,096. Nothing is proposed beyond, nor beyond what
            the draft can read.

    Raises:
        ModelError: it does not fit; see `check_fit`.
    """

    name = "model"
    wants_features = False

    def __init__(self, loaded: LoadedModel, target: LoadedModel, *, capacity: int | None = None) -> None:
        verdict = check_fit(target, loaded)
        if verdict.reason:
            raise ModelError(verdict.reason, remedy="Choose another draft.")
        self.notes = verdict.notes
        self._loaded, self._target = loaded, target
        room = min(capacity or CAPACITY, loaded.facts.context or CAPACITY)
        runner = choose_pass(loaded.model, room, layers=(), fast=None, mistake="nothing")
        self._chain = ModelChain(
            runner, vocab=vocab_rows(target.model), known=embedded_tokens(loaded.model), context=room
        )

    def warm(self, ids: Sequence[int]) -> Generator[None, None, None]:
        """Send the prompt through in slices, so that the first `propose` is short. See `ModelChain.warm`."""
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

    def memory_bytes(self) -> int:
        """Bytes of its weights, without those it shares with the target."""
        shared, own = _storages(self._target.model), _storages(self._loaded.model)
        return sum(size for where, size in own.items() if where not in shared)


def _storages(model: nn.Module) -> dict[int, int]:
    """Address and bytes of the memory behind all tensors of a model."""
    tensors = (*model.parameters(), *model.buffers())
    return {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
