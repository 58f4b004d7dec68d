"""`lab bench`: ratios measured on this machine, side by side with what a user would run instead."""

from __future__ import annotations

import importlib
import importlib.util
import json
from typing import Annotated, Any

import typer

from lab.backend.protocol import DEFAULT_MODEL
from lab.cli.console import in_words, say
from lab.errors import BadInput, NotFound, shown

DRAFTS = ("eagle", "lookup_eagle", "lookup", "retrieval", "int8", "int4", "early_exit")

app = typer.Typer(no_args_is_help=True, help="Measure this machine, side by side with what you would run instead.")


@app.callback()
def _group() -> None:
    """Benchmarks of this machine."""


@app.command("decode")
@in_words
def decode(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line.")] = False,
    model: Annotated[str, typer.Option("--model", help="Model to measure.")] = DEFAULT_MODEL,
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")] = "auto",
    dtype: Annotated[str, typer.Option("--dtype", help="auto, float32 or bfloat16.")] = "auto",
    tokens: Annotated[int, typer.Option("--tokens", help="New tokens of each run.", min=2, max=512)] = 32,
    repeats: Annotated[int, typer.Option("--repeats", help="Rounds that count.", min=1, max=100)] = 7,
    threads: Annotated[str, typer.Option("--threads", help="Numbers of torch threads, on the CPU.")] = "1,2",
    slices: Annotated[bool, typer.Option(help="Also run each experiment once for its longest slice.")] = True,
) -> None:
    """Our token loop beside transformers' `generate()`: tokens/s, ratio, share of the read bandwidth."""
    counts = _counts(threads)
    benchmark = _benchmark("decode")
    from lab.models.registry import load_model

    loaded = load_model(model, device=device, dtype=dtype)
    say("measuring; other work on this machine makes the figures worse")
    report: dict[str, Any] = benchmark.run_decode(
        loaded, new_tokens=tokens, repeats=repeats, thread_counts=counts, with_slices=slices
    )
    print(json.dumps(report) if as_json else benchmark.as_text(report))


@app.command("beam")
@in_words
def beam(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line.")] = False,
    model: Annotated[str, typer.Option("--model", help="Model to measure.")] = DEFAULT_MODEL,
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")] = "auto",
    dtype: Annotated[str, typer.Option("--dtype", help="auto, float32 or bfloat16.")] = "auto",
    beams: Annotated[int, typer.Option("--beams", help="Beams of each run.", min=2, max=16)] = 4,
    tokens: Annotated[int, typer.Option("--tokens", help="New tokens of each run.", min=2, max=128)] = 64,
    repeats: Annotated[int, typer.Option("--repeats", help="Rounds that count.", min=1, max=100)] = 5,
    threads: Annotated[str, typer.Option("--threads", help="Numbers of torch threads, on the CPU.")] = "1,2",
    long: Annotated[bool, typer.Option(help="Also with a long prompt, of which generate() makes copies.")] = True,
    slices: Annotated[bool, typer.Option(help="Also run the experiment for its longest slice.")] = True,
) -> None:
    """Our beam search, its tree recorded, beside transformers' `generate(num_beams=...)`."""
    counts = _counts(threads)
    benchmark = _benchmark("beam")
    from lab.models.registry import load_model

    loaded = load_model(model, device=device, dtype=dtype)
    say("measuring; other work on this machine makes the figures worse")
    report: dict[str, Any] = benchmark.run_beam(
        loaded,
        beams=beams,
        new_tokens=tokens,
        repeats=repeats,
        thread_counts=counts,
        with_long_prompt=long,
        with_slices=slices,
    )
    print(json.dumps(report) if as_json else benchmark.as_text(report))


@app.command("speculative")
@in_words
def speculative(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line.")] = False,
    model: Annotated[str, typer.Option("--model", help="Model to measure.")] = DEFAULT_MODEL,
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")] = "auto",
    dtypes: Annotated[str, typer.Option("--dtypes", help="float32, bfloat16, or both with a comma between.")] = (
        "float32,bfloat16"
    ),
    drafts: Annotated[str, typer.Option("--drafts", help="Drafts, with commas between.")] = (
        "eagle,lookup_eagle,lookup,int8"
    ),
    rules: Annotated[str, typer.Option("--rules", help="greedy, T=1, or both with a comma between.")] = "greedy,T=1",
    gamma: Annotated[int, typer.Option("--gamma", help="Tokens proposed; 0: by other prompts.", min=0, max=16)] = 0,
    tokens: Annotated[int, typer.Option("--tokens", help="New tokens of each run.", min=2, max=512)] = 64,
    prompts: Annotated[int, typer.Option("--prompts", help="Prompts of each kind; 0: all three.", min=0, max=3)] = 0,
    threads: Annotated[str, typer.Option("--threads", help="Numbers of torch threads, on the CPU.")] = "2",
) -> None:
    """Speculative decoding beside plain decoding on twelve prompts: speed-up by draft, kind and dtype."""
    counts = _counts(threads)
    chosen = {
        name: _names(text, allowed)
        for name, text, allowed in (
            ("dtypes", dtypes, ("float32", "bfloat16")),
            ("rules", rules, ("greedy", "T=1")),
            ("drafts", drafts, DRAFTS),
        )
    }
    benchmark = _benchmark("speculative")
    from lab.models.registry import load_model

    say("measuring; other work on this machine makes the figures worse")
    report: dict[str, Any] = benchmark.run_speculative(
        lambda dtype: load_model(model, device=device, dtype=dtype),
        drafts=chosen["drafts"],
        dtypes=chosen["dtypes"],
        rules=chosen["rules"],
        gamma=gamma or None,
        new_tokens=tokens,
        thread_counts=counts,
        prompts=prompts or None,
        say=say,
    )
    print(json.dumps(report) if as_json else benchmark.as_text(report))


