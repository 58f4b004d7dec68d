"""What runs that time several variants of a model have in common: speed, memory, decode steps, words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from widgets.comparison.told import BYTES, MS, SPEEDUP, Line, Quantity, Text, Token, figure

Parts = tuple[list[Quantity | None], list[Line], list[Text]]


class Step(Protocol):
    """A decode step of one variant as events tell it."""

    @property
    def index(self) -> int: ...

    @property
    def token_id(self) -> int: ...

    @property
    def text(self) -> str: ...

    @property
    def ms(self) -> float: ...


class Figures(Protocol):
    """What a variant came to."""

    @property
    def decode_ms(self) -> float: ...

    @property
    def speedup(self) -> float: ...

    @property
    def resident_bytes(self) -> int: ...


def variant_parts(
    label: Callable[[str], str], figures: Mapping[str, Figures], rows: Mapping[str, Sequence[Step]]
) -> Parts:
    """Each variant, by its name; `label` names it for a person."""
    found: list[Quantity | None] = []
    for name, of in figures.items():
        what = label(name) or name
        found += [
            figure(f"decode {name}", f"decode step, median: {what}", of.decode_ms, MS),
            figure(f"speedup {name}", f"faster than dense: {what}", of.speedup, SPEEDUP),
            figure(f"resident {name}", f"weights in memory: {what}", of.resident_bytes, BYTES),
        ]
    lines, texts = [], []
    for name, row in rows.items():
        what = label(name) or name
        points = tuple((t.index + 1, t.ms) for t in row if t.index)
        lines.append(Line(f"ms {name}", f"A decode step: {what}", "new token", "ms a step", points, timed=True))
        texts.append(Text(f"row {name}", f"Words: {what}", tuple(Token(t.token_id, t.text) for t in row)))
    return found, lines, texts
