"""Speculative decoding beside plain decoding of the same model, dtype and rules, in one process, on the fixed prompts.

The figure is the ratio of summed times: milliseconds a token of the plain loop over those of the speculative one, the
first token (prefill) in neither, greedy and at temperature 1. Plain and speculative runs of one prompt take turns; the
order turns from prompt to prompt. gamma is chosen on other prompts, before. The bars are for the best draft.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from statistics import mean
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from benchmarks.measure import Spread, interleaved, threads
from lab.decoding.distribution import Distribution
from lab.decoding.drafts.choose import Source, Wish, make_ready, why_not
from lab.decoding.sampling import Sampling
from lab.decoding.speculative.loop import First, PlainStep, Round, plain, speculate
from lab.errors import LabError
from lab.experiments.speculative.prompts import PROMPTS, Prompt
from lab.models.prompts import encode_prompt
from lab.quantization.packed.pack import pack_shell

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

T = TypeVar("T")

BARS = {("float32", "greedy"): 1.25, ("bfloat16", "greedy"): 1.5, ("float32", "T=1"): 1.1, ("bfloat16", "T=1"): 1.25}
RECORDING_BAR = 1.05
RULES = {"greedy": Sampling(), "T=1": Sampling(do_sample=True, temperature=1.0)}
TUNING = (
    Prompt("question", "Why does the moon look larger near the horizon?", True),
    Prompt("story", "When the ferry reached the island, nobody was waiting at the pier, and", False),
    Prompt("list", "List five things to do before leaving a rented flat.", True),
    Prompt(
        "copy",
        "Repeat word for word: The repair of the north gate begins on Monday, and the south gate stays open.",
        True,
    ),
)
"""Prompts on which gamma is chosen; none of them is measured."""

GAMMAS = {"float32": (1, 2, 3), "bfloat16": (2, 3, 5)}


@dataclass
class Timed:
    """One run: what it generated and how long its tokens took, the first aside. Seconds."""

    seconds: float = 0.0
    tokens: int = 0
    token_ids: list[int] = field(default_factory=list)
    drafted: int = 0
    accepted: int = 0
    rounds: int = 0


def run_speculative(
    load: Callable[[str], LoadedModel],
    *,
    drafts: Sequence[str] = ("eagle", "lookup_eagle", "lookup", "int8"),
    dtypes: Sequence[str] = ("float32", "bfloat16"),
    rules: Sequence[str] = ("greedy", "T=1"),
    gamma: int | None = None,
    new_tokens: int = 64,
    thread_counts: Sequence[int] = (2,),
    prompts: int | None = None,
    seed: int = 0,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Everything that `lab bench speculative` prints, as plain JSON data.

    Args:
        load: from a dtype to the model.
        gamma: tokens proposed; None chooses for each draft, dtype and rule on `TUNING`.
        prompts: measure the first so many of each kind only; None: all.
    """
    results: list[dict[str, Any]] = []
    loops: list[dict[str, Any]] = []
    model_id = ""
    for dtype in dtypes:
        loaded = load(dtype)
        model_id = loaded.facts.id
        sources, skipped = _sources(loaded, drafts)
        int8 = _plain_int8(loaded)
        for count in thread_counts:
            with threads(count):
                for rule in rules:
                    bench = _Bench(loaded, rule, new_tokens, seed)
                    say(f"{dtype}, {count} thread(s), {rule}")
                    results += [
                        {"dtype": dtype, "threads": count, "rule": rule, **one}
                        for one in bench.measure(sources, skipped, _picked(prompts), gamma, int8, say)
                    ]
                if sources:
                    loops.append({"dtype": dtype, "threads": count, **_recording(loaded, sources[0], new_tokens)})
    return {
        "benchmark": "speculative",
        "model": model_id,
        "torch": torch.__version__,
        "new_tokens": new_tokens,
        "prompts": len(_picked(prompts)),
        "seed": seed,
        "bars": {f"{dtype} {rule}": bar for (dtype, rule), bar in BARS.items()},
        "bars_met": _bars_met(results),
        "recording": loops,
        "recording_bar": RECORDING_BAR,
        "results": results,
    }


def _picked(each: int | None) -> list[Prompt]:
    seen: dict[str, int] = {}
    picked = []
    for prompt in PROMPTS:
        seen[prompt.kind] = seen.get(prompt.kind, 0) + 1
        if each is None or seen[prompt.kind] <= each:
            picked.append(prompt)
    return picked


def _sources(loaded: LoadedModel, names: Sequence[str]) -> tuple[list[Source], dict[str, str]]:
    sources, skipped = [], {}
    for name in names:
        wish = Wish(name)  # type: ignore[arg-type]
        reason = why_not(loaded.facts, wish)
        if not reason:
            try:
                sources.append(_end(make_ready(loaded, wish)))
                continue
            except LabError as error:
                reason = error.message
        skipped[name] = reason
    return sources, skipped


