"""The same words by the dense model and by changed ones, and what each token cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from lab.events import Event
from lab.events.decoding import Candidate
from lab.events.words import Variant, WordCompared, WordsCompared, WordToken
from lab.experiments.base import Outcome
from lab.experiments.compared.finding import Finding
from lab.experiments.compared.progress import Made, Part, progress
from lab.experiments.compared.speak import Reading, Said, Voice, kl
from lab.experiments.compared.spoken_proof import against_generate
from lab.experiments.fields import PromptParams
from lab.experiments.reading import read_prompt
from lab.models.loading import LoadedModel
from lab.models.prompts import TextStream, text_of

Extra = Callable[[Voice, Reading], Iterable[Event]]
"""Further events of a voice once it has read the dense text."""


def nothing_more(voice: Voice, reading: Reading) -> Iterable[Event]:
    """No further events."""
    del voice, reading
    return ()


@dataclass
class Row:
    """The words of one voice.

    Attributes:
        said: what it saw before each of the dense row's tokens.
    """

    voice: Voice
    token_ids: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)


@dataclass
class ComparedWords:
    """The rows of one run, in this order: `read`, `speak_dense`, `speak_others`, `against_generate`.

    Attributes:
        loaded: the dense model, read-only.
        params: what to continue, and how far.
        others: the other voices' own rows so far, without what they saw.
    """

    loaded: LoadedModel
    params: PromptParams
    prompt: list[int] = field(default_factory=list)
    others: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ends = self.loaded.end_token_ids
        self.stream = TextStream(self.loaded.tokenizer)
        self.dense = Row(Voice("dense", "dense", "dense", self.loaded.model))

    @property
    def outcome(self) -> Outcome:
        """The dense row."""
        return Outcome(token_ids=tuple(self.dense.token_ids), text="".join(self.dense.texts))

    def read(self) -> Part:
        """Encode the prompt and tell it.

        Raises:
            BadInput: see `read_prompt`.
        """
        self.prompt = yield from read_prompt(self.loaded, self.params, self.stream)

    def speak_dense(self) -> Part:
        """The dense model's greedy words; what it saw before each is kept."""
        row = self.dense
        yield Variant(name=row.voice.name, label=row.voice.label, truth=row.voice.truth)
        reading = Reading(row.voice, self._room())
        said = yield from self._prefilled(reading, self.prompt)
        stream = self.stream.branch()
        while True:
            row.said.append(said)
            yield self._token(row, said, stream)
            yield progress("dense words", len(row.token_ids), self.params.max_new_tokens)
            if self._over(row):
                return
            said = reading.add(row.token_ids[-1])

    def speak_others(self, voices: Sequence[Voice], extra: Extra = nothing_more) -> Part:
        """Each voice on the dense text, then its own words from where they part."""
        for number, voice in enumerate(voices):
            yield Variant(name=voice.name, label=voice.label, truth=voice.truth, notes=voice.notes)
            yield from self._other(voice, extra, f"{voice.label}: words", number, len(voices))

    def against_generate(self) -> Made[Finding]:
        """Whether the dense row is that of `generate()`."""
        limit = self.params.max_new_tokens
        return (yield from against_generate(self.loaded, self.prompt, self.dense.token_ids, limit))

    def _other(self, voice: Voice, extra: Extra, stage: str, number: int, total: int) -> Part:
        row, own, dense = Row(voice), Row(voice), self.dense
        self.others.append(own)
        reading = Reading(voice, self._room())
        said = yield from self._prefilled(reading, self.prompt)
        stream = self.stream.branch()
        parted, fork = -1, None
        for index, token in enumerate(dense.token_ids):
            row.said.append(said)
            if parted < 0:
                yield self._token(own, said, stream)
                if own.token_ids[-1] != token:
                    parted, fork = index, reading.fork()
            yield progress(stage, number + 0.5 * index / len(dense.token_ids), total)
            if index + 1 < len(dense.token_ids):
                said = reading.add(token)
        yield self._compared(row, parted)
        yield from extra(voice, reading)
        if parted >= 0:
            yield from self._on_its_own(own, fork, stream, stage, number, total)

    def _on_its_own(
        self, own: Row, fork: Reading | None, stream: TextStream, stage: str, number: int, total: int
    ) -> Part:
        """From the first token of its own on; without a fork the text so far is read again."""
        if self._over(own):
            return
        reading = fork or Reading(own.voice, self._room())
        if fork is None:
            said = yield from self._prefilled(reading, [*self.prompt, *own.token_ids])
        else:
            said = reading.add(own.token_ids[-1])
        while True:
            yield self._token(own, said, stream)
            share = 0.5 + 0.5 * len(own.token_ids) / self.params.max_new_tokens
            yield progress(stage, number + share, total)
            if self._over(own):
                return
            said = reading.add(own.token_ids[-1])

    def _prefilled(self, reading: Reading, ids: Sequence[int]) -> Made[Said]:
        with closing(reading.prefill(ids)) as prefill:
            return (yield from prefill)

    def _token(self, row: Row, said: Said, stream: TextStream) -> WordToken:
        token = said.best
        row.token_ids.append(token)
        row.gaps.append(said.gap)
        text = stream.add(token)
        if self._over(row):
            text += stream.finish()
        row.texts.append(text)
        return WordToken(
            variant=row.voice.name,
            index=len(row.token_ids) - 1,
            token_id=token,
            text=text,
            p=math.exp(float(said.log_p[token])),
            top=self._candidates(said),
            gap=said.gap,
            is_end=token in self.ends,
        )

    def _compared(self, row: Row, parted: int) -> WordsCompared:
        words = []
        for index, token in enumerate(self.dense.token_ids):
            ours, theirs = self.dense.said[index], row.said[index]
            words.append(
                WordCompared(
                    index=index,
                    token_id=token,
                    text=self.dense.texts[index],
                    p=math.exp(float(ours.log_p[token])),
                    q=math.exp(float(theirs.log_p[token])),
                    kl=kl(ours, theirs),
                    top=self._candidates(theirs),
                    flipped=theirs.best != ours.best,
                )
            )
        order = sorted(range(len(words)), key=lambda i: -words[i].kl)
        return WordsCompared(
            variant=row.voice.name,
            words=tuple(words),
            order=tuple(order),
            first_difference=parted,
            mean_kl=sum(word.kl for word in words) / len(words),
        )

    def _candidates(self, said: Said) -> tuple[Candidate, ...]:
        tokenizer = self.loaded.tokenizer
        return tuple(Candidate(token, text_of(tokenizer, token), value) for token, value in said.top())

    def _over(self, row: Row) -> bool:
        return len(row.token_ids) >= self.params.max_new_tokens or bool(
            row.token_ids and row.token_ids[-1] in self.ends
        )

    def _room(self) -> int:
        return len(self.prompt) + self.params.max_new_tokens
