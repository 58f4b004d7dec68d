"""One run of the `kv_cache` experiment, from the prompt to the proof."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field

from lab.decoding.loop import Decoded, Prefilled, Step, decode, decode_uncached
from lab.decoding.sampling import Sampling
from lab.decoding.trace import Trace
from lab.events import Event, Progress, Proof
from lab.events.decoding import PrefillChunk
from lab.events.kv_cache import UncachedToken
from lab.experiments.base import Outcome, RunContext, RunGenerator
from lab.experiments.kv_cache.inspections import KEPT_CACHE
from lab.experiments.kv_cache.params import KVCacheParams, default_layers
from lab.experiments.kv_cache.proof import Evidence, claim, judge
from lab.experiments.kv_cache.translate import attention_event, ledger_event, observation, token_event
from lab.experiments.reading import read_prompt
from lab.experiments.reference import ReferenceTokens, reference_generate
from lab.kv_cache.formula import layer_shapes
from lab.kv_cache.ledger import read_ledger
from lab.kv_cache.observed import Observation, findings
from lab.kv_cache.replay import CacheReplay
from lab.models.loading import LoadedModel
from lab.models.prompts import TextStream, text_of
from lab.models.shell import make_shell
from lab.steps import relay

# Each step's weights are pooled at once and not kept, so the decoder's cap on what it hands out does not matter here.
_ATTENTION_BYTES = 1 << 40

Part = Generator[Event | None, None, None]


@dataclass
class Session:
    """One run: its state, and the generator of its events. What the decoder gives becomes events in `translate`."""

    context: RunContext
    params: KVCacheParams
    prompt_ids: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    uncached_ids: list[int] = field(default_factory=list)
    observed: list[Observation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.loaded: LoadedModel = self.context.model
        facts = self.loaded.facts
        self.shapes = layer_shapes(facts)
        self.layers = self.params.trace_layers or default_layers(len(facts.layers))
        self.stream = TextStream(self.loaded.tokenizer)
        self.replay = CacheReplay(self.loaded.model)
        self.ends = tuple(sorted(self.loaded.end_token_ids))
        p = self.params
        self.sampling = (
            Sampling(do_sample=True, temperature=p.temperature, top_k=p.top_k, top_p=p.top_p, seed=p.seed)
            if p.do_sample
            else Sampling()
        )
        self.decoded: Decoded | None = None
        self.reference_done = 0

    def events(self) -> RunGenerator:
        """All events of the run; see `KVCacheRunner.run`."""
        self.prompt_ids = yield from read_prompt(self.loaded, self.params, self.stream)
        yield from self._generate()
        if not self.replay.too_large:
            self.context.kept[KEPT_CACHE] = self.replay
        yield from self._prove()
        return Outcome(token_ids=tuple(self.token_ids), text="".join(self.texts))

    def _generate(self) -> Part:
        """With the cache, and after each step the same step without it."""
        options = {
            "max_new_tokens": self.params.max_new_tokens,
            "end_token_ids": self.ends,
            "sampling": self.sampling,
        }
        with (
            closing(
                decode(
                    self.loaded.model,
                    self.prompt_ids,
                    trace=Trace("full", layers=self.layers, max_bytes=_ATTENTION_BYTES),
                    mistake=self.params.break_run,
                    **options,  # type: ignore[arg-type]
                )
            ) as cached,
            closing(decode_uncached(self.loaded.model, self.prompt_ids, trace=Trace("light"), **options)) as uncached,  # type: ignore[arg-type]
        ):
            while True:
                try:
                    item = next(cached)
                except StopIteration as stop:
                    self.decoded = stop.value
                    return
                if isinstance(item, Prefilled):
                    yield from self._prefilled(item)
                elif isinstance(item, Step):
                    yield from self._step(item)
                    if item.index < self.params.without_cache_tokens:
                        yield from self._uncached(uncached)
                    yield self._progress("generating")
                else:
                    yield None

    def _prefilled(self, chunk: Prefilled) -> Part:
        yield PrefillChunk(start=chunk.start, stop=chunk.stop, ms=chunk.ms)
        rows = read_ledger(chunk.cache, self.shapes, chunk.stop, self.loaded.dtype)
        yield ledger_event(rows, -1, chunk.stop)
        yield self._progress("reading the prompt")

    def _step(self, step: Step) -> Part:
        is_end = step.token_id in self.loaded.end_token_ids
        text = self.stream.add(step.token_id)
        if is_end or step.index + 1 == self.params.max_new_tokens:
            text += self.stream.finish()
        self.token_ids.append(step.token_id)
        self.gaps.append(step.gap)
        self.texts.append(text)
        yield token_event(step, text, is_end=is_end, text_of=self._text_of)
        length = len(self.prompt_ids) + step.index
        if step.cache is not None:
            rows = read_ledger(step.cache, self.shapes, length, self.loaded.dtype)
            seen = observation(step, rows, length)
            self.observed.append(seen)
            self.replay.record(step.cache, seen)
            yield ledger_event(rows, step.index, length)
        if step.attention is not None:
            yield attention_event(step.index, self.layers, step.attention, length)

    def _uncached(self, uncached: Generator[Step | None, None, Decoded]) -> Part:
        for item in uncached:
            if item is None:
                yield None
                continue
            self.uncached_ids.append(item.token_id)
            yield UncachedToken(index=item.index, token_id=item.token_id, ms=item.ms, computed=item.computed)
            return

    def _prove(self) -> Part:
        params = self.params
        reference: ReferenceTokens | None = None
        failure = ""
        shell = make_shell(self.loaded.model)
        yield None  # a slice of its own: the first pass of generate() fills the next
        steps = reference_generate(
            shell,
            self.prompt_ids,
            max_new_tokens=params.max_new_tokens,
            end_token_ids=self.ends,
            do_sample=params.do_sample,
            temperature=params.temperature,
            top_k=params.top_k,
            top_p=params.top_p,
            seed=params.seed,
        )
        try:
            reference = yield from relay(steps, self._referred)
        except Exception as error:  # noqa: BLE001 - generate() of a foreign model can raise anything
            failure = f"generate() failed on this model: {type(error).__name__}: {_first_line(error)}."
        yield self._proof(reference, failure)

    def _referred(self, done: int) -> Progress:
        self.reference_done = done
        return self._progress("checking against generate()")

    def _proof(self, reference: ReferenceTokens | None, failure: str) -> Proof:
        if reference is None:
            return Proof(
                verdict="unproven", claim=claim(bool(self.uncached_ids)), compared=0, matched=0, explanation=failure
            )
        decoded = self.decoded
        return judge(
            Evidence(
                token_ids=self.token_ids,
                gaps=self.gaps,
                uncached_ids=self.uncached_ids,
                reference=reference,
                found=findings(self.observed, self._name),
                dtype=str(self.loaded.dtype).removeprefix("torch."),
                do_sample=self.params.do_sample,
                name_token=self._name,
                more={
                    "path": decoded.path if decoded is not None else "",
                    "attention_of_generate": str(getattr(self.loaded.model.config, "_attn_implementation", "")),
                    "dtype": str(self.loaded.dtype).removeprefix("torch."),
                },
            )
        )

    def _progress(self, stage: str) -> Progress:
        """Tokens made of all tokens to make: with the cache, without it, and by `generate()`."""
        p = self.params
        ended = self.decoded is not None
        new = len(self.token_ids) if ended else p.max_new_tokens
        twin = len(self.uncached_ids) if ended else min(p.without_cache_tokens, p.max_new_tokens)
        total = new + twin + max(new, self.reference_done)
        done = len(self.token_ids) + len(self.uncached_ids) + self.reference_done
        return Progress(stage=stage, done=done, total=total, number=1, stages=1)

    def _text_of(self, token: int) -> str:
        return text_of(self.loaded.tokenizer, token)

    def _name(self, token: int) -> str:
        return f"{self._text_of(token)!r} (token {token})"


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__
