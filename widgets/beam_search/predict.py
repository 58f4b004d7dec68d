"""What a visitor guesses before the `beam_search` page: where the best text began among the first candidates."""

from __future__ import annotations

import math
from functools import partial

from lab.events import Recording
from lab.strings import Strings
from widgets.beam_search.state import BeamState
from widgets.format import format_ratio, format_share
from widgets.front.prediction import Prediction
from widgets.token_text import quoted

FAR = 5
"""A place this many times beyond the beams could not have been kept."""


def prediction(recording: Recording, words: Strings) -> Prediction | None:
    """The question, from the first step and the result; None where the run has no result or no greedy path."""
    state = BeamState()
    for event in recording.events:
        state.fold(event)
    best, greedy = state.best_hypothesis(), state.paths.get("greedy")
    path = state.path(best.node) if best else ()
    if best is None or greedy is None or not path:
        return None
    first, beams = path[0], state.num_beams
    place = first.rank + 1
    places = sorted({1, place, beams * FAR} | ({2} if place == 1 else set()))
    ratio = math.exp(min(700.0, best.sum_log_prob - sum(greedy.log_probs)))
    quote = partial(quoted, marks=words("page.quotes"))
    prompt = quote(str(recording.started.card.params.get("prompt", "")))
    key = "beam_search.prediction"
    return Prediction(
        text=words(f"{key}.text", prompt=prompt, beams=beams, first=quote(first.text)),
        options=tuple(words(f"{key}.place", place=p) for p in places),
        answer=places.index(place),
        figure=words(f"{key}.figure", place=place, share=format_share(math.exp(first.log_prob))),
        why=words(
            f"{key}.why",
            greedy=quote(greedy.texts[0]),
            greedy_share=format_share(math.exp(greedy.log_probs[0])),
            beams=beams,
            far=places[-1],
            length=best.length,
            ratio=format_ratio(ratio),
        ),
        badge="MEASURED",
    )
