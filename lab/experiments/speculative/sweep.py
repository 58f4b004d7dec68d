"""The task "sweep": the same prompt and draft with more and more tokens proposed."""

from __future__ import annotations

from contextlib import closing

from lab.decoding.speculative.figures import Tally
from lab.decoding.windows import most_gamma
from lab.events import Progress
from lab.events.speculative import DraftReady, SweepPoint
from lab.experiments.base import Outcome, RunGenerator
from lab.experiments.reading import read_prompt
from lab.experiments.speculative.counted import figures_event
from lab.experiments.speculative.measure import Measured
from lab.experiments.speculative.pair import Took
from lab.experiments.speculative.params import MAX_GAMMA
from lab.experiments.speculative.ready import draft_ready
from lab.experiments.speculative.setup import Plan, Setup
from lab.models.prompts import TextStream, token_texts

GAMMAS = (1, 2, 3, 4, 5, 6, 8, 12, MAX_GAMMA)


def sweep(setup: Setup) -> RunGenerator:
    """Yield a point for each gamma; the outcome holds the last text."""
    prompt_ids = yield from read_prompt(setup.loaded, setup.params, TextStream(setup.loaded.tokenizer))
    source = yield from draft_ready(setup)
    yield DraftReady(draft=source.name, title=source.title, notes=source.notes, bytes=source.bytes)
    measured, took = Measured(setup), Took()
    limits = [most for most in (most_gamma(setup.loaded.facts), source.most) if most is not None]
    gammas = [gamma for gamma in GAMMAS if gamma <= min(limits, default=MAX_GAMMA)]
    for number, gamma in enumerate(gammas):
        yield Progress(stage=f"proposing {gamma} at a time", done=number, total=len(gammas))
        tally, plain_ms = Tally(source.name, gamma), list[float]()
        with closing(measured.pair(Plan(source, gamma), prompt_ids, (tally,), (plain_ms,))) as running:
            took = yield from running
        yield SweepPoint(gamma=gamma, figures=figures_event(tally, plain_ms))
    yield Progress(stage="done", done=len(gammas), total=len(gammas))
    yield measured.proof()
    text = "".join(token_texts(setup.loaded.tokenizer, took.token_ids))
    return Outcome(token_ids=tuple(took.token_ids), text=text)