def _plain_int8(loaded: LoadedModel) -> Any:
    """The model itself in int8, to decode with alone; None where it cannot be packed."""
    if loaded.device.type != "cpu":
        return None
    return pack_shell(loaded.model, 8).shell


@dataclass
class _Bench:
    loaded: LoadedModel
    rule: str
    new_tokens: int
    seed: int

    def measure(
        self,
        sources: Sequence[Source],
        skipped: dict[str, str],
        prompts: Sequence[Prompt],
        gamma: int | None,
        int8: Any,
        say: Callable[[str], None],
    ) -> list[dict[str, Any]]:
        chosen = {s.name: gamma if gamma is not None else self._choose(s) for s in sources}
        times: dict[str, dict[str, list[Timed]]] = {name: {} for name in ("plain", "plain int8", *chosen)}
        for number, prompt in enumerate(prompts):
            ids = self._encode(prompt)
            runs: dict[str, Callable[[], Timed]] = {"plain": lambda ids=ids: self._plain(self.loaded.model, ids)}  # type: ignore[misc]
            if int8 is not None:
                runs["plain int8"] = lambda ids=ids: self._plain(int8, ids)  # type: ignore[misc]
            for source in sources:
                runs[source.name] = lambda ids=ids, source=source: self._fast(source, chosen[source.name], ids)  # type: ignore[misc]
            names = list(runs)
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                times[name].setdefault(prompt.kind, []).append(runs[name]())
            say(f"  prompt {number + 1} of {len(prompts)}")
        rows = [{"draft": name, "skipped": why} for name, why in skipped.items()]
        for name, by_kind in times.items():
            if name != "plain" and by_kind:
                rows.append(self._row(name, chosen.get(name), times["plain"], by_kind))
        return rows

    def _choose(self, source: Source) -> int:
        """The gamma that is fastest on the tuning prompts."""
        best = {}
        for gamma in GAMMAS.get(str(self.loaded.dtype).removeprefix("torch."), (2, 3)):
            runs = [self._fast(source, gamma, self._encode(prompt), tokens=24) for prompt in TUNING]
            best[gamma] = sum(r.seconds for r in runs) / max(1, sum(r.tokens for r in runs))
        return min(best, key=best.__getitem__)

    def _row(
        self, name: str, gamma: int | None, plain_by: dict[str, list[Timed]], by_kind: dict[str, list[Timed]]
    ) -> dict[str, Any]:
        slow = [t for times in plain_by.values() for t in times]
        fast = [t for times in by_kind.values() for t in times]
        row: dict[str, Any] = {
            "draft": name,
            "skipped": "",
            "gamma": gamma,
            "speed_up": round(_ratio(slow, fast), 3),
            "spread": Spread.of([_ratio([a], [b]) for a, b in zip(slow, fast, strict=True)]).json(),
            "by_kind": {
                kind: {
                    "speed_up": round(_ratio(plain_by[kind], times), 3),
                    "spread": Spread.of([_ratio([a], [b]) for a, b in zip(plain_by[kind], times, strict=True)]).json(),
                }
                for kind, times in by_kind.items()
            },
            "tokens_per_s": round(sum(t.tokens for t in fast) / sum(t.seconds for t in fast), 2),
            "plain_tokens_per_s": round(sum(t.tokens for t in slow) / sum(t.seconds for t in slow), 2),
        }
        if gamma is not None:
            drafted, rounds = sum(t.drafted for t in fast), sum(t.rounds for t in fast)
            row["accept_drafted"] = round(sum(t.accepted for t in fast) / drafted, 3) if drafted else None
            row["tokens_per_pass"] = round(sum(t.tokens for t in fast) / rounds, 3) if rounds else None
        if self.rule == "greedy":
            row["texts_equal_plain"] = mean(float(a.token_ids == b.token_ids) for a, b in zip(slow, fast, strict=True))
        return row

    def _encode(self, prompt: Prompt) -> list[int]:
        chat = prompt.chat and bool(self.loaded.tokenizer.chat_template)
        return encode_prompt(self.loaded, prompt.text, chat)

    def _options(self, tokens: int | None = None) -> dict[str, Any]:
        return {
            "max_new_tokens": tokens or self.new_tokens,
            "end_token_ids": tuple(sorted(self.loaded.end_token_ids)),
            "distribution": Distribution(RULES[self.rule]),
            "seed": self.seed,
        }

    def _plain(self, model: Any, ids: list[int]) -> Timed:
        return _timed(plain(model, ids, **self._options()))

    def _fast(self, source: Source, gamma: int, ids: list[int], tokens: int | None = None) -> Timed:
        draft = source.fresh(len(ids) + self.new_tokens + 64)
        run = speculate(self.loaded.model, ids, draft, gamma=gamma, trace="off", **self._options(tokens))
        return _timed(run)


