"""From what was asked for to a draft: checked against the target, made ready in slices, fresh for each run.

Each draft's file is imported when that draft is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from lab.decoding.drafts.base import Draft
from lab.decoding.windows import most_gamma
from lab.errors import BadInput, LabError, ModelError
from lab.events import ModelFacts

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

DraftName = Literal["eagle", "lookup_eagle", "lookup", "retrieval", "int8", "int4", "early_exit", "model"]

TITLES: dict[str, str] = {
    "eagle": "trained head (EAGLE-style)",
    "lookup_eagle": "look-up, else the trained head",
    "lookup": "prompt look-up",
    "retrieval": "retrieval from a text store",
    "int8": "the model itself in int8",
    "int4": "the model itself in int4",
    "early_exit": "the model's first layers",
    "model": "another model",
}
LLAMA = "LlamaForCausalLM"


@dataclass(frozen=True)
class Wish:
    """Which draft, and its settings; those of other drafts do not matter.

    Attributes:
        exit_layer: layers of "early_exit". ngram: longest run of "lookup". draft_model: id of "model".
        store, store_text: of "retrieval"; both empty: Python's help topics. tree: propose a tree.
    """

    name: DraftName
    exit_layer: int = 20
    ngram: int = 3
    draft_model: str = ""
    store: str = ""
    store_text: str = ""
    tree: bool = False


@dataclass(frozen=True)
class Stage:
    """What is being made ready, and the fraction that is done; None if unknown."""

    words: str
    fraction: float | None = None


@dataclass(frozen=True)
class Source:
    """Makes a fresh draft for each run; the heavy parts are shared.

    Attributes:
        fresh: from the positions that a run may reach to a draft.
        title: for a person. notes: what a person should know. bytes: memory beyond the target.
        most: tokens it can propose in a round, see `most_gamma`; None: as many as are asked for.
    """

    name: DraftName
    title: str
    fresh: Callable[[int], Draft]
    notes: tuple[str, ...] = ()
    bytes: int = 0
    details: dict[str, str] = field(default_factory=dict)
    most: int | None = None


def why_not(facts: ModelFacts, wish: Wish) -> str:
    """Why this draft cannot work with a model, as far as its facts tell; "" if nothing speaks against it."""
    name = facts.name
    if wish.name in ("eagle", "lookup_eagle"):
        return _no_head(facts)
    if wish.name == "early_exit":
        if facts.architecture != LLAMA:
            return f"A part of the layers of {name} ({facts.architecture}) cannot be run alone: it is no {LLAMA}."
        if wish.exit_layer > len(facts.layers):
            return f"The draft would be the first {wish.exit_layer} layers, and {name} has {len(facts.layers)}."
    if wish.name == "model" and not wish.draft_model.strip():
        return "No draft model is named."
    if wish.name == "retrieval" and wish.store.strip() and wish.store_text.strip():
        return "The store was given both a path and a text."
    if wish.name == "retrieval" and wish.tree and any(layer.kind != "full" for layer in facts.layers):
        return f"{name} cannot verify a tree in one pass: not all of its layers read the whole text."
    return ""


def check(facts: ModelFacts, wish: Wish) -> None:
    """Refuse before the run what cannot work.

    Raises:
        BadInput: with the reason in words.
    """
    reason = why_not(facts, wish)
    if reason:
        remedy = "Choose another draft."
        if wish.name == "early_exit" and facts.architecture == LLAMA:
            remedy = f"Choose 1 to {len(facts.layers)} layers."
        elif wish.name == "model":
            remedy = "Name a packaged model, a directory, a GGUF file or a hub id with the same tokenizer."
        elif wish.name == "retrieval":
            remedy = "Verify a chain instead." if wish.tree and "tree" in reason else "Give one of them."
        raise BadInput(reason, remedy=remedy)


def make_ready(target: LoadedModel, wish: Wish) -> Generator[Stage, None, Source]:
    """Load or build what the draft needs, in slices.

    Raises:
        BadInput: it cannot work with this model, see `check`.
        ModelError: its files are missing or do not fit the target; the reason is named.
    """
    check(target.facts, wish)
    yield Stage(f"making the draft ready: {TITLES[wish.name]}")
    return (yield from _MAKERS[wish.name](target, wish))


Maker = Callable[["LoadedModel", Wish], Generator[Stage, None, Source]]


def _eagle(target: LoadedModel, wish: Wish) -> Generator[Stage, None, Source]:
    from lab.decoding.drafts.eagle.store import load_head
    from lab.decoding.drafts.eagle_draft import EagleDraft
    from lab.decoding.drafts.lookup import LookupDraft
    from lab.decoding.drafts.lookup_then_head import LookupThenHead

    head = load_head(target)
    yield Stage("the head is loaded")
    size = sum(p.nbytes for p in head.parameters()) + head.output.nbytes
    notes = (f"It can say {len(head.rows):,} of {head.vocab:,} tokens; the others have q = 0.",)
    ends = tuple(target.end_token_ids)

    def fresh(capacity: int) -> Draft:
        draft = EagleDraft(head, capacity)
        return LookupThenHead(LookupDraft(wish.ngram, ends), draft) if wish.name == "lookup_eagle" else draft

    return Source(wish.name, TITLES[wish.name], fresh, notes, size)


def _lookup(target: LoadedModel, wish: Wish) -> Generator[Stage, None, Source]:
    from lab.decoding.drafts.lookup import LookupDraft

    yield from ()
    ends = tuple(target.end_token_ids)
    return Source("lookup", TITLES["lookup"], lambda _: LookupDraft(wish.ngram, ends))


def _retrieval(target: LoadedModel, wish: Wish) -> Generator[Stage, None, Source]:
    from lab.decoding.drafts.fit import check_store, check_tree
    from lab.decoding.drafts.retrieval import RetrievalDraft
    from lab.decoding.drafts.store.build import open_store

    if wish.tree and (reason := check_tree(target).reason):  # before the store is built: that takes a while
        raise BadInput(reason, remedy="Verify a chain instead.")
    opening = open_store(
        target.tokenizer, tokenizer_name=target.facts.name, path=wish.store.strip(), text=wish.store_text
    )
    while True:
        try:
            said = next(opening)
        except StopIteration as end:
            store = end.value
            break
        yield Stage(said.stage, said.fraction)
    verdict = check_store(target, store)
    if verdict.reason:
        raise ModelError(verdict.reason, remedy="Choose another store.")
    notes = (f"{store.facts.name}: {store.facts.tokens:,} tokens.", *store.notes)
    return Source(
        "retrieval", TITLES["retrieval"], lambda _: RetrievalDraft(store, tree=wish.tree), notes, store.nbytes
    )


def _packed(target: LoadedModel, wish: Wish) -> Generator[Stage, None, Source]:
    from lab.decoding.drafts.packed_draft import packed_source

    return (yield from packed_source(target, wish))


def _early_exit(target: LoadedModel, wish: Wish) -> Generator[Stage, None, Source]:
    from lab.decoding.drafts.early_exit import EarlyExitDraft

    yield from ()
    notes = [f"The first {wish.exit_layer} of {len(target.facts.layers)} layers; the cache is shared."]
    if wish.exit_layer == len(target.facts.layers):
        notes.append("That is the whole model: all is accepted, and nothing is gained.")
    return Source("early_exit", TITLES["early_exit"], lambda _: EarlyExitDraft(wish.exit_layer), tuple(notes))


def _model(target: LoadedModel, wish: Wish) -> Generator[Stage, None, Source]:
    from lab.decoding.drafts.model import ModelDraft, load_draft

    yield Stage(f"loading {wish.draft_model}")
    loaded = load_draft(wish.draft_model, target)
    yield Stage("the draft model is loaded")
    first = ModelDraft(loaded, target, capacity=1)
    title = f"{TITLES['model']}: {loaded.facts.name}"
    return Source(
        "model",
        title,
        lambda room: ModelDraft(loaded, target, capacity=room),
        first.notes,
        first.memory_bytes(),
        most=most_gamma(loaded.facts),
    )


_MAKERS: dict[str, Maker] = {
    "eagle": _eagle,
    "lookup_eagle": _eagle,
    "lookup": _lookup,
    "retrieval": _retrieval,
    "int8": _packed,
    "int4": _packed,
    "early_exit": _early_exit,
    "model": _model,
}


def _no_head(facts: ModelFacts) -> str:
    from lab.decoding.drafts.eagle.store import PACKAGED, read_card

    try:
        card = read_card(PACKAGED)
    except LabError as error:
        return error.message
    if card.weight_hash != facts.weight_hash:
        return (
            f"The trained head drafts for {card.target} (weights {card.weight_hash[:12]}); {facts.name} has the "
            f"weights {facts.weight_hash[:12] or 'unknown'}."
        )
    return ""