@app.command("packed")
@in_words
def packed(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line.")] = False,
    model: Annotated[str, typer.Option("--model", help="Model to measure.")] = DEFAULT_MODEL,
    tokens: Annotated[int, typer.Option("--tokens", help="New tokens of each prompt.", min=2, max=512)] = 40,
    threads: Annotated[int, typer.Option("--threads", help="Torch threads.", min=1, max=1024)] = 2,
) -> None:
    """Packed int8 and int4 models beside the dense one: MiB, tokens/s, prefill, the first different token."""
    benchmark = _benchmark("packed")
    from lab.models.registry import load_model

    loaded = load_model(model, device="cpu", dtype="float32")
    say("measuring; other work on this machine makes the figures worse")
    report: dict[str, Any] = benchmark.run_packed(loaded, thread_count=threads, new_tokens=tokens)
    print(json.dumps(report) if as_json else benchmark.as_text(report))


@app.command("sweep")
@in_words
def sweep(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line.")] = False,
    model: Annotated[str, typer.Option("--model", help="Model to measure.")] = DEFAULT_MODEL,
    matrices: Annotated[int, typer.Option("--matrices", help="The first so many; 0: all.", min=0)] = 0,
    repeats: Annotated[int, typer.Option("--repeats", help="Rounds that count.", min=1, max=100)] = 3,
    threads: Annotated[str, typer.Option("--threads", help="Numbers of torch threads.")] = "1,2",
) -> None:
    """Errors of all matrices at 24 settings, beside plain torch: time, reads of the weights, equal counts."""
    counts = _counts(threads)
    benchmark = _benchmark("quantization_sweep")
    from lab.models.registry import load_model

    loaded = load_model(model, device="cpu", dtype="float32")
    say("measuring; other work on this machine makes the figures worse")
    report: dict[str, Any] = benchmark.run_sweep(loaded, matrices=matrices, repeats=repeats, thread_counts=counts)
    print(json.dumps(report) if as_json else benchmark.as_text(report))


@app.command("lora")
@in_words
def lora(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line.")] = False,
    model: Annotated[str, typer.Option("--model", help="Model to measure.")] = DEFAULT_MODEL,
    targets: Annotated[str, typer.Option("--targets", help="Ends of module names.")] = "q_proj,v_proj",
    repeats: Annotated[int, typer.Option("--repeats", help="Steps that count.", min=1, max=100)] = 6,
    threads: Annotated[str, typer.Option("--threads", help="Numbers of torch threads, on the CPU.")] = "1,2",
) -> None:
    """A LoRA training step beside peft with a plain torch loop: ms a step, equal losses."""
    counts = _counts(threads)
    benchmark = _benchmark("lora")
    from lab.models.registry import load_model

    loaded = load_model(model, device="auto", dtype="float32")
    say("measuring; other work on this machine makes the figures worse")
    names = tuple(part.strip() for part in targets.split(",") if part.strip())
    report: dict[str, Any] = benchmark.run_lora(loaded, targets=names, repeats=repeats, thread_counts=counts)
    print(json.dumps(report) if as_json else benchmark.as_text(report))


def _names(text: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    wrong = [name for name in names if name not in allowed]
    if wrong:
        raise BadInput(f"There is no {shown(wrong[0])}.", remedy=f"Choose from {', '.join(allowed)}.")
    return names


def _counts(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 1 <= int(part) <= 1024 for part in parts):
        raise BadInput(f"--threads is {text!r}.", remedy="Give numbers from 1 on with commas between, such as 1,2.")
    return tuple(int(part) for part in parts)


def _benchmark(name: str) -> Any:
    # The benchmarks are a part of the repository and not of the installed package.
    if importlib.util.find_spec("benchmarks") is None:
        raise NotFound("The benchmarks are not installed.", remedy="Run this from a copy of the repository.")
    return importlib.import_module(f"benchmarks.{name}")
