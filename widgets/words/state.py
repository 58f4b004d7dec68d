"""The part of a run's state that holds the words of several models."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from lab.events import Event
from lab.events.words import Variant, WordsCompared, WordToken
from widgets.run_state import TaskState
from widgets.words.naming import Naming


@dataclass
class WordsState(TaskState):
    """A state with rows of words; one below it sets `naming` and passes on what it does not know in `take`.

    Attributes:
        variants: by name, in the order in which they came.
        words: greedy tokens by variant, in order.
        compared: the base's text read by a variant.
    """

    naming: ClassVar[Naming] = Naming(base="dense", changed="changed")

    variants: dict[str, Variant] = field(default_factory=dict)
    words: dict[str, list[WordToken]] = field(default_factory=dict)
    compared: dict[str, WordsCompared] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        """Take in an event of words."""
        match event:
            case Variant():
                self.variants[event.name] = event
            case WordToken():
                self.words.setdefault(event.variant, []).append(event)
            case WordsCompared():
                self.compared[event.variant] = event
            case _:
                super().take(event)

    @property
    def word_steps(self) -> int:
        """New tokens of the longest row so far."""
        return max((len(row) for row in self.words.values()), default=0)

    @property
    def others(self) -> list[Variant]:
        """The variants beside the base, in the order in which they came."""
        return [v for v in self.variants.values() if v.name != self.naming.base]

    def both(self, name: str, upto: int) -> tuple[list[WordToken], list[WordToken]]:
        """The base's row and that of a variant up to new token `upto`."""
        base, other = (self.words.get(row, [])[: upto + 1] for row in (self.naming.base, name))
        return base, other

    def label(self, name: str) -> str:
        """A variant's label; "" where none was told."""
        return self.variants[name].label if name in self.variants else ""
