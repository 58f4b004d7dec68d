"""The task "savings": what pruned weights take in each form, and what a decode step takes, measured in turn."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field, replace
from statistics import median

import torch
from torch import nn

from lab.decoding.loop import Decoded, Prefilled, Step, decode
from lab.decoding.trace import Trace
from lab.errors import BadInput, ModelError
from lab.events.pruning import TimedFigures, TimedToken
from lab.events.words import Variant
from lab.experiments.base import Outcome, RunGenerator
from lab.experiments.compared.progress import Made, progress
from lab.experiments.compared.spoken_proof import against_generate
from lab.experiments.pruning.setup import Setup
from lab.experiments.pruning.stored import stored_bytes
from lab.experiments.pruning.whole import Whole, covered, kept_counts, layers_pruned, pruning_model
from lab.experiments.reading import read_prompt
from lab.models.prompts import TextStream

NO_GAIN = "Zeros are numbers: a dense kernel reads and multiplies them like any other."
GAIN = "Rows and columns are gone: every product is smaller and dense."
NO_KERNEL = "not here: the kernel for 2:4 needs an NVIDIA GPU of compute capability 8.0 or newer"
NAN = float("nan")


@dataclass
class Runner:
    """One variant and how far it is."""

    name: str
    model: nn.Module
    words: str
    token_ids: list[int] = field(default_factory=list)
    step_ms: list[float] = field(default_factory=list)
    prefill_ms: float = 0.0
    ended: bool = False


def measure_savings(setup: Setup) -> RunGenerator:
    """Yield the events of the task."""
    stream = TextStream(setup.loaded.tokenizer)
    prompt = yield from read_prompt(setup.loaded, setup.params, stream)
    yield from setup.begin()
    windows: list[list[int]] = []
    if setup.scheme.calibrated:
        windows = yield from setup.texts.choose(calibration=True, held_out=False)
    whole = yield from pruning_model(setup, setup.scheme, windows, "pruning")
    yield layers_pruned(setup, whole)
    yield covered(setup, whole)
    value_bytes = torch.tensor([], dtype=setup.loaded.dtype).element_size()
    yield stored_bytes(setup.scheme, "all layers", kept_counts(setup, whole), value_bytes)
    runners, missing = yield from _variants(setup, whole, windows)
    text = yield from _race(setup, runners, prompt, stream)
    for runner in runners:
        yield _figures(runner, runners[0], len(prompt))
    for name, why in missing.items():
        yield TimedFigures(
            variant=name,
            parameters=0,
            resident_bytes=0,
            decode_ms=NAN,
            tokens_per_s=NAN,
            prefill_ms=NAN,
            prompt_tokens=len(prompt),
            speedup=NAN,
            prefill_speedup=NAN,
            steps=0,
            words=why,
        )
    dense = runners[0]
    finding = yield from against_generate(setup.loaded, prompt, dense.token_ids, setup.params.max_new_tokens)
    yield from setup.proving(finding)
    return Outcome(token_ids=tuple(dense.token_ids), text=text)


def _variants(setup: Setup, whole: Whole, windows: list[list[int]]) -> Made[tuple[list[Runner], dict[str, str]]]:
    """What is timed, and what cannot be, with the reason."""
    yield Variant(name="dense", label="dense", truth="dense")
    runners = [Runner("dense", setup.model, "")]
    missing: dict[str, str] = {}
    if whole.smaller is None:
        yield Variant(name="zeros", label=f"zeros: {setup.scheme.setting.label}", truth="simulated")
        runners.append(Runner("zeros", whole.shell, NO_GAIN))
    scheme = replace(setup.scheme, method="rows", pattern="none")
    label = f"rows removed: {scheme.sparsity:.0%}"
    try:
        if not 0 < scheme.sparsity < 1:
            raise BadInput(f"{scheme.sparsity:.0%} of the rows cannot be removed.", remedy="Choose 1 to 95 %.")
        removed = (
            whole if whole.smaller is not None else (yield from pruning_model(setup, scheme, windows, "removing rows"))
        )
        if removed.smaller is None:
            raise BadInput("There is nothing to remove.", remedy="Choose a sparsity above 0.")
        yield Variant(name="rows", label=label, truth="dense, smaller", notes=(_taken(removed),))
        runners.append(Runner("rows", removed.smaller.model, GAIN))
    except (BadInput, ModelError) as error:
        yield Variant(name="rows", label=label, truth="dense, smaller", notes=(error.message,))
        missing["rows"] = f"not here: {error.message}"
    yield Variant(name="2:4", label="2:4 kernel", truth="packed", notes=(NO_KERNEL,))
    missing["2:4"] = NO_KERNEL
    return runners, missing


def _taken(whole: Whole) -> str:
    if whole.rows is None:
        return ""
    channels, heads, kv_heads = whole.rows.removed
    parts = [f"{channels} channels"] + ([f"{heads} query heads"] if heads else [])
    parts += [f"{kv_heads} key/value heads"] if kv_heads else []
    return f"Of each layer {', '.join(parts)} are removed, chosen by {whole.rows.score}."


def _race(setup: Setup, runners: list[Runner], prompt: list[int], stream: TextStream) -> Made[str]:
    """All variants take turns, a step each; every one reads the same number of tokens. The dense row's text."""
    running = [(runner, _decoding(setup, runner, prompt), stream.branch()) for runner in runners]
    texts: list[str] = []
    done, total = 0, setup.params.max_new_tokens * len(running)
    try:
        while any(not runner.ended for runner, _, _ in running):
            for runner, steps, words in running:
                if runner.ended:
                    continue
                step = yield from _next_step(runner, steps)
                if step is None:
                    runner.ended = True
                    continue
                done += 1
                runner.token_ids.append(step.token_id)
                if step.index:
                    runner.step_ms.append(step.ms)
                text = words.add(step.token_id)
                texts += [text] if runner is runners[0] else []
                yield TimedToken(variant=runner.name, index=step.index, token_id=step.token_id, text=text, ms=step.ms)
                yield progress("decoding", done, total)
    finally:
        for _, steps, _ in running:
            steps.close()
    return "".join(texts)


