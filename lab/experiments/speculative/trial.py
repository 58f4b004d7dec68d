"""The task "trial": is what comes out exactly the model's distribution? Many draws, and a test that can fail."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lab.decoding import cache_layout
from lab.decoding.choose_pass import choose_pass
from lab.decoding.distribution import Distribution
from lab.decoding.drafts.base import Draft, Sight
from lab.decoding.drafts.choose import Source
from lab.decoding.passes import TransformersPass
from lab.decoding.speculative.again import AgainRounds
from lab.decoding.speculative.bars import shares_between
from lab.decoding.speculative.identity import emitted, largest_difference
from lab.decoding.speculative.loop import prefill
from lab.decoding.speculative.trial import RED, Trial, TrialFigures, firsts_wanted
from lab.events import Event, Progress, Proof
from lab.events.speculative import DraftReady, IdentityShown, TrialPoint, chi_square_in_words
from lab.experiments.base import Outcome, RunGenerator
from lab.experiments.reading import read_prompt
from lab.experiments.speculative.place import FAR, Place, search
from lab.experiments.speculative.ready import draft_ready
from lab.experiments.speculative.setup import Setup
from lab.experiments.speculative.translate import shares_of
from lab.models.prompts import TextStream, token_texts
from lab.steps import paused, relay

EVERY = 50
"""Draws between two points."""

CLAIM = "pairs of tokens follow exactly the model's distribution"


def run_trial(setup: Setup) -> RunGenerator:
    """Yield the identity, then a point every 50 draws, then the verdict."""
    return (yield from _TrialRun(setup).events())


@dataclass
class _TrialRun:
    setup: Setup
    red_at: int = 0
    passes: int = 0
    last: TrialFigures | None = None
    prefix: list[int] = field(default_factory=list)

    def events(self) -> RunGenerator:
        setup, p = self.setup, self.setup.params
        prompt_ids = yield from read_prompt(setup.loaded, p, TextStream(setup.loaded.tokenizer))
        source = yield from draft_ready(setup)
        yield Progress(stage="searching a position where the draft is far off", done=0, total=p.trial_runs)
        place = yield from search(setup, source, prompt_ids)
        words = _where(setup, place)
        notes = (*source.notes, words)
        yield DraftReady(draft=source.name, title=source.title, notes=notes, bytes=source.bytes)
        shares = shares_between(place.p, place.q)
        yield IdentityShown(
            total_variation=place.variation,
            largest_difference=largest_difference(place.p, emitted(place.p, place.q)),
            shares=shares_of(shares, setup.text_of),
        )
        self.prefix = [*prompt_ids, *place.new_ids]
        rules = setup.distribution(len(prompt_ids))
        yield Progress(stage="computing what the pairs should follow", done=0, total=p.trial_runs)
        p_first, p_second = yield from _truth(setup, rules, self.prefix)
        trial = Trial(p_first, p_second, p.trial_runs, alternative=(place.q, {}))
        yield None
        yield from self._draw(source, rules, trial)
        yield self._proof(trial, place, words)
        return Outcome()

    def _draw(self, source: Source, rules: Distribution, trial: Trial) -> Generator[Event | None, None, None]:
        params = self.setup.params
        rounds = yield from _at_prefix(self.setup, source, rules, self.prefix)
        for run in range(1, params.trial_runs + 1):
            pair = yield from rounds.pair()
            trial.add(*pair)
            if run % EVERY == 0 or run == params.trial_runs:
                yield Progress(stage="drawing pairs of tokens", done=run, total=params.trial_runs)
                point = trial.point()
                if point.red and not self.red_at:
                    self.red_at = run
                self.last = point
                yield self._event(point)
        self.passes = rounds.passes

    def _event(self, point: TrialFigures) -> TrialPoint:
        def text(token: int) -> str:
            return self.setup.text_of(token) if token >= 0 else ""

        return TrialPoint(
            runs=point.runs,
            planned=point.planned,
            statistic=point.statistic,
            degrees=point.degrees,
            p_value=point.p_value,
            total_variation=point.total_variation,
            expected_variation=point.expected_variation,
            power=point.power,
            pairs=tuple((text(c.first), text(c.second), c.expected, c.observed) for c in point.pairs),
        )

    def _proof(self, trial: Trial, place: Place, words: str) -> Proof:
        point, mistake = self.last, self.setup.params.break_run
        assert point is not None  # noqa: S101 - at least one draw
        detail = {
            "where": words,
            "statistic": point.statistic,
            "degrees": point.degrees,
            "p_value": point.p_value,
            "red_below": RED,
            "total_variation": point.total_variation,
            "expected_variation": point.expected_variation,
            "draft_variation": place.variation,
            "power_against_the_draft": trial.planned_power(),
            "target_passes": self.passes,
            "first_red_after": self.red_at or None,
        }
        figures = chi_square_in_words(point.statistic, point.degrees)
        if point.red:
            chance = f" An exact rule reaches that with a probability of {_small(point.p_value)}."
            return Proof(
                verdict="different",
                claim=CLAIM,
                compared=point.runs,
                matched=0,
                unit="pairs",
                explanation=f"The pairs do not follow p: {figures}.{chance if point.degrees else ''} Their total "
                f"variation from p is {point.total_variation:.3f}, and chance alone makes "
                f"{point.expected_variation:.3f}.",
                detail=detail,
            )
        if point.degrees < 1:
            return Proof(
                verdict="unproven",
                claim=CLAIM,
                compared=point.runs,
                matched=point.runs,
                unit="pairs",
                explanation="The draws fall into fewer than two groups that are large enough to compare, so nothing "
                "can be told from them. Draw more, or from more tokens (top-k).",
                detail=detail,
            )
        if mistake != "nothing":
            return Proof(
                verdict="unproven",
                claim=CLAIM,
                compared=point.runs,
                matched=point.runs,
                unit="pairs",
                explanation=f"The mistake was made and {point.runs:,} pairs do not show it ({figures}): it changes too "
                "little at this position. Draw more, or take a draft that is farther off.",
                detail=detail,
            )
        weak = "" if place.variation >= FAR else f" No position has a total variation of {FAR:g}: the test is weak."
        return Proof(
            verdict="equal",
            claim=CLAIM,
            compared=point.runs,
            matched=point.runs,
            unit="pairs",
            explanation=weak.strip(),
            detail=detail,
        )


def _truth(
    setup: Setup, rules: Distribution, prefix: list[int]
) -> Generator[None, None, tuple[Tensor, Mapping[int, Tensor]]]:
    """p of the first token, and p of the second for each first that counts: by transformers' own forward, no draft."""
    runner = TransformersPass(setup.loaded.model, len(prefix) + 1)
    row = yield from _read(runner, prefix)
    with torch.inference_mode():
        p_first = rules.of(row, prefix)
    p_second: dict[int, Tensor] = {}
    for token in firsts_wanted(p_first, setup.params.trial_runs):
        with torch.inference_mode():
            since = cache_layout.mark(runner.cache)
            logits = runner.rows((token,), len(prefix)).logits[0]
            cache_layout.keep(runner.cache, since, ())
            p_second[token] = rules.of(logits, [*prefix, token])
        yield None
    return p_first, p_second


