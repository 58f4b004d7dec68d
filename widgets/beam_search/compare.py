"""What two runs of `beam_search` have to compare: the leading text's score as the search goes, its cost, the texts."""

from __future__ import annotations

from lab.events.beam_search import Hypothesis
from widgets.beam_search.figures import best_text
from widgets.beam_search.state import BeamState
from widgets.comparison.told import (
    BYTES,
    COUNT,
    MS,
    NUMBER,
    RATE,
    Line,
    Text,
    Token,
    Told,
    collect,
    figure,
)

STATE = BeamState
STEP = "new token"
MIB = 1024 * 1024


def told(state: BeamState) -> Told:
    """Figures after the newest step, lines over the steps, the best text and greedy's."""
    last = len(state.steps) - 1
    best, greedy = best_text(state, last), state.paths.get("greedy")
    newest = state.steps[last] if state.steps else None
    scale = f"length penalty {state.length_penalty:g}"
    leading = state.path(best.node if best else state.best_at(last))
    return collect(
        figures=(
            figure("score", "score of the best text", best.score if best else None, NUMBER, basis=scale),
            figure("log_prob", "log-probability of the best text", best.sum_log_prob if best else None, NUMBER),
            figure("length", "tokens of the best text", best.length if best else None, COUNT),
            figure("greedy", "score of greedy's text", greedy.score if greedy else None, NUMBER, basis=scale),
            figure("steps", "steps of the search", len(state.steps) or None, COUNT),
            figure("rate", "tokens of one text a second", state.rate_at(last), RATE),
            figure("search", "whole search", state.result.ms if state.result else None, MS),
            figure("bytes", "bytes in the cache at the end", newest.cache_bytes if newest else None, BYTES),
        ),
        lines=(
            Line("leading", "The best text that still runs", STEP, "sum of log-probabilities", _running(state)),
            Line("shelf", "The best finished text", STEP, "score", _shelved(state), basis=scale),
            Line(
                "ms",
                "A step of the search",
                STEP,
                "ms a step",
                tuple((i + 1, step.ms) for i, step in enumerate(state.steps) if i),
                timed=True,
            ),
        ),
        texts=(
            Text("best", "The best text", tuple(Token(n.token_id, n.text) for n in leading)),
            Text("greedy", "Greedy's text", _tokens(greedy.token_ids, greedy.texts) if greedy else ()),
        ),
    )


def _running(state: BeamState) -> tuple[tuple[float, float], ...]:
    """After each step the largest sum among the running texts."""
    sums = ((i + 1, [state.nodes[n].score for n in step.running]) for i, step in enumerate(state.steps))
    return tuple((i, max(found)) for i, found in sums if found)


def _shelved(state: BeamState) -> tuple[tuple[float, float], ...]:
    """After each step the best score on the shelf, from the first that finished."""
    best: list[tuple[int, Hypothesis]] = [(i + 1, step.shelf[0]) for i, step in enumerate(state.steps) if step.shelf]
    return tuple((i, found.score) for i, found in best)


def _tokens(ids: tuple[int, ...], texts: tuple[str, ...]) -> tuple[Token, ...]:
    return tuple(Token(i, text) for i, text in zip(ids, texts, strict=False))
