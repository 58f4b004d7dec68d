"""Events of the same words by the dense model and by changed ones."""

from __future__ import annotations

from dataclasses import dataclass

from lab.events.base import Event
from lab.events.decoding import Candidate


@dataclass(frozen=True, kw_only=True)
class Variant(Event):
    """A model that the run compares with the dense one; "dense" itself comes first.

    Attributes:
        name: "dense", "weights", "cache", "activations", "everything"; "int8", "int8_dense_head", "int4", ...
        label: for a person.
        truth: "dense"; "simulated": dequantized weights run, no memory is saved; "packed": packed kernels run.
        notes: what must be known of it.
    """

    name: str
    label: str
    truth: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WordToken(Event):
    """A greedy token of one row.

    Attributes:
        variant: whose row. index: 0 is the first new token.
        p: its own probability. top: the most probable tokens. gap: between the two largest logits.
        is_end: it is an end token: the row ends here.
    """

    variant: str
    index: int
    token_id: int
    text: str
    p: float
    top: tuple[Candidate, ...]
    gap: float
    is_end: bool


@dataclass(frozen=True)
class WordCompared:
    """One position of the dense text as both models see it: what stands before it is the dense text for both.

    Attributes:
        index: of the new token; token_id and text are the dense row's.
        p, q: probability of that token by the dense model and by the other.
        kl: KL(dense || other) over the vocabulary at this position, nats.
        top: the other model's most probable tokens.
        flipped: its most probable one is another.
    """

    index: int
    token_id: int
    text: str
    p: float
    q: float
    kl: float
    top: tuple[Candidate, ...]
    flipped: bool


@dataclass(frozen=True, kw_only=True)
class WordsCompared(Event):
    """The dense text read by a variant, position by position.

    Attributes:
        words: in order of the text. order: indices into it, the most different (largest KL) first.
        first_difference: index of the first token at which the two greedy rows differ; -1 if they are equal.
        mean_kl: over positions, nats.
    """

    variant: str
    words: tuple[WordCompared, ...]
    order: tuple[int, ...]
    first_difference: int
    mean_kl: float
