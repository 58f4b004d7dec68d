"""Events of `speculative` runs without a model: a seeded toy distribution, judged by the rule itself.

For tests of the page alone: the structure is that of real runs, the words are not.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from samples import sample_facts

from lab.events import (
    Event,
    Proof,
    Recording,
    RunCancelled,
    RunCard,
    RunFailed,
    RunFinished,
    RunStarted,
)
from lab.events.decoding import PrefillChunk, PromptEncoded
from lab.events.recording import Inspection
from lab.events.speculative import (
    DraftRanked,
    DraftReady,
    FirstToken,
    IdentityShown,
    Judged,
    Kind,
    PlainToken,
    Share,
    SpeculativeFigures,
    SpeculativeRound,
    SweepPoint,
    TrialPoint,
)
from lab.experiments.speculative.params import SpeculativeParams

WORDS = (" the", " river", " bank", " mouth", " where", " it", " meets", " sea", ",", ".", " and", " slowly", " turns")
HOSTILE = (
    "<img src=x onerror=window.X=1>",
    "👩\u200d👩\u200d👧",
    "\n\n",
    "",
    "\u202eabc",
    " `code`",
    "$$x^2$$",
    "x" * 90,
)
EXAMPLE: dict[str, Any] = {
    "p": [0.2, 0.5, 0.3],
    "q": [0.5, 0.3, 0.2],
    "acceptance": [0.4, 1.0, 1.0],
    "residual": [0.0, 2 / 3, 1 / 3],
    "kept": [0.2, 0.3, 0.2],
    "replaced": [0.0, 0.2, 0.1],
    "emitted": [0.2, 0.5, 0.3],
    "total_acceptance": 0.7,
    "alpha": 0.7,
    "total_variation": 0.3,
}


@dataclass(frozen=True)
class Toy:
    """What to simulate.

    Attributes:
        closeness: 1: the draft is the model; 0: it is another distribution altogether.
        one_hot: the draft looks up instead of drawing, and sometimes finds nothing.
        end: "finished", "stopped" or "failed".
    """

    words: tuple[str, ...] = WORDS
    closeness: float = 0.5
    one_hot: bool = False
    end: str = "finished"
    recorded: str = "2026-11-29T21:00:00+00:00"
    seed: int = 3
    slow: float = 1.0


def started(params: dict[str, Any], recorded: str) -> RunStarted:
    """The start of a run of `speculative` on the packaged model's shape."""
    facts = sample_facts()
    card = RunCard(
        experiment="speculative",
        model=facts.id,
        weight_hash=facts.weight_hash,
        dtype="float32",
        device="cpu",
        attention="sdpa",
        threads=2,
        params=SpeculativeParams(**params).model_dump(mode="json"),
    )
    return RunStarted(run_id="toy", card=card, facts=facts, recorded=recorded)


