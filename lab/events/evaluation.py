"""Events of experiments that measure a changed model on text beside the dense one."""

from __future__ import annotations

from dataclasses import dataclass

from lab.events.base import Event


@dataclass(frozen=True)
class TextUsed:
    """A text that was measured or calibrated on.

    Attributes:
        role: "calibration" or "held-out".
        name: where it comes from, in words.
        hash: the first 12 hex digits of the sha256 of the text that those tokens cover.
        tokens: how many are used.
    """

    role: str
    name: str
    hash: str
    tokens: int


@dataclass(frozen=True, kw_only=True)
class TextsChosen(Event):
    """The texts of the run; no token is in two of them."""

    texts: tuple[TextUsed, ...]


@dataclass(frozen=True)
class Divergence:
    """A changed model beside the dense one on the same held-out positions.

    Attributes:
        kl: mean over positions of KL(dense || changed) = sum p log(p / q) over the vocabulary, in nats.
        worst_kl: the largest of one position.
        flips: positions whose most probable token is another one. positions: all of them.
        perplexity, dense_perplexity: exp of the mean of -log p of the text's own tokens; None: "n/a", no token had
            one before it.
        bits_per_byte, dense_bits_per_byte: the same as bits for a UTF-8 byte of the text.
        text_hash: see `TextUsed.hash`.
    """

    kl: float
    worst_kl: float
    flips: int
    positions: int
    perplexity: float | None
    dense_perplexity: float | None
    bits_per_byte: float | None
    dense_bits_per_byte: float | None
    text_hash: str
