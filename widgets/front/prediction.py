"""A question to answer before looking, whose answer comes from a recorded run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

from lab.strings import Strings
from widgets.figure import BADGES


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One question: three or so answers to choose from, or a number to type.

    Attributes:
        text: the question; `backticks` mark code.
        figure: what the run says, short: "2.59 MiB".
        why: the sentences that explain it.
        badge: where the figure comes from, one of `BADGES`.
        options: answers to choose from; empty where a number is typed.
        answer: index of the right option.
        value: the number that is right, in `unit`; None where one chooses.
        near: relative distance from `value` that still counts as right.

    Raises:
        ValueError: neither or both kinds of answer, an index without an option, a number that is not finite, an unknown
            badge.
    """

    text: str
    figure: str
    why: str
    badge: str
    options: tuple[str, ...] = ()
    answer: int = -1
    value: float | None = None
    unit: str = ""
    near: float = 0.05

    def __post_init__(self) -> None:
        if bool(self.options) == (self.value is not None):
            raise ValueError("a prediction has options or a value, one of the two")
        if self.options and not (0 <= self.answer < len(self.options) and len(set(self.options)) == len(self.options)):
            raise ValueError(f"answer {self.answer} is none of {self.options}; options differ and one of them is right")
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError(f"{self.value} is no number to guess")
        if self.badge not in BADGES:
            raise ValueError(f"badge {self.badge!r}; say {' or '.join(BADGES)}")


def rich(text: str) -> str:
    """`text` as HTML, escaped; `backticks` mark code."""
    return "".join(f"<code>{escape(p)}</code>" if i % 2 else escape(p) for i, p in enumerate(text.split("`")) if p)


def prediction_html(name: str, prediction: Prediction, words: Strings) -> str:
    """The question as HTML. `front_page.js` checks the answers; without it the answer can be opened."""
    told = (
        f'<details class="lab-told"><summary>{escape(words("front.told"))}</summary>'
        f'<p class="lab-told-figure"><b>{escape(prediction.figure)}</b> '
        f'<span class="lab-badge" data-badge="{prediction.badge}">{prediction.badge}</span></p>'
        f"<p>{rich(prediction.why)}</p></details>"
    )
    label = f"ask-{name}"
    return (
        f'<div class="lab-ask" data-ask="{escape(name)}" data-figure="{escape(prediction.figure)}">'
        f'<p id="{label}">{rich(prediction.text)}</p>{_answers(prediction, label, words)}'
        f'<p class="lab-checked" role="status"></p>{told}</div>'
    )


def _answers(prediction: Prediction, label: str, words: Strings) -> str:
    if prediction.value is not None:
        field = f"{label}-field"
        return (
            f'<form class="lab-typed" data-value="{prediction.value!r}" data-near="{prediction.near!r}">'
            f'<input id="{field}" type="text" inputmode="decimal" autocomplete="off" '
            f'aria-labelledby="{label} {field}-unit">'
            f'<span id="{field}-unit">{escape(prediction.unit)}</span>'
            f'<button type="submit" class="lab-small">{escape(words("front.check"))}</button></form>'
        )
    buttons = "".join(
        f'<button type="button" aria-pressed="false"{" data-right" if i == prediction.answer else ""}>'
        f"{escape(option)}</button>"
        for i, option in enumerate(prediction.options)
    )
    return f'<div class="lab-chips" role="group" aria-labelledby="{label}">{buttons}</div>'
