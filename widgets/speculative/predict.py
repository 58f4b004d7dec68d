"""What a visitor guesses before the `speculative` page: whether the draft pays."""

from __future__ import annotations

from lab.events import Recording
from lab.events.speculative import SpeculativeFigures
from lab.strings import Strings
from widgets.format import format_number, format_ratio, format_share
from widgets.front.prediction import Prediction
from widgets.numbers import capital
from widgets.speculative.figures import typeset

SAME = 0.05
"""Within this share of plain decoding's time it is neither faster nor slower."""


def prediction(recording: Recording, words: Strings) -> Prediction | None:
    """The question, from the run's figures; None where nothing was compared."""
    told = next((e for e in reversed(recording.events) if isinstance(e, SpeculativeFigures)), None)
    if told is None or told.measured is None or told.accept_judged is None or told.tokens_per_pass is None:
        return None
    answer = 0 if told.measured > 1 + SAME else 2 if told.measured < 1 - SAME else 1
    key = "speculative.prediction"
    options = words.all(f"{key}.options")
    average = words(f"{key}.average", gamma=format_number(told.mean_gamma, 2))
    why = words(f"{key}.why", verdict=capital(typeset(told.verdict)))
    return Prediction(
        text=words(
            f"{key}.text",
            proposed=told.gamma or average,
            accepted=format_share(told.accept_judged),
            each=format_number(told.tokens_per_pass),
        ),
        options=options,
        answer=answer,
        figure=words(f"{key}.figure", answer=options[answer], ratio=format_ratio(told.measured)),
        why=f"{why} {words(f'{key}.turns')}" if answer else why,
        badge="MEASURED",
    )