class Decoder:
    """Speculative decoding over `toy.words`, with p and q drawn anew at each position."""

    def __init__(self, toy: Toy, params: SpeculativeParams) -> None:
        self.toy, self.params, self.random = toy, params, random.Random(toy.seed)
        self.accepted = self.judged = self.drafted = 0
        self.alphas: list[float] = []
        self.depths = [[0, 0] for _ in range(params.gamma)]

    def distributions(self) -> tuple[list[float], list[float]]:
        """p and q over the words."""
        n = len(self.toy.words)
        p, other = (self._normal([self.random.random() ** 5 for _ in range(n)]) for _ in range(2))
        q = [self.toy.closeness * a + (1 - self.toy.closeness) * b for a, b in zip(p, other, strict=True)]
        if not self.params.do_sample or self.toy.one_hot:
            q = _one_hot(q)
        return (p if self.params.do_sample else _one_hot(p)), q

    def _normal(self, values: list[float]) -> list[float]:
        total = sum(values)
        return [v / total for v in values]

    def draw(self, weights: list[float]) -> int:
        return self.random.choices(range(len(weights)), weights)[0]

    def round(self, index: int, position: int, cache: int, left: int) -> SpeculativeRound:
        """One round; at most `left` new tokens."""
        toy, sampling = self.toy, self.params.do_sample
        nothing = toy.one_hot and self.random.random() < 0.3
        gamma = 0 if nothing else min(self.params.gamma, left - 1)
        proposed = [(*self.distributions(),) for _ in range(gamma)]
        tokens: list[Judged] = []
        stopped = False
        for depth, (p, q) in enumerate(proposed):
            token = self.draw(q)
            if stopped:
                tokens.append(self._judged(depth, position + depth, token, "unjudged", p, q, math.nan))
                continue
            u = self.random.random() if sampling else math.nan
            accept = min(1.0, p[token] / q[token])
            kind: Kind = "accepted" if (u < accept if sampling else p[token] > 0) else "rejected"
            stopped = kind == "rejected"
            self.alphas.append(sum(map(min, p, q)))
            self.depths[depth][0] += 1
            self.depths[depth][1] += not stopped
            tokens.append(self._judged(depth, position + depth, token, kind, p, q, u))
        kept = sum(t.kind == "accepted" for t in tokens)
        self.drafted += gamma
        self.judged += sum(t.kind != "unjudged" for t in tokens)
        self.accepted += kept
        p, q = proposed[kept] if stopped else self.distributions()
        token = self.draw(_residual(p, q) if stopped else p)
        last = self._judged(
            kept, position + kept, token, "resampled" if stopped else "bonus" if gamma else "plain", p, q, math.nan
        )
        tokens.append(replace(last, q=math.nan, accept=math.nan, alpha=math.nan, parent=kept - 1))
        own = 0 if toy.one_hot else cache
        jitter = 0.9 + self.random.random() * 0.2
        return SpeculativeRound(
            index=index,
            gamma=self.params.gamma,
            tokens=tuple(tokens),
            emitted=kept + 1,
            source=("nothing found" if nothing else "3-gram at position 17") if toy.one_hot else "",
            draft_ms=(0.4 if toy.one_hot else 6.0 * gamma) * jitter,
            verify_ms=(50 + 12 * gamma) * jitter * toy.slow,
            judge_ms=0.8 * jitter,
            target_positions=(cache, cache + gamma + 1, cache + kept + 1),
            draft_positions=(own, own + gamma, own + kept) if own else (0, 0, 0),
            target_bytes=(cache + kept + 1) * 46_080,
            draft_bytes=own * 1536,
        )

    def _judged(
        self, depth: int, position: int, token: int, kind: Kind, p: list[float], q: list[float], u: float
    ) -> Judged:
        rest = _residual(p, q)
        order = sorted(range(len(p)), key=lambda i: -max(p[i], q[i], rest[i]))[:6]
        order += [] if token in order else [token]
        shares = tuple(Share(i, self.toy.words[i], p[i], q[i], rest[i]) for i in order)
        seen = kind != "unjudged"
        return Judged(
            depth=depth,
            position=position,
            token_id=token,
            text=self.toy.words[token],
            kind=kind,
            p=p[token],
            q=q[token],
            accept=min(1.0, p[token] / q[token]) if seen and q[token] else math.nan,
            u=u,
            alpha=sum(map(min, p, q)) if seen else math.nan,
            shares=shares if seen else (),
            parent=depth - 1,
        )

    def figures(self, rounds: list[SpeculativeRound], *, gamma: int | None = None) -> SpeculativeFigures:
        """The figures, by their definitions."""
        emitted = sum(r.emitted for r in rounds)
        alpha = sum(self.alphas) / len(self.alphas) if self.alphas else None
        ms = sum(r.draft_ms + r.verify_ms + r.judge_ms for r in rounds) / emitted if emitted else 0.0
        plain = 52.0
        c = sum(r.draft_ms for r in rounds) / self.drafted / plain if self.drafted else None
        v = sum(r.verify_ms for r in rounds) / len(rounds) / plain if rounds else None
        g = self.params.gamma
        expected = None if alpha is None else (g + 1 if alpha == 1 else (1 - alpha ** (g + 1)) / (1 - alpha))
        predicted = expected / (g * c + v) if expected and c is not None and v else None
        measured = plain / ms if ms else None
        return SpeculativeFigures(
            draft=self.params.draft,
            gamma=g if gamma is None else gamma,
            mean_gamma=float(g),
            rounds=len(rounds),
            new_tokens=emitted + 1,
            drafted=self.drafted,
            judged=self.judged,
            accepted=self.accepted,
            accept_judged=self.accepted / self.judged if self.judged else None,
            accept_drafted=self.accepted / self.drafted if self.drafted else None,
            by_depth=tuple((a, b) for a, b in self.depths if a),
            tokens_per_pass=emitted / len(rounds) if rounds else None,
            alpha=alpha,
            total_variation=None if alpha is None else 1 - alpha,
            expected_tokens=expected,
            c=c,
            v=v,
            predicted=predicted,
            measured=measured,
            break_even_alpha=0.41 if self.drafted else None,
            plain_ms=plain,
            speculative_ms=ms,
            verdict=_verdict(measured),
        )


