"""What two runs come to side by side, as data: texts as they are written, figures as they were told."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from widgets.comparison.cards import Difference
from widgets.comparison.told import Token


@dataclass(frozen=True)
class Side:
    """Who is compared.

    Attributes:
        model: its name. live: it was not read from a recording.
        recorded: when; "" for a live run, and for a recording that does not know.
        end: "finished", "running", or how it ended else, in words.
        beside: how many other runs had slices meanwhile; None where that is not known (yet).
    """

    model: str
    recorded: str
    end: str
    beside: int | None
    live: bool = True


@dataclass(frozen=True)
class FigurePair:
    """A figure of both runs.

    Attributes:
        a, b: None where a run does not have it. a_text, b_text: as written.
        against: B / A (`ratio`) or B − A; None where there is none.
        against_text: the same as written.
        note: what must be known of the comparison, in words: of times what ran beside, or why there is none.
    """

    id: str
    name: str
    a: float | None
    b: float | None
    a_text: str
    b_text: str
    ratio: bool
    against: float | None
    against_text: str
    a_badge: str
    b_badge: str
    note: str


@dataclass(frozen=True)
class SharedPlot:
    """A line of both runs on the same axes."""

    id: str
    title: str
    x: str
    y: str
    a: tuple[tuple[float | str, float], ...]
    b: tuple[tuple[float | str, float], ...]
    badges: tuple[str, str]
    joined: bool
    note: str

    @property
    def named(self) -> bool:
        """Whether the places are names, not numbers."""
        return any(isinstance(x, str) for x, _ in (*self.a, *self.b))


@dataclass(frozen=True)
class SharedText:
    """A text of both runs, token by token.

    Attributes:
        first: the index of the first token that differs or that one of them does not have; None: they are equal.
    """

    id: str
    title: str
    a: tuple[Token, ...]
    b: tuple[Token, ...]
    first: int | None

    @property
    def said(self) -> str:
        """How far both are the same, within a sentence."""
        shorter, longer = sorted((len(self.a), len(self.b)))
        if self.first is None:
            return f"the same {longer:,} token{'s' if longer != 1 else ''} in both"
        if self.first == shorter:
            name = "A" if len(self.a) < len(self.b) else "B"
            return f"the same as far as {name} goes ({shorter:,} of {longer:,} tokens)"
        return f"they differ from token {self.first + 1:,} on"


@dataclass(frozen=True)
class Comparison:
    """Two runs side by side.

    Attributes:
        cannot: what cannot be compared and why, in words.
        notes: what a reader must know of the figures.
    """

    experiment: str
    a: Side
    b: Side
    differences: tuple[Difference, ...]
    figures: tuple[FigurePair, ...]
    plots: tuple[SharedPlot, ...]
    texts: tuple[SharedText, ...]
    cannot: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def shared(self) -> bool:
        """Whether both runs have anything in common."""
        return bool(self.plots or self.texts or any(f.a is not None and f.b is not None for f in self.figures))

    def as_json(self) -> dict[str, Any]:
        """All of it as JSON data."""
        return {**asdict(self), "texts": [{**asdict(text), "said": text.said} for text in self.texts]}
