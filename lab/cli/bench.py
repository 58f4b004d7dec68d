"""`lab bench`: ratios measured on this machine, side by side with what a user would run instead."""

from __future__ import annotations

import importlib
import importlib.util
import json
from typing import Annotated, Any

import typer

from lab.backend.protocol import DEFAULT_MODEL
from lab.cli.console import in_words, say
from lab.errors import BadInput, NotFound

app = typer.Typer(no_args_is_help=True, help="Measure this machine, side by side with what you would run instead.")


@app.callback()
def _group() -> None:
    """Keeps `decode` a command of its own while it is the only one."""


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
