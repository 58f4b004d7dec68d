"""The task "words": the same prompt, continued by the dense model and by quantized ones, and what each token cost."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field

from lab.events import Event
from lab.events.decoding import Candidate
from lab.events.quantization_words import QuantizedCache
from lab.events.words import Variant, WordCompared, WordsCompared, WordToken
from lab.experiments.base import Outcome, RunGenerator
from lab.experiments.quantization.coverage import covered
from lab.experiments.quantization.proof import proving
from lab.experiments.quantization.setup import Part, Setup, progress
from lab.experiments.quantization.speak import Reading, Said, Voice, kl
from lab.experiments.quantization.spoken_proof import against_generate
from lab.experiments.quantization.voices import voices
from lab.experiments.quantization.whole import quantizing_model
from lab.experiments.reading import read_prompt
from lab.models.prompts import TextStream
from lab.quantization.kv_layer import cache_bytes, quantized_layers


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
class Words:
    """One run of the task."""

    setup: Setup
    prompt: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.loaded, self.params = self.setup.loaded, self.setup.params
        self.ends = self.loaded.end_token_ids
        self.stream = TextStream(self.loaded.tokenizer)

    def events(self) -> RunGenerator:
        """All events of the run."""
        setup = self.setup
        self.prompt = yield from read_prompt(self.loaded, self.params, self.stream)
        yield from setup.begin()
        dense = Row(Voice("dense", "dense", "dense", setup.model))
        yield Variant(name="dense", label="dense", truth="dense")
        yield from self._dense(dense)
        windows: list[list[int]] = []
        if setup.params.needs_calibration:
            windows = yield from setup.choose_texts(calibration=True, held_out=False)
        whole = yield from quantizing_model(setup, setup.scheme, windows, "quantizing")
        yield covered(setup, setup.scheme.setting, whole.storage, reasons=whole.reasons)
        others = yield from voices(setup, whole, windows)
        for number, voice in enumerate(others):
            yield Variant(name=voice.name, label=voice.label, truth=voice.truth, notes=voice.notes)
            yield from self._other(voice, dense, f"{voice.label}: words", number, len(others))
        finding = yield from against_generate(setup, self.prompt, dense.token_ids, sorted(self.ends))
        yield from proving(setup, (finding,))
        return Outcome(token_ids=tuple(dense.token_ids), text="".join(dense.texts))

    def _dense(self, row: Row) -> Part:
        """The dense model's greedy words; what it saw before each is kept."""
        reading = Reading(row.voice, self._room())
        with closing(reading.prefill(self.prompt)) as prefill:
            said = yield from _through(prefill)
        stream = self.stream.branch()
        while True:
            row.said.append(said)
            yield self._token(row, said, stream)
            yield progress("dense words", len(row.token_ids), self.params.max_new_tokens)
            if self._over(row):
                return
            said = reading.add(row.token_ids[-1])

    def _other(self, voice: Voice, dense: Row, stage: str, number: int, total: int) -> Part:
        """Another model on the dense text, then its own words from where they part."""
        row, own = Row(voice), Row(voice)
        reading = Reading(voice, self._room())
        with closing(reading.prefill(self.prompt)) as prefill:
            said = yield from _through(prefill)
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
        yield self._compared(row, dense, parted)
        if voice.cache is not None:
            yield self._cache(voice, reading)
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
            with closing(reading.prefill([*self.prompt, *own.token_ids])) as prefill:
                said = yield from _through(prefill)
        else:
            said = reading.add(own.token_ids[-1])
        while True:
            yield self._token(own, said, stream)
            share = 0.5 + 0.5 * len(own.token_ids) / self.params.max_new_tokens
            yield progress(stage, number + share, total)
            if self._over(own):
                return
            said = reading.add(own.token_ids[-1])

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

    def _compared(self, row: Row, dense: Row, parted: int) -> WordsCompared:
        words = []
        for index, token in enumerate(dense.token_ids):
            ours, theirs = dense.said[index], row.said[index]
            words.append(
                WordCompared(
                    index=index,
                    token_id=token,
                    text=dense.texts[index],
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

    def _cache(self, voice: Voice, reading: Reading) -> QuantizedCache:
        scheme = voice.cache
        assert scheme is not None  # noqa: S101 - the caller looked
        held = cache_bytes(reading.runner.cache)
        coded = scheme.quantized_positions(reading.length)
        words = (
            f"{coded} of {reading.length} positions are codes."
            if coded
            else (
                f"No position became a code: {reading.length} positions do not fill a group of {scheme.group} "
                f"beside the {scheme.window} newest, which stay dense."
            )
        )
        layers = tuple(layer.stored_bytes.total for layer in quantized_layers(reading.runner.cache))
        return QuantizedCache(
            variant=voice.name,
            bits=scheme.bits,
            residual=scheme.window,
            positions=reading.length,
            code_bytes=held.codes,
            scale_bytes=held.scales,
            dense_bytes=held.dense,
            plain_bytes=held.plain,
            layer_bytes=layers,
            words=f"{words} Keys share a scale per channel over {scheme.group} positions, values per token over "
            f"{scheme.group} channels; positions leave the dense window in groups of {scheme.group}.",
        )

    def _candidates(self, said: Said) -> tuple[Candidate, ...]:
        return tuple(Candidate(token, self.setup.text_of(token), value) for token, value in said.top())

    def _over(self, row: Row) -> bool:
        return len(row.token_ids) >= self.params.max_new_tokens or bool(
            row.token_ids and row.token_ids[-1] in self.ends
        )

    def _room(self) -> int:
        return len(self.prompt) + self.params.max_new_tokens


def _through(prefill: Generator[None, None, Said]) -> Generator[Event | None, None, Said]:
    return (yield from prefill)


def compare_words(setup: Setup) -> RunGenerator:
    """Yield the events of the task."""
    return (yield from Words(setup).events())