def _verdict(measured: float | None) -> str:
    if measured is None:
        return "no token was judged, so nothing can be said"
    if measured > 1.02:
        return f"{measured:.2f} times faster than plain decoding"
    return f"slower ({measured:.2f} times), because too few guesses are accepted for what they cost"


def _one_hot(values: list[float]) -> list[float]:
    best = max(range(len(values)), key=values.__getitem__)
    return [float(i == best) for i in range(len(values))]


def _residual(p: list[float], q: list[float]) -> list[float]:
    rest = [max(0.0, a - b) for a, b in zip(p, q, strict=True)]
    total = sum(rest)
    return [r / total for r in rest] if total else list(p)


def decode(toy: Toy = Toy(), **params: Any) -> list[Event]:
    """A run of the task "decode"."""
    start = started({"max_new_tokens": 40, **params}, toy.recorded)
    checked = SpeculativeParams(**start.card.params)
    decoder = Decoder(toy, checked)
    prompt = ("Tell", " me", " how", " a", " river", " ends", ".")
    events: list[Event] = [
        start,
        PromptEncoded(token_ids=tuple(range(len(prompt))), texts=prompt, chat=True),
        PrefillChunk(start=0, stop=len(prompt), ms=80.0),
        DraftReady(draft=checked.draft, title="trained head (EAGLE-style)", notes=("One layer",), bytes=9_437_184),
    ]
    p, _ = decoder.distributions()
    first = decoder.draw(p)
    events.append(FirstToken(token_id=first, text=toy.words[first], p=p[first], ends=False))
    rounds: list[SpeculativeRound] = []
    new, cache = 1, len(prompt)
    while new < checked.max_new_tokens:
        rounds.append(decoder.round(len(rounds), new, cache, checked.max_new_tokens - new))
        new += rounds[-1].emitted
        cache += rounds[-1].emitted
        events.append(rounds[-1])
        if toy.end != "finished" and len(rounds) == 5:
            break
    if toy.end == "stopped":
        return [*events, RunCancelled(reason="stopped")]
    if toy.end == "failed":
        return [*events, RunFailed(code="model", message="The draft could not go on.", remedy="Choose another.")]
    events += [
        PlainToken(index=i, token_id=i % 7, text=toy.words[i % len(toy.words)], ms=52.0 + i % 3) for i in range(1, new)
    ]
    events.append(decoder.figures(rounds))
    events.append(Proof(verdict="equal", claim="identical to plain decoding", compared=new, matched=new))
    return [*events, RunFinished(token_ids=tuple(range(new)), text="toy")]


