"""Whether a draft fits a target, found out before the run and said in words.

Two models can share a run only if a token id means the same to both. Tokenizers are compared by content, never by
name: their vocabularies must be equal. The rows of the output matrix may differ beyond them: real models pad theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from torch import nn

from lab.decoding import cache_layout
from lab.decoding.drafts.base import Verdict
from lab.decoding.drafts.store.encode import tokenizer_hash
from lab.decoding.drafts.store.store import Store
from lab.decoding.llama_fits import why_not
from lab.decoding.room import RoomyLayer
from lab.errors import ModelError, shown

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

# Tokenizers found equal, with their sizes then: reading two vocabularies takes a fifth of a second, and a sweep makes
# a fresh draft for each run.
_equal: WeakKeyDictionary[Any, WeakKeyDictionary[Any, tuple[int, int]]] = WeakKeyDictionary()


def check_fit(target: LoadedModel, draft: LoadedModel) -> Verdict:
    """Whether another model can draft for `target`.

    Returns:
        A `Verdict` with the reason why not, "" if it fits, and notes: a padded vocabulary, another dtype, a shorter
        context, a draft larger than the target.
    """
    reason = _no_decoder(draft) or _other_vocabulary(target, draft) or _elsewhere(target, draft)
    return Verdict(reason) if reason else Verdict(notes=_notes(target, draft))


def check_store(target: LoadedModel, store: Store) -> Verdict:
    """Whether a store was made with the target's tokenizer."""
    if store.facts.tokenizer_sha256 == tokenizer_hash(target.tokenizer):
        return Verdict()
    return Verdict(
        f"The store of {store.facts.name} was made with the tokenizer of {store.facts.tokenizer}, and "
        f"{target.facts.name} has another one. Build it again for this model."
    )


def check_early_exit(target: LoadedModel, layers: int) -> Verdict:
    """Whether the target's first `layers` layers can draft for it."""
    whole = target.facts.layers
    if not 1 <= layers <= len(whole):
        return Verdict(f"{target.facts.name} has {len(whole)} layers, so its first {layers} cannot draft.")
    reason = why_not(target.model)
    if reason:
        return Verdict(f"A part of the layers of {target.facts.name} cannot be run alone: {reason}.")
    notes = ("All layers draft: all is accepted, and nothing is gained.",) if layers == len(whole) else ()
    return Verdict(notes=notes)


def check_tree(target: LoadedModel) -> Verdict:
    """Whether the target can verify a tree in one pass."""
    layers = cache_layout.new_cache(target.model, 1).layers
    all_full = all(isinstance(layer, RoomyLayer) for layer in layers)
    if not why_not(target.model) or (all_full and cache_layout.forward_takes(target.model, "position_ids")):
        return Verdict()
    return Verdict(
        f"{target.facts.name} cannot verify a tree in one pass: not all of its layers read the whole text, or it "
        "counts the positions itself."
    )


def vocab_rows(model: nn.Module) -> int:
    """How many logits a model gives for a token: its vocabulary and the padding."""
    shown_by: Any = getattr(model, "get_output_embeddings", None)
    head = shown_by() if shown_by is not None else None
    rows = getattr(head, "out_features", None)
    if rows is None:
        config: Any = model.config
        rows = config.get_text_config().vocab_size
    return int(rows)


def embedded_tokens(model: nn.Module) -> int:
    """How many token ids a model can read."""
    embedding: Any = model.get_input_embeddings()  # type: ignore[operator]
    return int(embedding.weight.shape[0])


def _no_decoder(draft: LoadedModel) -> str:
    try:
        cache_layout.new_cache(draft.model, 1)
    except ModelError as error:
        return f"{draft.facts.name} cannot draft. {error}"
    return ""


def _other_vocabulary(target: LoadedModel, draft: LoadedModel) -> str:
    if draft.tokenizer is target.tokenizer:
        return ""
    sizes = len(target.tokenizer), len(draft.tokenizer)
    known = _equal.setdefault(draft.tokenizer, WeakKeyDictionary())
    if known.get(target.tokenizer) == sizes:
        return ""
    ours, theirs = target.tokenizer.get_vocab(), draft.tokenizer.get_vocab()
    if ours == theirs:
        known[target.tokenizer] = sizes
        return ""
    by_id, by_their_id = ({number: token for token, number in vocab.items()} for vocab in (ours, theirs))
    differing = (n for n in range(max([*by_id, *by_their_id, 0]) + 1) if by_id.get(n) != by_their_id.get(n))
    first = next(differing, None)
    where = ""
    if first is not None:
        mine, other = (shown(v[first]) if first in v else "no token" for v in (by_id, by_their_id))
        where = f"; the first difference is at id {first:,}: {other} where {target.facts.name} has {mine}"
    return (
        f"{draft.facts.name} has another tokenizer than {target.facts.name}: {len(theirs):,} tokens instead of "
        f"{len(ours):,}{where}. A token id must mean the same to both: choose a draft of the same family."
    )


def _elsewhere(target: LoadedModel, draft: LoadedModel) -> str:
    if target.device == draft.device:
        return ""
    return (
        f"{draft.facts.name} is on {draft.device} and {target.facts.name} on {target.device}. Load both on one device."
    )


def _notes(target: LoadedModel, draft: LoadedModel) -> tuple[str, ...]:
    name, notes = draft.facts.name, []
    rows, their_rows = vocab_rows(target.model), vocab_rows(draft.model)
    if rows != their_rows:
        beyond = "what the draft gives beyond is left out" if their_rows > rows else "q is 0 beyond the draft's"
        notes.append(
            f"The vocabulary is padded differently: {name} gives {their_rows:,} logits, {target.facts.name} {rows:,}; "
            f"no token stands behind the difference, and {beyond}."
        )
    if draft.model is target.model:
        notes.append("The draft is the target itself: all is accepted, and nothing is gained.")
    elif draft.facts.parameters > target.facts.parameters:
        notes.append(
            f"{name} has {draft.facts.parameters:,} parameters, more than the {target.facts.parameters:,} of the "
            "target: it will cost more time than it saves."
        )
    if draft.dtype != target.dtype:
        notes.append(f"{name} runs in {_plain(draft.dtype)}, the target in {_plain(target.dtype)}.")
    if 0 < draft.facts.context < target.facts.context:
        notes.append(f"{name} reads at most {draft.facts.context:,} tokens: it proposes nothing beyond.")
    return tuple(notes)


def _plain(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")
