"""What a visitor guesses before the `speculative` page: whether the draft pays."""

from __future__ import annotations

from lab.events import Recording
from lab.events.speculative import SpeculativeFigures
from widgets.format import format_number, format_ratio, format_share
from widgets.front.prediction import Prediction
from widgets.numbers import capital

SAME = 0.05
"""Within this share of plain decoding's time it is neither faster nor slower."""
OPTIONS = ("faster", "about the same", "slower")


def prediction(recording: Recording) -> Prediction | None:
    """The question, from the run's figures; None where nothing was compared."""
    told = next((e for e in reversed(recording.events) if isinstance(e, SpeculativeFigures)), None)
    if told is None or told.measured is None or told.accept_judged is None or told.tokens_per_pass is None:
        return None
    answer = 0 if told.measured > 1 + SAME else 2 if told.measured < 1 - SAME else 1
    proposed = f"{told.gamma} tokens" if told.gamma else f"{format_number(told.mean_gamma, 2)} tokens on average"
    return Prediction(
        text=f"A small draft proposes {proposed} a round. The model accepts {format_share(told.accept_judged)} of "
        f"those that it judges and so writes {format_number(told.tokens_per_pass)} tokens a pass. Is that faster than "
        "one token a pass?",
        options=OPTIONS,
        answer=answer,
        figure=f"{OPTIONS[answer]}, {format_ratio(told.measured)}",
        why=f"{capital(told.verdict)} More tokens a pass are not enough: proposing and checking must cost less than "
        "the passes that they save." + (" Another draft, or an easier text, may turn it round." if answer else ""),
        badge="MEASURED",
    )