def sweep(**params: Any) -> list[Event]:
    """A run of the task "sweep"."""
    events: list[Event] = [started({"task": "sweep", **params}, Toy.recorded)]
    for gamma in range(1, 9):
        toy = replace(Toy(closeness=0.8, slow=0.9), seed=gamma)
        checked = SpeculativeParams(gamma=gamma, max_new_tokens=60)
        decoder = Decoder(toy, checked)
        rounds: list[SpeculativeRound] = []
        while sum(r.emitted for r in rounds) < 59:
            rounds.append(decoder.round(len(rounds), 1, 7, 30))
        events.append(SweepPoint(gamma=gamma, figures=decoder.figures(rounds)))
    return [*events, RunFinished()]


def drafts(**params: Any) -> list[Event]:
    """A run of the task "drafts": two cannot run."""
    events: list[Event] = [started({"task": "drafts", **params}, Toy.recorded)]
    table = [("lookup", "prompt look-up", 1.24), ("eagle", "trained head (EAGLE-style)", 1.42)]
    table += [
        ("early_exit", "the model's first layers", 0.71),
        ("lookup_eagle", "look-up, else the trained head", 1.55),
    ]
    decoder = Decoder(Toy(), SpeculativeParams())
    rounds = [decoder.round(i, 1, 7, 30) for i in range(8)]
    for name, title, speed in table:
        figures = replace(decoder.figures(rounds), draft=name, measured=speed, verdict=_verdict(speed))
        kinds = tuple((k, speed * f, 0.5 * f) for k, f in (("question", 0.9), ("story", 0.85), ("copy", 1.3)))
        ranked = DraftRanked(draft=name, title=title, skipped="", figures=figures, by_kind=kinds, bytes=9_437_184)
        events.append(ranked)
    for name, why in (("int8", "this model's weights are no plain matrices"), ("model", "no draft model was named")):
        events.append(DraftRanked(draft=name, title=f"draft {name}", skipped=why, figures=None, by_kind=(), bytes=0))
    return [*events, RunFinished()]


def trial(*, wrong: bool = False, power: float = 0.9999, **params: Any) -> list[Event]:
    """A run of the task "trial"."""
    decoder = Decoder(Toy(closeness=0.2), SpeculativeParams())
    p, q = decoder.distributions()
    rest = _residual(p, q)
    shares = tuple(Share(i, WORDS[i], p[i], q[i], rest[i]) for i in sorted(range(len(p)), key=lambda i: -p[i])[:8])
    variation = sum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2
    events: list[Event] = [
        started({"task": "trial", **({"break_run": "no_residual"} if wrong else {}), **params}, Toy.recorded),
        IdentityShown(total_variation=variation, largest_difference=5.6e-17, shares=shares),
    ]
    top = sorted(range(len(p)), key=lambda i: -p[i])
    pairs = [(WORDS[i], WORDS[j], p[i] * p[j]) for i in top[:4] for j in top[:3]]
    for runs in range(100, 2001, 100):
        odd = 1.35 if wrong else 1.02
        told = tuple(
            (a, b, runs * e, round(runs * e * (odd if n % 2 else 2 - odd))) for n, (a, b, e) in enumerate(pairs)
        )
        left = runs - sum(e for _, _, e, _ in told)
        events.append(
            TrialPoint(
                runs=runs,
                planned=2000,
                statistic=runs * 0.4 if wrong else 31.2,
                degrees=30,
                p_value=10 ** (-runs / 40) if wrong else 0.2 + 0.6 * abs(math.sin(runs)),
                total_variation=0.21 if wrong else 0.9 / math.sqrt(runs),
                expected_variation=0.88 / math.sqrt(runs),
                power=power * (1 - math.exp(-runs / 100)) if power > 0.9 else power,
                pairs=(*told, ("", "", left, round(left))),
            )
        )
    return [*events, RunFinished()]


def save(events: list[Event], path: Path) -> Path:
    """Write the run as a recording, with the worked example asked."""
    asked = Inspection(name="worked_example", params={}, answer=EXAMPLE)
    Recording(tuple(events), (asked,)).save(path)
    return path


def each_task() -> Iterator[tuple[str, list[Event]]]:
    """One run of each task."""
    yield from (("decode", decode()), ("sweep", sweep()), ("drafts", drafts()), ("trial", trial()))
