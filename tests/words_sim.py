"""Rows of words by several models and their comparison, without a model. For tests of pages alone.

The structure is that of real runs, the figures are not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from lab.events import Event
from lab.events.decoding import Candidate
from lab.events.words import Variant, WordCompared, WordsCompared, WordToken

HOSTILE = "<img src=x onerror=window.X=1>"
WORDS = (" Jupiter", ",", " the", " fifth", " planet", " from", " the", " Sun", ".", "\n", "It", " is", " a", " gas")
OTHER = (" Jupiter", ",", " the", " largest", " of", " all", ".", "\n", "\n", "It", " has", HOSTILE, "\u202eabc", "")
LONG = WORDS + tuple(f" word{i}" for i in range(26))


def token_id(text: str) -> int:
    """An id that depends on the text alone."""
    return sum(ord(c) * (i + 1) for i, c in enumerate(text)) % 49_152


def top_of(text: str, p: float) -> tuple[Candidate, ...]:
    """Five candidates, `text` first."""
    rest = (" the", " a", HOSTILE, " Saturn")
    chances = (p, (1 - p) * 0.5, (1 - p) * 0.25, (1 - p) * 0.1, (1 - p) * 0.05)
    return tuple(Candidate(token_id(t), t, math.log(max(c, 1e-9))) for t, c in zip((text, *rest), chances, strict=True))


def row(variant: str, words: tuple[str, ...]) -> Iterator[WordToken]:
    """A greedy row."""
    for index, text in enumerate(words):
        p = 0.95 - 0.6 * abs(math.sin(index * 1.7))
        last = index == len(words) - 1 and text == ""
        yield WordToken(
            variant=variant,
            index=index,
            token_id=token_id(text),
            text=text,
            p=p,
            top=top_of(text, p),
            gap=p * 4,
            is_end=last,
        )


def compared(variant: str, words: tuple[str, ...], other: tuple[str, ...], size: float) -> WordsCompared:
    """The base's text `words`, read by a variant whose own row is `other`; `size`, 0 to 1, is how far it is off."""
    found = []
    for index, text in enumerate(words):
        p = 0.95 - 0.6 * abs(math.sin(index * 1.7))
        q = p * (1 - size * abs(math.cos(index * 2.3)))
        flipped = q < 0.4
        kl = p * math.log(p / q) + 0.01 * size
        top = top_of(" Saturn", 0.5) if flipped else top_of(text, q)
        found.append(WordCompared(index, token_id(text), text, p, q, kl, top, flipped))
    order = tuple(sorted(range(len(found)), key=lambda i: -found[i].kl))
    differ = [i for i, (a, b) in enumerate(zip(words, other, strict=False)) if a != b]
    return WordsCompared(
        variant=variant,
        words=tuple(found),
        order=order,
        first_difference=differ[0] if differ else -1,
        mean_kl=sum(w.kl for w in found) / len(found),
    )


def speaks(variant: Variant, words: tuple[str, ...], size: float | None = None) -> Iterator[Event]:
    """What a run tells of one variant: itself, its row and, where `size` is given, how it reads the base's `WORDS`."""
    yield variant
    yield from row(variant.name, words)
    if size is not None:
        yield compared(variant.name, WORDS, words, size)
