"""Where the three errors rank two settings differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.events.evaluation import Divergence
from lab.events.quantization import RankingNote

CLEAR = 1.02
"""A measure ranks two settings only where one is worse by this factor."""


@dataclass(frozen=True)
class Ranked:
    """A setting and its errors; None: not measured."""

    label: str
    weight_error: float | None
    output_error: float | None
    divergence: Divergence


def measures(one: Ranked) -> dict[str, float | None]:
    """By name, the smaller the better."""
    d = one.divergence
    return {
        "weight error": one.weight_error,
        "output error": one.output_error,
        "KL divergence": d.kl,
        "flipped tokens": float(d.flips),
        "perplexity": d.perplexity,
    }


def disagreement(ranked: Sequence[Ranked]) -> RankingNote | None:
    """The first pair of settings that one measure ranks one way and another the other way; None if there is none.

    KL divergence, flips and perplexity beside the two errors of the layer: among themselves they may differ by chance.
    """
    for i, first in enumerate(ranked):
        for second in ranked[i + 1 :]:
            ours, theirs = measures(first), measures(second)
            better = {"first": list[str](), "second": list[str]()}
            for name, value in ours.items():
                other = theirs[name]
                if value is None or other is None:
                    continue
                if value * CLEAR < other:
                    better["first"].append(name)
                elif other * CLEAR < value:
                    better["second"].append(name)
            if _crossed(better["first"], better["second"]):
                return RankingNote(
                    first=first.label,
                    second=second.label,
                    better_first=tuple(better["first"]),
                    better_second=tuple(better["second"]),
                    words=_words(first, second, better["first"], better["second"]),
                )
    return None


def _crossed(first: Sequence[str], second: Sequence[str]) -> bool:
    """Weight against output, or a layer's error against that of the whole model."""
    for one, other in ((first, second), (second, first)):
        if "weight error" in one and ("output error" in other or "KL divergence" in other):
            return True
        if "output error" in one and "KL divergence" in other:
            return True
    return False


def _words(first: Ranked, second: Ranked, ours: Sequence[str], theirs: Sequence[str]) -> str:
    def said(names: Sequence[str]) -> str:
        values, others = measures(first), measures(second)
        return " and ".join(f"{name} ({values[name]:.3g} against {others[name]:.3g})" for name in names)

    return f"By {said(ours)} {first.label} is better, by {said(theirs)} it is {second.label}."
