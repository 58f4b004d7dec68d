"""Our token loop beside `generate()`, in one process, interleaved.

Rates count the whole run, prefill included, in new tokens a second. The bars: with the trace off at least 1.15
times `generate()`, with the full trace (attention of every layer, candidates, gaps) at least as fast as
`generate()` untraced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.measure import GIB, Spread, interleaved, read_bandwidth, slices, threads
from lab.decoding.cache_layout import total_bytes
from lab.decoding.loop import Decoded, decode
from lab.decoding.trace import Trace

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

BARS = {"off": 1.15, "full": 1.0}
PROMPT = "Once upon a time, in a small harbour town, there lived a keeper of the lighthouse who wrote down"
LONG_PROMPT_TOKENS = 512
SLICE_LIMIT_MS = 200.0


def run_decode(
    loaded: LoadedModel,
    *,
    new_tokens: int = 32,
    repeats: int = 7,
    thread_counts: tuple[int, ...] = (1, 2),
    with_slices: bool = True,
) -> dict[str, Any]:
    """Everything that `lab bench decode` prints, as plain JSON data."""
    ids = [int(i) for i in loaded.tokenizer(PROMPT).input_ids]
    weight_bytes = sum(p.nbytes for p in loaded.model.parameters())
    counts = thread_counts if loaded.device.type == "cpu" else (torch.get_num_threads(),)
    results = []
    for count in counts:
        with threads(count):
            result = {"threads": count, **_rates(loaded, ids, new_tokens, repeats, weight_bytes)}
            if with_slices:
                result["longest_slice"] = longest_slices(loaded)
            results.append(result)
    name = torch.cuda.get_device_name(loaded.device) if loaded.device.type == "cuda" else ""
    return {
        "benchmark": "decode",
        "model": loaded.facts.id,
        "dtype": str(loaded.dtype).removeprefix("torch."),
        "device": f"{loaded.device} {name}".strip(),
        "torch": torch.__version__,
        "prompt_tokens": len(ids),
        "new_tokens": new_tokens,
        "repeats": repeats,
        "weight_bytes": weight_bytes,
        "bars": BARS,
        "bars_met": all(r["bars_met"] for r in results),
        "results": results,
    }


def _rates(loaded: LoadedModel, ids: list[int], new: int, repeats: int, weight_bytes: int) -> dict[str, Any]:
    everything = tuple(range(len(loaded.facts.layers)))
    candidates: dict[str, Callable[[], Any]] = {
        "generate": lambda: plain_generate(loaded, ids, new),
        "off": lambda: _ours(loaded, ids, new, Trace("off")),
        "light": lambda: _ours(loaded, ids, new, Trace("light")),
        "full": lambda: _ours(loaded, ids, new, Trace("full", everything)),
    }
    seconds, results = interleaved(candidates, repeats, loaded.device)
    probe = read_bandwidth(weight_bytes, loaded.device)
    reference = results["generate"]
    paths: dict[str, Any] = {}
    for name, taken in seconds.items():
        tokens = reference if name == "generate" else results[name].token_ids
        rate = Spread.of([len(tokens) / s for s in taken])
        paths[name] = {
            "tokens_per_s": rate.json(2),
            "ratio": Spread.of([g / s for g, s in zip(seconds["generate"], taken, strict=True)]).json(),
            "bandwidth_share": round((weight_bytes + _cache_bytes(results)) * rate.median / probe.median, 3),
            "tokens_equal_generate": tokens == reference,
        }
        if name != "generate":
            paths[name]["path"] = results[name].path
    return {
        "paths": paths,
        "read_bandwidth_gib_per_s": probe.scaled(1 / GIB).json(2),
        "bars_met": all(paths[name]["ratio"]["median"] >= bar for name, bar in BARS.items()),
    }


def plain_generate(loaded: LoadedModel, ids: list[int], new: int, **options: Any) -> list[int]:
    """The new tokens of transformers' own `generate()`: greedy unless `options` say otherwise, no end token."""
    model: Any = loaded.model
    prompt = torch.tensor([ids], device=loaded.device)
    with torch.inference_mode():
        tokens = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=new,
            pad_token_id=0,
            eos_token_id=None,
            **{"do_sample": False, **options},
        )
    return [int(t) for t in tokens[0, len(ids) :]]


def _ours(loaded: LoadedModel, ids: list[int], new: int, trace: Trace) -> Decoded:
    run = decode(loaded.model, ids, max_new_tokens=new, trace=trace)
    while True:
        try:
            next(run)
        except StopIteration as stop:
            decoded: Decoded = stop.value
            return decoded


def _cache_bytes(results: dict[str, Any]) -> float:
    # A step reads what the cache holds; over a run that is half of the end's on top of the prompt's, about.
    return total_bytes(results["off"].cache)[0] / 2


def longest_slices(loaded: LoadedModel) -> dict[str, Any]:
    """The longest slice of each experiment's default run, and of the prefill of a long prompt."""
    from lab.experiments.base import RunContext
    from lab.experiments.registry import EXPERIMENTS

    found: dict[str, Any] = {}
    for name, experiment in EXPERIMENTS.items():
        runner = experiment.load()
        run = runner.run(RunContext(model=loaded), experiment.params())
        found[name] = _longest(slices(run, loaded.device)[0])
    long_prompt = [(7 * i) % loaded.facts.vocab for i in range(LONG_PROMPT_TOKENS)]
    run_long = decode(loaded.model, long_prompt, max_new_tokens=2)
    found[f"prefill_of_{LONG_PROMPT_TOKENS}"] = _longest(slices(run_long, loaded.device)[0])
    return found


def _longest(taken: list[tuple[float, str]]) -> dict[str, Any]:
    ms, what = max(taken)
    over = sum(m > SLICE_LIMIT_MS for m, _ in taken)
    return {"ms": round(ms, 1), "ended_in": what, "slices": len(taken), f"over_{SLICE_LIMIT_MS:.0f}_ms": over}


def as_text(report: dict[str, Any]) -> str:
    """The report as lines for a person."""
    lines = [
        f"{report['model']}, {report['dtype']}, {report['device']}, torch {report['torch']}: "
        f"{report['prompt_tokens']} prompt tokens, {report['new_tokens']} new, {report['repeats']} rounds"
    ]
    for result in report["results"]:
        probe = result["read_bandwidth_gib_per_s"]["median"]
        lines.append(f"{result['threads']} thread(s); reads {probe} GiB/s")
        for name, path in result["paths"].items():
            rate, ratio = path["tokens_per_s"], path["ratio"]
            bar = f", bar {BARS[name]}x" if name in BARS else ""
            same = "" if path["tokens_equal_generate"] else ", TOKENS DIFFER"
            lines.append(
                f"  {name:9} {rate['median']:7.2f} tokens/s ({rate['min']} to {rate['max']}), "
                f"{ratio['median']:.2f}x ({ratio['min']} to {ratio['max']}){bar}, "
                f"{path['bandwidth_share']:.0%} of the read bandwidth{same}"
            )
        for name, longest in result.get("longest_slice", {}).items():
            lines.append(f"  longest slice of {name}: {longest['ms']} ms ({longest['ended_in']})")
    lines.append("bars met" if report["bars_met"] else "BARS NOT MET")
    return "\n".join(lines)