def _timed(run: Generator[Any, None, Any]) -> Timed:
    """Run to the end; the clock starts at the first token."""
    timed, began = Timed(), 0.0
    for item in run:
        if isinstance(item, First) or (isinstance(item, PlainStep) and item.index == 0):
            timed.token_ids.append(item.token_id)
            began = perf_counter()
        elif isinstance(item, PlainStep):
            timed.token_ids.append(item.token_id)
        elif isinstance(item, Round):
            timed.token_ids += item.token_ids
            timed.rounds += 1
            timed.drafted += len(item.proposal.token_ids)
            timed.accepted += len(item.path)
    timed.seconds = perf_counter() - began if began else 0.0
    timed.tokens = len(timed.token_ids) - 1
    return timed


def _recording(loaded: LoadedModel, source: Source, new_tokens: int) -> dict[str, Any]:
    """The same drawn run with everything recorded and with nothing: seconds of the whole loop, in turns."""
    ids = encode_prompt(loaded, PROMPTS[0].text, bool(loaded.tokenizer.chat_template))

    def run(level: Any) -> Callable[[], Timed]:
        return lambda: _timed(
            speculate(
                loaded.model,
                ids,
                source.fresh(len(ids) + new_tokens + 64),
                max_new_tokens=new_tokens,
                distribution=Distribution(RULES["T=1"]),
                trace=level,
            )
        )

    _, _ = interleaved({"off": run("off")}, 1, loaded.device)
    ratios: list[float] = []
    for turn in range(7):
        order = ("off", "full") if turn % 2 else ("full", "off")
        taken = {level: run(level)().seconds for level in order}
        ratios.append(taken["full"] / taken["off"])
    spread = Spread.of(ratios)
    return {"draft": source.name, "full_over_off": spread.json(), "met": spread.median <= RECORDING_BAR}


def _ratio(slow: Sequence[Timed], fast: Sequence[Timed]) -> float:
    """Milliseconds a token of the one over those of the other, summed over runs."""

    def each(times: Sequence[Timed]) -> float:
        return sum(t.seconds for t in times) / max(1, sum(t.tokens for t in times))

    return each(slow) / each(fast) if each(fast) else float("nan")


def _bars_met(results: Sequence[dict[str, Any]]) -> dict[str, bool]:
    """For each dtype and rule at two threads: whether the best draft passes its bar."""
    met = {}
    for (dtype, rule), bar in BARS.items():
        found = [
            r["speed_up"]
            for r in results
            if (r["dtype"], r["rule"], r["threads"]) == (dtype, rule, 2) and r.get("gamma") is not None
        ]
        if found:
            met[f"{dtype} {rule}"] = max(found) > bar
    return met


def _end(steps: Generator[Any, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result


def as_text(report: dict[str, Any]) -> str:
    """The report as lines for a person."""
    lines = [
        f"{report['model']}, torch {report['torch']}: {report['prompts']} prompts, {report['new_tokens']} new tokens; "
        "speed-up over plain decoding of the same dtype, summed time a token (range over prompts)"
    ]
    head = None
    for row in report["results"]:
        if (row["dtype"], row["threads"], row["rule"]) != head:
            head = (row["dtype"], row["threads"], row["rule"])
            bar = report["bars"].get(f"{row['dtype']} {row['rule']}")
            lines.append(f"{row['dtype']}, {row['threads']} thread(s), {row['rule']}; bar {bar}x at two threads")
        if row["skipped"]:
            lines.append(f"  {row['draft']:13} not run: {row['skipped']}")
            continue
        spread = row["spread"]
        kinds = ", ".join(f"{kind} {value['speed_up']:.2f}" for kind, value in row["by_kind"].items())
        gamma = f"γ {row['gamma']}" if row["gamma"] is not None else "   "
        lines.append(
            f"  {row['draft']:13} {gamma}  {row['speed_up']:.2f}x ({spread['min']:.2f} to {spread['max']:.2f}); "
            f"{kinds}; {row['tokens_per_s']} tokens/s, plain {row['plain_tokens_per_s']}"
        )
    for loop in report["recording"]:
        ratio = loop["full_over_off"]
        lines.append(
            f"recording everything, {loop['dtype']}, {loop['threads']} thread(s): {ratio['median']:.3f} of the time "
            f"without ({ratio['min']} to {ratio['max']}), bar {report['recording_bar']}"
        )
    lines += [f"bar {name}: {'met' if met else 'NOT MET'}" for name, met in report["bars_met"].items()]
    return "\n".join(lines)