def _read(runner: TransformersPass, ids: list[int]) -> Generator[None, None, Tensor]:
    row: Tensor | None = None
    for start in range(0, len(ids), runner.chunk):
        piece = ids[start : start + runner.chunk]
        with torch.inference_mode():
            row = runner(piece, start, last=True, attention=False)
        yield None
    assert row is not None  # noqa: S101 - the prefix has a token
    return row


def _at_prefix(
    setup: Setup, source: Source, rules: Distribution, prefix: list[int]
) -> Generator[None, None, AgainRounds]:
    """The target's cache filled with the prefix but its last token, and a draft that knows it."""
    room = len(prefix) + 64
    draft: Draft = source.fresh(room)
    runner = choose_pass(setup.loaded.model, room, layers=(), fast=None, mistake="nothing")
    generator = torch.Generator(device=setup.loaded.device).manual_seed(setup.params.seed)
    sight = Sight(ids=list(prefix), target=runner, generator=generator)
    if len(prefix) > 1:
        reading = prefill(runner, prefix[:-1], features=draft.wants_features)
        _, sight.features = yield from relay(reading, paused)
    warm = getattr(draft, "warm", None)
    if warm is not None:
        yield from warm(prefix)
    return AgainRounds(
        runner, draft, sight, rules, mistake=setup.params.break_run, level="off", position=len(prefix) - 1
    )


def _small(p_value: float) -> str:
    return f"{p_value:.1g}" if p_value > 1e-300 else "less than 1e-300"


def _where(setup: Setup, place: Place) -> str:
    text = "".join(token_texts(setup.loaded.tokenizer, place.new_ids))[-80:]
    return (
        f"Drawn after new token {len(place.new_ids)}, after {text!r}: there the draft's total variation from the model "
        f"is {place.variation:.2f}."
    )
