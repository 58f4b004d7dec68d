"""The task "drafts": every draft that fits, on the fixed set of prompts, beside plain decoding."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from math import nan

from lab.decoding.drafts.choose import TITLES, Source, why_not
from lab.decoding.speculative.figures import Tally
from lab.errors import LabError
from lab.events import Event, Progress
from lab.events.speculative import DraftRanked
from lab.experiments.base import Outcome, RunGenerator
from lab.experiments.speculative.counted import figures_event
from lab.experiments.speculative.measure import Counted, Measured
from lab.experiments.speculative.params import DraftName
from lab.experiments.speculative.prompts import PROMPTS
from lab.experiments.speculative.ready import draft_ready
from lab.experiments.speculative.setup import Plan, Setup
from lab.models.prompts import encode_prompt
from lab.steps import paused, relay

ORDER: tuple[DraftName, ...] = (
    "eagle",
    "lookup_eagle",
    "lookup",
    "int8",
    "int4",
    "retrieval",
    "early_exit",
    "model",
)
"""The most telling first: who stops early has seen them."""


@dataclass(frozen=True)
class _Encoded:
    kind: str
    ids: list[int]


def rank_drafts(setup: Setup) -> RunGenerator:
    """Yield a `DraftRanked` for each draft after each prompt; those that cannot run say why."""
    prompts: list[_Encoded] = []
    for prompt in PROMPTS:
        chat = prompt.chat and bool(setup.loaded.tokenizer.chat_template)
        prompts.append(_Encoded(prompt.kind, encode_prompt(setup.loaded, prompt.text, chat)))
        yield None
    # Kinds in turn, so that a run that is stopped has seen all of them.
    prompts = [p for turn in zip(*_by_kind(prompts).values(), strict=True) for p in turn]
    measured = Measured(setup)
    able: list[DraftName] = []
    skipped: list[DraftRanked] = []
    for name in ORDER:
        reason = why_not(setup.loaded.facts, setup.wish(name))
        if reason:
            skipped.append(_skipped(name, reason))
        else:
            able.append(name)
        yield None
    ranked: list[_Ranked] = []
    for name in able:
        yield Progress(stage=f"{TITLES[name]}: making it ready", done=0, total=1)
        try:
            ranked.append(_Ranked(setup, (yield from _quietly(draft_ready(setup, name))), prompts))
        except LabError as error:
            skipped.append(_skipped(name, error.message))
    yield from skipped
    # Prompt by prompt through all drafts: whoever stops early has a fair comparison over fewer prompts.
    total = len(ranked) * len(prompts)
    for number, encoded in enumerate(prompts):
        for place, one in enumerate(ranked):
            done = number * len(ranked) + place
            stage = f"prompt {number + 1} of {len(prompts)} ({encoded.kind}): {one.source.title}"
            yield Progress(stage=stage, done=done, total=total)
            yield from one.measure(measured, encoded)
            yield one.event(number + 1, len(prompts))
    yield Progress(stage="done", done=total, total=total)
    yield measured.proof()
    return Outcome()


class _Ranked:
    """One draft's counts so far, over all prompts and by kind."""

    def __init__(self, setup: Setup, source: Source, prompts: list[_Encoded]) -> None:
        gamma, adaptive = setup.params.gamma, setup.params.adaptive
        asked = 0 if adaptive else gamma
        self.source = source
        self._plan = Plan(source, gamma, adaptive)
        self._whole = Counted(Tally(source.name, asked))
        self._kinds = {prompt.kind: Counted(Tally(source.name, asked)) for prompt in prompts}

    def measure(self, measured: Measured, prompt: _Encoded) -> Generator[None, None, None]:
        both = (self._whole, self._kinds[prompt.kind])
        pair = measured.pair(self._plan, prompt.ids, [c.tally for c in both], [c.plain_ms for c in both])
        with closing(pair):
            yield from pair

    def event(self, prompts: int, of_prompts: int) -> DraftRanked:
        by_kind = []
        for kind, counted in self._kinds.items():
            figures = counted.tally.figures(counted.plain_ms) if counted.plain_ms else None
            speed = None if figures is None else figures.measured
            accepted = None if figures is None else figures.accept_judged
            by_kind.append((kind, _or_nan(speed), _or_nan(accepted)))
        return DraftRanked(
            draft=self.source.name,
            title=self.source.title,
            skipped="",
            figures=figures_event(self._whole.tally, self._whole.plain_ms),
            by_kind=tuple(by_kind),
            bytes=self.source.bytes,
            prompts=prompts,
            of_prompts=of_prompts,
        )


def _quietly(making: Generator[Event | None, None, Source]) -> Generator[None, None, Source]:
    """The bar of this task counts runs, so the stages of making a draft ready are pauses here."""
    return (yield from relay(making, paused))


def _by_kind(prompts: list[_Encoded]) -> dict[str, list[_Encoded]]:
    kinds: dict[str, list[_Encoded]] = {}
    for prompt in prompts:
        kinds.setdefault(prompt.kind, []).append(prompt)
    return kinds


def _skipped(name: DraftName, reason: str) -> DraftRanked:
    return DraftRanked(draft=name, title=TITLES[name], skipped=reason, figures=None, by_kind=(), bytes=0)


def _or_nan(value: float | None) -> float:
    return nan if value is None else value
