"""Our beam search beside `generate(num_beams=...)`, in one process, interleaved.

Rates count the whole run, prefill included, in steps (tokens of each text) a second. The bar: with its tree recorded,
every candidate with its text as an event, at least as fast as `generate()`, which records nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.decode import PROMPT
from benchmarks.measure import Spread, interleaved, slices, threads
from lab.decoding.beam.choose import choose_beams
from lab.decoding.beam.search import Settings, Tree, beam_search
from lab.events.beam_search import BeamResult, BeamStep
from lab.experiments.base import RunContext
from lab.experiments.beam_search.params import BeamSearchParams
from lab.experiments.beam_search.run import BeamSearchRunner
from lab.experiments.beam_search.session import Session
from lab.kv_cache.formula import bytes_per_token, cache_dtype, layer_shapes

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

BARS = {"recorded": 1.0}
LONG_PROMPT = PROMPT + " every ship that passed." + " The next ship came with the tide and left before the night." * 24


def run_beam(
    loaded: LoadedModel,
    *,
    beams: int = 4,
    new_tokens: int = 64,
    repeats: int = 5,
    thread_counts: tuple[int, ...] = (1, 2),
    with_long_prompt: bool = True,
    with_slices: bool = True,
) -> dict[str, Any]:
    """Everything that `lab bench beam` prints, as plain JSON data."""
    counts = thread_counts if loaded.device.type == "cpu" else (torch.get_num_threads(),)
    results = []
    for count in counts:
        with threads(count):
            result = {"threads": count, **_rates(loaded, PROMPT, beams, new_tokens, repeats)}
            if with_slices:
                result["longest_slice"] = _longest_slice(loaded, beams, new_tokens)
            results.append(result)
            if with_long_prompt:
                results.append({"threads": count, **_rates(loaded, LONG_PROMPT, beams, new_tokens, min(repeats, 3))})
    return {
        "benchmark": "beam",
        "model": loaded.facts.id,
        "dtype": str(loaded.dtype).removeprefix("torch."),
        "device": str(loaded.device),
        "torch": torch.__version__,
        "beams": beams,
        "new_tokens": new_tokens,
        "repeats": repeats,
        "bars": BARS,
        "bars_met": all(r["bars_met"] for r in results),
        "results": results,
    }


def _rates(loaded: LoadedModel, prompt: str, beams: int, new: int, repeats: int) -> dict[str, Any]:
    ids = [int(i) for i in loaded.tokenizer(prompt).input_ids]
    params = BeamSearchParams(prompt=prompt, num_beams=beams, max_new_tokens=new)
    candidates: dict[str, Callable[[], tuple[int, list[int], int]]] = {
        "generate": lambda: _generate(loaded, ids, beams, new),
        "search": lambda: _search(loaded, ids, beams, new),
        "recorded": lambda: _recorded(loaded, params),
    }
    seconds, results = interleaved(candidates, repeats, loaded.device)
    steps, texts, _ = results["generate"]
    paths = {
        name: {
            "steps_per_s": Spread.of([steps / s for s in taken]).json(2),
            "ratio": Spread.of([g / s for g, s in zip(seconds["generate"], taken, strict=True)]).json(),
            "best_equals_generate": results[name][1] == texts,
        }
        for name, taken in seconds.items()
    }
    per_token = bytes_per_token(layer_shapes(loaded.facts), cache_dtype(str(loaded.dtype).removeprefix("torch.")))
    return {
        "prompt_tokens": len(ids),
        "paths": paths,
        "cache_bytes": results["recorded"][2],
        "cache_bytes_of_generate": beams * (len(ids) + steps - 1) * per_token,
        "bars_met": all(paths[name]["ratio"]["median"] >= bar for name, bar in BARS.items()),  # type: ignore[index]
    }


def _generate(loaded: LoadedModel, ids: list[int], beams: int, new: int) -> tuple[int, list[int], int]:
    model: Any = loaded.model
    prompt = torch.tensor([ids], device=loaded.device)
    with torch.inference_mode():
        made = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=new,
            num_beams=beams,
            do_sample=False,
            eos_token_id=sorted(loaded.end_token_ids) or None,
            pad_token_id=0,
        )
    tokens = [int(t) for t in made[0, len(ids) :]]
    return len(tokens), tokens, 0


def _search(loaded: LoadedModel, ids: list[int], beams: int, new: int) -> tuple[int, list[int], int]:
    rows = choose_beams(loaded.model, ids, width=beams, max_new_tokens=new)
    for _ in rows.prefill():
        pass
    settings = Settings(width=beams, max_new_tokens=new, end_token_ids=tuple(sorted(loaded.end_token_ids)))
    tree = Tree()
    search = beam_search(rows, settings, ids, tree)
    while True:
        try:
            next(search)
        except StopIteration as stop:
            return new, tree.tokens(stop.value[0].node), rows.held().bytes


def _recorded(loaded: LoadedModel, params: BeamSearchParams) -> tuple[int, list[int], int]:
    session = Session(RunContext(model=loaded), params)
    steps: list[BeamStep] = []
    with closing(session.events()) as events:
        for event in events:
            if isinstance(event, BeamStep):
                steps.append(event)
            elif isinstance(event, BeamResult):
                break  # the other ways and the proof come after it
    return len(steps), session.tree.tokens(session.hypotheses[0].node), steps[-1].cache_bytes


def _longest_slice(loaded: LoadedModel, beams: int, new: int) -> dict[str, Any]:
    """Of a whole run at this width, and at the greatest; the proof included."""
    found: dict[str, Any] = {}
    for width, tokens in ((beams, new), (16, 8)):
        params = BeamSearchParams(prompt=PROMPT, num_beams=width, max_new_tokens=tokens)
        run = BeamSearchRunner().run(RunContext(model=loaded), params)
        ms, what = max(slices(run, loaded.device)[0])
        found[f"{width} beams"] = {"ms": round(ms, 1), "ended_in": what}
    return found


def as_text(report: dict[str, Any]) -> str:
    """The report as lines for a person."""
    lines = [
        f"{report['model']}, {report['dtype']}, {report['device']}, torch {report['torch']}: "
        f"{report['beams']} beams, {report['new_tokens']} new tokens, {report['repeats']} rounds"
    ]
    for result in report["results"]:
        lines.append(f"{result['threads']} thread(s), {result['prompt_tokens']} prompt tokens")
        for name, path in result["paths"].items():
            rate, ratio = path["steps_per_s"], path["ratio"]
            bar = f", bar {BARS[name]}x" if name in BARS else ""
            same = "" if path["best_equals_generate"] else ", TOKENS DIFFER"
            lines.append(
                f"  {name:9} {rate['median']:7.2f} steps/s ({rate['min']} to {rate['max']}), "
                f"{ratio['median']:.2f}x ({ratio['min']} to {ratio['max']}){bar}{same}"
            )
        ours, theirs = result["cache_bytes"] / 2**20, result["cache_bytes_of_generate"] / 2**20
        lines.append(f"  cache at the end {ours:.1f} MiB; a copy of the prompt for each beam makes it {theirs:.1f} MiB")
        for name, longest in result.get("longest_slice", {}).items():
            lines.append(f"  longest slice with {name}: {longest['ms']} ms ({longest['ended_in']})")
    lines.append("bars met" if report["bars_met"] else "BARS NOT MET")
    return "\n".join(lines)
