"""What a visitor guesses before the `beam_search` page: where the best text began among the first candidates."""

from __future__ import annotations

import math

from lab.events import Recording
from widgets.beam_search.state import BeamState
from widgets.format import format_ratio, format_share
from widgets.front.prediction import Prediction
from widgets.token_text import quoted

FAR = 5
"""A place this many times beyond the beams could not have been kept."""


def prediction(recording: Recording) -> Prediction | None:
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
    prompt = quoted(str(recording.started.card.params.get("prompt", "")))
    return Prediction(
        text=f"After {prompt} the best text of {beams} beams begins with {quoted(first.text)}. Which place had that "
        "token among the candidates for the first step?",
        options=tuple(f"{_ordinal(p)} place" for p in places),
        answer=places.index(place),
        figure=f"{_ordinal(place)} place, {format_share(math.exp(first.log_prob))}",
        why=f"Greedy takes {quoted(greedy.texts[0])} ({format_share(math.exp(greedy.log_probs[0]))}) and can never go "
        f"back. {beams} beams keep {beams} beginnings, so the {_ordinal(places[-1])} had no chance. After "
        f"{best.length} tokens the beams’ text has {format_ratio(ratio)} the probability of greedy’s.",
        badge="MEASURED",
    )


def _ordinal(n: int) -> str:
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"
