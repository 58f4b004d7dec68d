"""A small beam search over a made-up distribution that emits the events of a run: structure for tests of the views."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from samples import sample_facts

from lab.events import Event, Proof, Recording, RunCard, RunFinished, RunStarted
from lab.events.beam_search import BeamResult, BeamStep, Hypothesis, Node, PathFollowed
from lab.events.decoding import PrefillChunk, PromptEncoded
from lab.events.recording import Inspection
from lab.experiments.beam_search.params import BeamSearchParams

END = 0
HOSTILE = "<img src=x onerror=window.X=1>"
WORDS = (
    "<end>| the| red|,| blue| and| yellow|.| green| colours| are| primary| of| a| light| three| which|\n| mixed| paint"
    f"| with| to| make| other| all| these| is| called| they|🙂| orange| secondary|{HOSTILE}| painters| use| not| black"
).split("|")
PROMPT = ("The", " three", " primary", " colours", " are")
BYTES_A_TOKEN = 46_080


def log_probs(prefix: Sequence[int], seed: int, end: float) -> list[float]:
    """Of each next token; depends on the last two, so that texts repeat as real ones do."""
    source = random.Random(f"{seed}{tuple(prefix[-2:])}")
    logits = [source.gauss(0.0, 1.0) * 2.6 for _ in WORDS]
    logits[END] = end + 0.12 * len(prefix)
    top = max(logits)
    total = top + math.log(sum(math.exp(x - top) for x in logits))
    return [x - total for x in logits]


@dataclass(frozen=True)
class Beam:
    """A running text: its last node, its tokens, its sum."""

    node: int
    tokens: tuple[int, ...]
    score: float


class Search:
    """One search; `events` runs it. The rules are simpler than the real ones; the events are as real."""

    def __init__(self, seed: int = 1, end: float = -1.0, **params: object) -> None:
        self.params = BeamSearchParams.model_validate(params)
        self.seed, self.end = seed, end
        self.count = 0
        self.tokens: dict[int, tuple[int, ...]] = {-1: ()}
        self.nodes: dict[tuple[int, ...], int] = {}
        self.shelf: list[Hypothesis] = []

    def started(self) -> RunStarted:
        model = sample_facts()
        card = RunCard(
            experiment="beam_search",
            model=model.id,
            weight_hash=model.weight_hash,
            dtype="float32",
            device="cpu",
            attention="sdpa",
            threads=2,
            params=self.params.model_dump(mode="json"),
        )
        return RunStarted(run_id=f"toy-{self.seed}", card=card, facts=model)

    def step(self, index: int, beams: list[Beam]) -> tuple[BeamStep, list[Beam]]:
        """All running beams extended once."""
        params, width = self.params, self.params.num_beams
        last = index == params.max_new_tokens - 1
        found = sorted(
            (-(beam.score + p), row, token, p)
            for row, beam in enumerate(beams)
            for token, p in enumerate(log_probs(beam.tokens, self.seed, self.end))
        )[: 2 * width]
        nodes, kept = [], []
        for rank, (negative, row, token, p) in enumerate(found):
            beam, node, score = beams[row], self.count, -negative
            self.count += 1
            self.tokens[node] = (*beam.tokens, token)
            self.nodes[self.tokens[node]] = node
            fate, reason, becomes = "pruned", "rank", -1
            if (token == END or last) and rank < width:
                fate, reason = self._finish(node, index + 1, score, token == END)
            elif token == END or last:
                reason = "not_a_hypothesis"
            elif len(kept) < width:
                fate, reason, becomes = "kept", "", len(kept)
                kept.append(Beam(node, self.tokens[node], score))
            text = "<|im_end|>" if token == END else WORDS[token]
            nodes.append(Node(node, beam.node, row, token, text, p, score, rank, fate, reason, becomes))  # type: ignore[arg-type]
        full = len(self.shelf) == width
        stop = "the length limit" if last else "as many finished texts as beams" if full else ""
        bound = kept[0].score / (index + 1) ** params.length_penalty if kept else math.nan
        length = len(PROMPT) + index
        size = BYTES_A_TOKEN * length * width
        return BeamStep(
            index=index,
            nodes=tuple(nodes),
            running=tuple(b.node for b in kept),
            shelf=tuple(self.shelf),
            best_possible=bound,
            stop=stop,
            ms=60.0 + width,
            reorder_ms=1.5,
            cache_length=length,
            cache_bytes=size,
            formula_bytes=size,
        ), kept

    def _finish(self, node: int, length: int, total: float, is_end: bool) -> tuple[str, str]:
        made = Hypothesis(node, length, total, total / length**self.params.length_penalty, is_end)
        self.shelf = sorted([*self.shelf, made], key=lambda h: -h.score)
        worse = self.shelf[self.params.num_beams :]
        self.shelf = self.shelf[: self.params.num_beams]
        if made not in worse:
            return "finished", ""
        return "pruned", "length_penalty" if total > self.shelf[-1].sum_log_prob else "finished_pool"

    def path(self, kind: str) -> PathFollowed:
        """Greedy's or a drawn text through the same distributions."""
        source, tokens, ps = random.Random(self.seed), list[int](), list[float]()
        while len(tokens) < self.params.max_new_tokens and END not in tokens:
            p = log_probs(tokens, self.seed, self.end)
            best = max(range(len(p)), key=p.__getitem__)
            token = best if kind == "greedy" else source.choices(range(len(p)), [math.exp(x) for x in p])[0]
            tokens.append(token)
            ps.append(p[token])
        return PathFollowed(
            kind=kind,  # type: ignore[arg-type]
            token_ids=tuple(tokens),
            texts=tuple("<|im_end|>" if t == END else WORDS[t] for t in tokens),
            log_probs=tuple(ps),
            nodes=tuple(self.nodes.get(tuple(tokens[: i + 1]), -1) for i in range(len(tokens))),
            score=sum(ps) / len(ps) ** self.params.length_penalty,
        )

    def events(self) -> list[Event]:
        """The whole run, the final event left out."""
        prompt = PromptEncoded(token_ids=tuple(range(len(PROMPT))), texts=PROMPT, chat=False)
        out: list[Event] = [self.started(), prompt, PrefillChunk(start=0, stop=len(PROMPT), ms=120.0)]
        beams = [Beam(-1, (), 0.0)]
        for index in range(self.params.max_new_tokens):
            step, beams = self.step(index, beams)
            out.append(step)
            if step.stop or not beams:
                break
        out.append(self.path("greedy"))
        if self.params.sampled_path:
            out.append(self.path("sampled"))
        texts = tuple("".join(WORDS[t] for t in self.tokens[h.node] if t != END) for h in self.shelf)
        ids = tuple(self.tokens[h.node] for h in self.shelf)
        steps = sum(isinstance(e, BeamStep) for e in out)
        out.append(BeamResult(hypotheses=tuple(self.shelf), token_ids=ids, texts=texts, steps=steps, ms=66.0 * steps))
        claim = f"identical to generate(num_beams={self.params.num_beams})"
        out.append(Proof(verdict="equal", claim=claim, compared=len(ids), matched=len(ids), unit="hypotheses"))
        return out

    def recording(self) -> Recording:
        """The run with its end."""
        events = self.events()
        best = next(e for e in events if isinstance(e, BeamResult))
        return Recording(
            (*events, RunFinished(token_ids=best.token_ids[0], text=best.texts[0])),
            (Inspection(name="worked_example", params={}, answer={}),),
        )
