"""Packed models beside the dense one, in one process, step by step in turn.

A packed model is written to a directory, loaded again, and decodes the same prompt: MiB on disk and resident, tokens/s
and prefill, and the first greedy token that differs. The bar: int8 decodes at least 1.5 times as fast as dense fp32
on two threads, with and without a packed head.

Run: python -m benchmarks.packed [--json]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.measure import Spread, threads
from lab.decoding.choose_pass import choose_pass
from lab.decoding.passes import Pass
from lab.quantization.directory import write_quantized
from lab.quantization.load import LoadedQuantized, load_quantized
from lab.quantization.methods import Settings, make_method
from lab.quantization.packed.modules import PackedLinear
from lab.quantization.whole_model import quantize_model

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

BAR = 1.5
MIB = 1 << 20
NEW_TOKENS = 40
PROMPTS = (
    "Once upon a time, in a small harbour town, there lived a keeper of the lighthouse who wrote down",
    "The capital of France is",
    "def fibonacci(n):\n",
    "Water boils at a lower temperature on a mountain because",
)
VARIANTS = {
    "int8": (Settings(bits=8, share="row"), False),
    "int8_head": (Settings(bits=8, share="row"), True),
    "int4": (Settings(bits=4, share=32), False),
    "int4_head": (Settings(bits=4, share=32), True),
}


def run_packed(loaded: LoadedModel, *, thread_count: int = 2, new_tokens: int = NEW_TOKENS) -> dict[str, Any]:
    """Everything that the command prints, as plain JSON data."""
    report: dict[str, Any] = {
        "benchmark": "packed",
        "model": loaded.facts.id,
        "torch": torch.__version__,
        "threads": thread_count,
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "new_tokens": new_tokens,
        "prompts": len(PROMPTS),
        "bar": BAR,
        "variants": {},
    }
    report["dense_mib"] = round(sum(p.nbytes for p in loaded.model.parameters()) / MIB, 1)
    with tempfile.TemporaryDirectory() as place, threads(thread_count):
        made = {name: _variant(loaded, Path(place) / name, name) for name in VARIANTS}
        models = {"dense": loaded.model, **{name: variant.loaded.model for name, variant in made.items()}}
        measured = [_decode(_turned(models, turn), loaded, text, new_tokens) for turn, text in enumerate(PROMPTS)]
        for name, variant in made.items():
            report["variants"][name] = {
                "label": variant.label,
                "disk_mib": round(sum(p.stat().st_size for p in (Path(place) / name).iterdir()) / MIB, 1),
                "resident_mib": round(_resident(variant) / MIB, 1),
            } | _figures(name, measured)
    report["dense"] = _figures("dense", measured)
    report["bar_met"] = all(report["variants"][name]["ratio"]["median"] >= BAR for name in ("int8", "int8_head"))
    return report


def _variant(loaded: LoadedModel, out: Path, name: str) -> LoadedQuantized:
    settings, head = VARIANTS[name]
    made = quantize_model(loaded.model, make_method("nearest", settings), keep_codes=True, head=head)
    write_quantized(out, loaded, made, method="nearest", settings={}, calibration={}, figures={})
    return load_quantized(out, dtype="float32", device="cpu")


def _resident(variant: LoadedQuantized) -> int:
    """Bytes of parameters, codes and kernels; what several modules share is counted once."""
    model = variant.loaded.model
    size = sum(p.nbytes for p in model.parameters())
    kernels: dict[int, int] = {}
    for module in model.modules():
        if isinstance(module, PackedLinear):
            size += module.weight_codes.resident_bytes
            if module.token_kernel is not None:
                kernels[id(module.token_kernel)] = int(getattr(module.token_kernel, "resident_bytes", 0))
    return size + sum(kernels.values())


def _turned(models: dict[str, Any], turn: int) -> dict[str, Any]:
    """The same in another order for each prompt: nobody is always first."""
    names = list(models)
    return {name: models[name] for name in names[turn % len(names) :] + names[: turn % len(names)]}


def _decode(models: dict[str, Any], loaded: LoadedModel, prompt: str, new_tokens: int) -> dict[str, dict[str, Any]]:
    """One prompt through all models, each step of one after that of the other."""
    ids = [int(i) for i in loaded.tokenizer(prompt).input_ids]
    result: dict[str, dict[str, Any]] = {name: {"ms": [], "tokens": []} for name in models}
    runs: dict[str, Pass] = {}
    with torch.inference_mode():
        for name, model in models.items():
            run = choose_pass(model, len(ids) + new_tokens, layers=(), fast=None, mistake="nothing")
            run(ids, 0, last=True, attention=False)  # the first pass makes buffers
            began = perf_counter()
            logits = run(ids, 0, last=True, attention=False)
            result[name]["prefill_ms"] = (perf_counter() - began) * 1e3
            result[name]["tokens"].append(_best(logits))
            runs[name] = run
        for step in range(new_tokens - 1):
            for name, run in runs.items():
                began = perf_counter()
                logits = run((result[name]["tokens"][-1],), len(ids) + step, last=True, attention=False)
                result[name]["tokens"].append(_best(logits))
                result[name]["ms"].append((perf_counter() - began) * 1e3)
    return result


def _best(logits: torch.Tensor | None) -> int:
    if logits is None:
        raise AssertionError("asked for with last=True")
    return int(logits.argmax())


def _figures(name: str, measured: list[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    steps = [ms for one in measured for ms in one[name]["ms"]]
    ratios = [d / v for one in measured for d, v in zip(one["dense"]["ms"], one[name]["ms"], strict=True)]
    prefill = [one["dense"]["prefill_ms"] / one[name]["prefill_ms"] for one in measured]
    return {
        "tokens_per_s": Spread.of([1e3 / ms for ms in steps]).json(2),
        "ratio": Spread.of(ratios).json(),
        "prefill_ratio": Spread.of(prefill).json(),
        "first_difference": [_first_difference(one["dense"]["tokens"], one[name]["tokens"]) for one in measured],
    }


def _first_difference(one: list[int], other: list[int]) -> int | None:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), None)


def as_text(report: dict[str, Any]) -> str:
    """The report as lines for a person."""
    lines = [
        f"{report['model']}, float32, {report['threads']} thread(s), {report['cpu']}, torch {report['torch']}: "
        f"{report['prompts']} prompts, {report['new_tokens']} new tokens each",
        f"  dense      {report['dense_mib']:7.1f} MiB, {report['dense']['tokens_per_s']['median']:.1f} tokens/s",
    ]
    for name, one in report["variants"].items():
        differ = ", ".join("none" if at is None else str(at) for at in one["first_difference"])
        lines.append(
            f"  {name:10} {one['disk_mib']:7.1f} MiB on disk, {one['resident_mib']:.1f} resident, "
            f"{one['tokens_per_s']['median']:.1f} tokens/s, {one['ratio']['median']:.2f}x "
            f"({one['ratio']['min']} to {one['ratio']['max']}), prefill {one['prefill_ratio']['median']:.2f}x; "
            f"first different token: {differ} ({one['label']})"
        )
    lines.append("bar met" if report["bar_met"] else f"BAR NOT MET ({report['bar']}x for int8)")
    return "\n".join(lines)


def main() -> None:
    from lab.models.registry import DEFAULT_MODEL, load_model

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON line")
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=NEW_TOKENS)
    given = parser.parse_args()
    loaded = load_model(given.model, dtype="float32", device="cpu")
    report = run_packed(loaded, thread_count=given.threads, new_tokens=given.tokens)
    print(json.dumps(report) if given.json else as_text(report))


if __name__ == "__main__":
    main()