def _decoding(setup: Setup, runner: Runner, prompt: list[int]) -> Generator[Prefilled | Step | None, None, Decoded]:
    # Only the dense row stops at an end token: the others' words are not what is measured.
    ends = sorted(setup.loaded.end_token_ids) if runner.name == "dense" else []
    return decode(
        runner.model,
        prompt,
        max_new_tokens=setup.params.max_new_tokens,
        end_token_ids=ends,
        trace=Trace("off"),
    )


def _next_step(runner: Runner, steps: Generator[Prefilled | Step | None, None, Decoded]) -> Made[Step | None]:
    for item in steps:
        if isinstance(item, Step):
            return item
        if isinstance(item, Prefilled):
            runner.prefill_ms += item.ms
        yield None
    return None


def _figures(runner: Runner, dense: Runner, prompt_tokens: int) -> TimedFigures:
    ms = median(runner.step_ms) if runner.step_ms else NAN
    dense_ms = median(dense.step_ms) if dense.step_ms else NAN
    parameters = {id(p): p for p in runner.model.parameters()}.values()
    return TimedFigures(
        variant=runner.name,
        parameters=sum(p.numel() for p in parameters),
        resident_bytes=sum(p.numel() * p.element_size() for p in parameters),
        decode_ms=ms,
        tokens_per_s=1000 / ms,
        prefill_ms=runner.prefill_ms,
        prompt_tokens=prompt_tokens,
        speedup=dense_ms / ms,
        prefill_speedup=dense.prefill_ms / runner.prefill_ms if runner.prefill_ms else NAN,
        steps=len(runner.step_ms),
        words=runner.words,
    )


def run_savings(setup: Setup) -> RunGenerator:
    """`measure_savings`, its decoders closed whatever happens."""
    with closing(measure_savings(setup)) as events:
        return (yield from events)
