"""The task "decode": one prompt, speculative and plain side by side, figures, and the proof."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from lab.decoding.distribution import Distribution
from lab.decoding.drafts.choose import Source
from lab.decoding.speculative.bars import Bars, bars_of_one
from lab.decoding.speculative.figures import Tally
from lab.decoding.speculative.loop import First, PlainStep, Round, speculate
from lab.decoding.speculative.observed import RuleCheck
from lab.decoding.speculative.teacher import taught
from lab.decoding.steps import Prefilled
from lab.events import Event, Progress
from lab.events.decoding import PrefillChunk
from lab.events.speculative import DraftReady, FirstToken, PlainToken
from lab.experiments.base import Outcome, RunGenerator
from lab.experiments.reading import read_prompt
from lab.experiments.speculative.counted import figures_event, take_round
from lab.experiments.speculative.pair import Took, run_pair
from lab.experiments.speculative.positions import KEPT_POSITIONS, Positions
from lab.experiments.speculative.proof import (
    DrawnEvidence,
    GreedyEvidence,
    TaughtCheck,
    TopTwo,
    prove_drawn,
    prove_greedy,
)
from lab.experiments.speculative.ready import draft_ready
from lab.experiments.speculative.setup import Plan, Setup
from lab.experiments.speculative.translate import round_event
from lab.experiments.speculative.twin import reference_tokens
from lab.models.prompts import TextStream
from lab.steps import relay

Part = Generator[Event | None, None, None]


@dataclass
class Decode:
    """One run: its state, and the generator of its events."""

    setup: Setup
    texts: list[str] = field(default_factory=list)
    used: list[Bars | None] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    left_in_cache: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        self.loaded, self.params = self.setup.loaded, self.setup.params
        self.stream, self.plain_stream = TextStream(self.loaded.tokenizer), TextStream(self.loaded.tokenizer)
        self.rule = RuleCheck(self.setup.name_of)
        self.tally = Tally(self.params.draft, 0 if self.params.adaptive else self.params.gamma, other_tokens=1)
        self.positions = Positions()
        self.plain_done = 0
        self.took = Took()

    def events(self) -> RunGenerator:
        """All events of the run."""
        prompt_ids = yield from read_prompt(self.loaded, self.params, self.stream)
        source = yield from draft_ready(self.setup)
        yield DraftReady(draft=source.name, title=source.title, notes=source.notes, bytes=source.bytes)
        for index, token in enumerate(prompt_ids):
            self.plain_stream.add(token)
            if index % 256 == 255:
                yield None
        self.setup.context.kept[KEPT_POSITIONS] = self.positions
        p = self.params
        plan = Plan(source, p.gamma, p.adaptive)
        pair = run_pair(self.setup, plan, prompt_ids, max_new_tokens=p.max_new_tokens)
        with closing(pair):
            while True:
                try:
                    item = next(pair)
                except StopIteration as stop:
                    self.took = stop.value
                    break
                yield from self._item(item)
        yield figures_event(self.tally, self.took.plain_ms)
        if p.do_sample:
            yield from self._prove_drawn(source, prompt_ids)
        else:
            yield from self._prove_greedy(prompt_ids)
        return Outcome(token_ids=tuple(self.token_ids), text="".join(self.texts))

    def _item(self, item: object) -> Part:
        match item:
            case Prefilled():
                yield PrefillChunk(start=item.start, stop=item.stop, ms=item.ms)
                yield self._progress("reading the prompt")
            case First():
                text = self._add(item.token_id, last=item.ends or self.params.max_new_tokens == 1)
                self.used.append(None if item.distribution is None else bars_of_one(item.distribution, item.token_id))
                yield FirstToken(token_id=item.token_id, text=text, p=item.p, ends=item.ends)
            case Round():
                yield from self._round(item)
            case PlainStep():
                self.plain_done += 1
                text = self.plain_stream.add(item.token_id)
                yield PlainToken(index=item.index, token_id=item.token_id, text=text, ms=item.ms)
            case _:
                yield None

    def _round(self, done: Round) -> Part:
        base = len(self.token_ids)
        new = base + len(done.token_ids)
        over = done.ends or new >= self.params.max_new_tokens
        count = len(done.token_ids)
        texts = [self._add(t, last=over and i == count - 1) for i, t in enumerate(done.token_ids)]
        self.used.extend(done.bars[row] for row in done.path)
        if done.last_stands:
            self.used.append(done.bars[-1])
        too_many = done.target_positions[2] - done.target_positions[0] - len(done.token_ids)
        if too_many > 0 and self.left_in_cache is None:
            self.left_in_cache = (too_many, done.index)
        take_round(self.tally, done)
        self.positions.take(done, base)
        yield round_event(done, base, texts, self.setup.text_of)
        self.rule.take(done, base)
        yield self._progress("generating")

    def _add(self, token: int, *, last: bool) -> str:
        text = self.stream.add(token)
        if last:
            text += self.stream.finish()
        self.token_ids.append(token)
        self.texts.append(text)
        return text

    def _prove_greedy(self, prompt_ids: list[int]) -> Part:
        others: dict[str, Sequence[int]] = {"plain greedy decoding": self.took.plain_ids}
        mistake = self.setup.params.break_run
        detail: dict[str, object] = {"path": self.took.path}
        yield self._progress("checking against generate()")
        made, failure = yield from reference_tokens(self.setup, prompt_ids)
        if made is not None:
            others["generate()"] = made
        else:
            detail["generate_failed"] = failure
        evidence = GreedyEvidence(
            self.token_ids, others, None, self.setup.dtype, self.setup.name_of, self.left_in_cache, mistake, detail
        )
        parted = evidence.first_difference()
        if parted is not None:
            at = parted[1]
            top = None
            reading = taught(self.loaded.model, prompt_ids, self.token_ids[: at + 1], self._rules(prompt_ids))
            with closing(reading):
                for row in reading:
                    yield None
                    if row is not None and row.index == at:
                        top = TopTwo.of(row.logits)
            evidence = GreedyEvidence(
                self.token_ids, others, top, self.setup.dtype, self.setup.name_of, self.left_in_cache, mistake, detail
            )
        yield prove_greedy(evidence)

    def _prove_drawn(self, source: Source, prompt_ids: list[int]) -> Part:
        check = TaughtCheck(self.setup.dtype)
        reading = taught(self.loaded.model, prompt_ids, self.token_ids, self._rules(prompt_ids))
        with closing(reading):
            for row in reading:
                if row is None:
                    yield self._progress("reading the text again with the plain model")
                    continue
                used = self.used[row.index]
                if used is not None:
                    check.take(row.index, used, row.p)
                if row.index % 8 == 7:
                    yield None
        replayed = yield from self._replay(source, prompt_ids)
        yield prove_drawn(
            DrawnEvidence(
                self.token_ids,
                self.rule,
                check,
                replayed,
                self.setup.dtype,
                self.setup.name_of,
                self.left_in_cache,
                self.params.break_run,
                {"path": self.took.path},
            )
        )

    def _replay(self, source: Source, prompt_ids: list[int]) -> Generator[Event | None, None, list[int]]:
        """The same run once more with the same random numbers, recording nothing."""
        p = self.params
        again = speculate(
            self.loaded.model,
            prompt_ids,
            source.fresh(len(prompt_ids) + p.max_new_tokens + 64),
            max_new_tokens=p.max_new_tokens,
            end_token_ids=self.setup.ends,
            distribution=self._rules(prompt_ids),
            gamma=p.gamma,
            adaptive=p.adaptive,
            seed=p.seed,
            trace="off",
            mistake=p.break_run,
        )

        def say(item: object) -> Progress | None:
            return self._progress("running again with the same random numbers") if isinstance(item, Round) else None

        return (yield from relay(again, say)).token_ids

    def _rules(self, prompt_ids: list[int]) -> Distribution:
        return self.setup.distribution(len(prompt_ids))

    def _progress(self, stage: str) -> Progress:
        total = 2 * self.params.max_new_tokens
        done = min(total, len(self.token_ids) + self.plain_done)
        return Progress(stage=stage, done=done, total=total, number=1, stages=1)
