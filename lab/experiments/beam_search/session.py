"""One run of the `beam_search` experiment, from the prompt to the proof."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass

from lab.decoding.beam.choose import choose_beams
from lab.decoding.beam.follow import Followed, follow
from lab.decoding.beam.hypotheses import Finished, final_score
from lab.decoding.beam.search import SearchStep, Settings, Tree, beam_search
from lab.decoding.processors import Repetition
from lab.decoding.sampling import Sampling
from lab.decoding.steps import Prefilled
from lab.events import Event, Progress, Proof
from lab.events.beam_search import BeamResult, PathFollowed
from lab.events.decoding import PrefillChunk
from lab.experiments.base import Outcome, RunContext, RunGenerator
from lab.experiments.beam_search.inspections import KEPT_TREE, KeptTree
from lab.experiments.beam_search.observed import RowsSeen, wrong_figures, wrong_rows
from lab.experiments.beam_search.params import BeamSearchParams
from lab.experiments.beam_search.proof import Decisions, Evidence, claim, decisions, judge
from lab.experiments.beam_search.texts import TreeTexts
from lab.experiments.beam_search.translate import hypothesis_event, step_event
from lab.experiments.reading import read_prompt
from lab.experiments.reference_beams import ReferenceBeams, reference_beams
from lab.kv_cache.formula import layer_shapes
from lab.kv_cache.observed import Finding
from lab.models.loading import LoadedModel
from lab.models.prompts import TextStream
from lab.models.shell import make_shell
from lab.steps import relay

Part = Generator[Event | None, None, None]


@dataclass
class Session:
    """One run: its state, and the generator of its events."""

    context: RunContext
    params: BeamSearchParams

    def __post_init__(self) -> None:
        p = self.params
        self.loaded: LoadedModel = self.context.model
        self.shapes = layer_shapes(self.loaded.facts)
        self.ends = tuple(sorted(set(p.end_token_ids) or self.loaded.end_token_ids))
        self.settings = Settings(
            width=p.num_beams,
            max_new_tokens=p.max_new_tokens,
            length_penalty=p.length_penalty,
            early_stopping=p.early_stopping,
            end_token_ids=self.ends,
            repetition=Repetition(p.repetition_penalty, p.no_repeat_ngram_size, p.min_new_tokens),
            mistake=p.break_run,
        )
        self.prompt_ids: list[int] = []
        self.tree = Tree()
        self.found: list[Finding] = []
        self.decided: list[Decisions] = []
        self.hypotheses: list[Finished] = []
        self.steps = self.reordered = self.followed = self.reference_done = 0
        self.searched = self.followed_all = False
        self.ms = 0.0

    def events(self) -> RunGenerator:
        """All events of the run; see `BeamSearchRunner.run`."""
        stream = TextStream(self.loaded.tokenizer)
        self.prompt_ids = yield from read_prompt(self.loaded, self.params, stream)
        self.texts = TreeTexts(self.loaded.tokenizer, stream)
        yield from self._search()
        yield self._result()
        self.context.kept[KEPT_TREE] = KeptTree(self.tree, self.texts.texts)
        yield from self._follow()
        self.path = self.beams.name
        del self.beams  # generate() gets the memory of the cache
        yield from self._prove()
        best = self.hypotheses[0].node if self.hypotheses else -1
        return Outcome(token_ids=tuple(self.tree.tokens(best)), text=self._text(best))

    def _search(self) -> Part:
        """The prompt, then every step of the search."""
        settings = self.settings
        self.beams = choose_beams(
            self.loaded.model,
            self.prompt_ids,
            width=settings.width,
            max_new_tokens=settings.max_new_tokens,
            mistake=settings.mistake,
        )
        for item in self.beams.prefill():
            if isinstance(item, Prefilled):
                yield PrefillChunk(start=item.start, stop=item.stop, ms=item.ms)
                yield self._progress("reading the prompt")
            else:
                yield None
        running: tuple[int, ...] = ()
        with closing(beam_search(self.beams, settings, self.prompt_ids, self.tree)) as search:
            while True:
                try:
                    step = next(search)
                except StopIteration as stop:
                    self.hypotheses = stop.value
                    break
                if step is None:
                    yield None
                    continue
                self._observe(step, running)
                running = step.running
                yield step_event(step, self.texts.add(step.candidates), self.beams, self.shapes, self.loaded.dtype)
                yield self._progress("searching")
        self.searched = True

    def _observe(self, step: SearchStep, running: tuple[int, ...]) -> None:
        self.steps += 1
        self.ms += step.ms
        self.decided.append(decisions(step))
        self.reordered += step.rows != tuple(range(len(step.rows))) and step.index > 1
        if not step.index or any(f.kind == "cache" for f in self.found):
            return
        due = tuple(tuple(self.tree.tokens(node)) for node in running)
        held = tuple(tuple(text) for text in self.beams.texts)
        finding = wrong_rows(RowsSeen(step.index, due, held), self.texts.name)
        if finding is not None:
            self.found.append(finding)

    def _result(self) -> BeamResult:
        nodes = [h.node for h in self.hypotheses]
        return BeamResult(
            hypotheses=tuple(hypothesis_event(h) for h in self.hypotheses),
            token_ids=tuple(tuple(self.tree.tokens(node)) for node in nodes),
            texts=tuple(self._text(node) for node in nodes),
            steps=self.steps,
            ms=self.ms,
        )

    def _follow(self) -> Part:
        p = self.params
        samplings = [Sampling()]
        if p.sampled_path:
            samplings.append(Sampling(do_sample=True, temperature=p.temperature, seed=p.seed))

        def say(done: int | None) -> Progress | None:
            if done is None:
                return None
            self.followed = done
            return self._progress("following greedy" + (" and a drawn text" if p.sampled_path else ""))

        ways = yield from relay(follow(self.beams, self.settings, self.prompt_ids, samplings), say)
        self.followed_all = True
        for way in ways:
            yield self._way(way)

    def _way(self, way: Followed) -> PathFollowed:
        children = {
            (parent, token): node
            for node, (parent, token) in enumerate(zip(self.tree.parents, self.tree.token_ids, strict=True))
        }
        nodes: list[int] = []
        for token in way.token_ids:
            parent = nodes[-1] if nodes else -1
            nodes.append(children.get((parent, token), -1) if parent >= 0 or not nodes else -1)
        score = final_score(math.fsum(way.log_probs), len(way.token_ids), self.params.length_penalty)
        return PathFollowed(
            kind="sampled" if way.sampling.do_sample else "greedy",
            token_ids=tuple(way.token_ids),
            texts=tuple(self.texts.along(way.token_ids)),
            log_probs=tuple(way.log_probs),
            nodes=tuple(nodes),
            score=score,
        )

    def _prove(self) -> Part:
        reference: ReferenceBeams | None = None
        failure = ""
        shell = make_shell(self.loaded.model)
        yield None  # a slice of its own: the first pass of generate() fills the next
        try:
            reference = yield from relay(reference_beams(shell, self.prompt_ids, self.settings), self._referred)
        except Exception as error:  # noqa: BLE001 - generate() of a foreign model can raise anything
            text = str(error).strip().splitlines()[0][:200] if str(error).strip() else ""
            failure = f"generate() failed on this model: {type(error).__name__}: {text}."
        yield self._proof(reference, failure)

    def _referred(self, done: int) -> Progress:
        self.reference_done = done
        return self._progress("checking against generate()")

    def _proof(self, reference: ReferenceBeams | None, failure: str) -> Proof:
        width, p = self.settings.width, self.params
        if reference is None:
            return Proof(
                verdict="unproven",
                claim=claim(width),
                compared=0,
                matched=0,
                explanation=failure,
                unit="hypotheses",
            )
        figures = wrong_figures(self.hypotheses, self.tree, p.length_penalty, self.texts.name)
        return judge(
            Evidence(
                width=width,
                hypotheses=self.hypotheses,
                sequences=[tuple(self.tree.tokens(h.node)) for h in self.hypotheses],
                decided=self.decided,
                reference=reference,
                found=sorted([*self.found, *figures], key=lambda f: f.index),
                dtype=str(self.loaded.dtype).removeprefix("torch."),
                name=self.texts.name,
                idle_mistake=self._idle_mistake(),
                more={"path": self.path, "steps": self.steps, "dtype": str(self.loaded.dtype).removeprefix("torch.")},
            )
        )

    def _idle_mistake(self) -> str:
        """Why a mistake that was asked for changed nothing."""
        mistake = self.params.break_run
        if mistake == "cache_not_reordered" and not self.reordered:
            return "The rows were in order at every step, so leaving them as they were was no mistake."
        if mistake == "drop_end_token" and not any(h.is_end for h in self.hypotheses):
            return "No hypothesis ended with an end token, so none could be left out."
        if mistake == "count_prompt_in_length" and self.params.length_penalty == 0:
            return "With a length penalty of 0 the length does not count."
        return ""

    def _text(self, node: int) -> str:
        return "".join(self.texts.texts[i] for i in self.tree.path(node))

    def _progress(self, stage: str) -> Progress:
        """Steps done of all steps: of the search, of the two other ways, and of `generate()`."""
        most = self.params.max_new_tokens
        search = self.steps if self.searched else most
        ways = self.followed if self.followed_all else most
        total = search + ways + max(search, self.reference_done)
        done = self.steps + self.followed + self.reference_done
        return Progress(stage=stage, done=done, total=total, number=1, stages=1)
