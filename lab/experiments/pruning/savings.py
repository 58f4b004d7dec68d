"""The task "savings": what pruned weights take in each form, what a decode step takes, measured in turn, and what is
lost for it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import torch
from torch import nn

from lab.decoding.loop import Step
from lab.errors import BadInput, ModelError
from lab.events.pruning import TimedFigures, TimedToken, VariantLoss
from lab.events.words import Variant
from lab.experiments.base import Outcome, RunGenerator
from lab.experiments.compared.progress import Made
from lab.experiments.compared.race import Racer, race
from lab.experiments.compared.spoken_proof import against_generate
from lab.experiments.pruning.pruned import Whole
from lab.experiments.pruning.settings import Scheme
from lab.experiments.pruning.setup import Setup
from lab.experiments.pruning.stored import stored_bytes
from lab.experiments.pruning.whole import covered, kept_counts, pruning_model
from lab.experiments.reading import read_prompt
from lab.models.prompts import TextStream

NO_GAIN = "they are numbers, and a dense kernel reads and multiplies them like any other."
GAIN = "every product is smaller, and dense."
NO_KERNEL = "not here: the kernel for 2:4 needs an NVIDIA GPU of compute capability 8.0 or newer; this run is on"
NOT_RUN = "not run: the kernel for 2:4 of this GPU, compute capability"
LOST = {"zeros": "what the zeros lose", "rows": "what the removed rows lose"}
NAN = float("nan")


@dataclass
class Runner(Racer):
    """One variant and how far it is.

    Attributes:
        words: why it is faster, or why not.
        pruned: what it was made by and a shell of the dense model that computes the same; None for the dense one.
    """

    words: str = ""
    pruned: tuple[Scheme, nn.Module] | None = None


def measure_savings(setup: Setup) -> RunGenerator:
    """Yield the events of the task."""
    stream = TextStream(setup.loaded.tokenizer)
    prompt = yield from read_prompt(setup.loaded, setup.params, stream)
    yield from setup.begin()
    windows = yield from setup.texts.choose(calibration=setup.scheme.calibrated)
    whole = yield from pruning_model(setup, setup.scheme, windows, "pruning", tell=True)
    yield covered(setup, whole)
    value_bytes = torch.tensor([], dtype=setup.loaded.dtype).element_size()
    yield stored_bytes(setup.scheme, "all layers", kept_counts(setup, whole), value_bytes)
    runners, missing = yield from _variants(setup, whole, windows)
    text = yield from _race(setup, runners, prompt, stream)
    for runner in runners:
        if runner.pruned is not None:
            scheme, shell = runner.pruned
            lost = yield from setup.texts.compare(shell, LOST[runner.name])
            yield VariantLoss(variant=runner.name, setting=scheme.setting, divergence=lost)
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
    runners = [Runner("dense", setup.model)]
    missing: dict[str, str] = {}
    if whole.smaller is None:
        yield Variant(name="zeros", label=f"zeros ({setup.scheme.setting.label})", truth="simulated")
        runners.append(Runner("zeros", whole.shell, words=NO_GAIN, pruned=(setup.scheme, whole.shell)))
    scheme = replace(setup.scheme, method="rows", pattern="none")
    label = f"rows removed, {100 * scheme.sparsity:.3g} %"
    try:
        if not 0 < scheme.sparsity < 1:
            raise BadInput(f"{scheme.sparsity:.0%} of the rows cannot be removed.", remedy="Choose 1 to 95 %.")
        removed = (
            whole if whole.smaller is not None else (yield from pruning_model(setup, scheme, windows, "removing rows"))
        )
        if removed.smaller is None:
            raise BadInput("There is nothing to remove.", remedy="Choose a sparsity above 0.")
        yield Variant(name="rows", label=label, truth="dense, smaller", notes=(_taken(removed),))
        runners.append(Runner("rows", removed.smaller.model, words=GAIN, pruned=(scheme, removed.shell)))
    except (BadInput, ModelError) as error:
        yield Variant(name="rows", label=label, truth="dense, smaller", notes=(error.message,))
        missing["rows"] = f"not here: {error.message}"
    missing["2:4"] = two_of_four(setup.loaded.device)
    yield Variant(name="2:4", label="2:4 kernel", truth="packed", notes=(missing["2:4"],))
    return runners, missing


def two_of_four(device: torch.device) -> str:
    """Why the kernel for 2:4 is not timed: the device has none, or it has one that this task does not run."""
    if device.type != "cuda":
        return f"{NO_KERNEL} {'the CPU' if device.type == 'cpu' else device.type}"
    major, minor = torch.cuda.get_device_capability(device)
    if major < 8:
        return f"{NO_KERNEL} one of {major}.{minor}"
    return f"{NOT_RUN} {major}.{minor}, is not timed by this task"


def _taken(whole: Whole) -> str:
    if whole.rows is None:
        return ""
    channels, heads, kv_heads = whole.rows.removed
    parts = [f"{channels} channels"] + ([f"{heads} query heads"] if heads else [])
    parts += [f"{kv_heads} key/value heads"] if kv_heads else []
    return f"Of each layer {', '.join(parts)} are removed, chosen by {whole.rows.score}."


def _race(setup: Setup, runners: list[Runner], prompt: list[int], stream: TextStream) -> Made[str]:
    """All variants take turns, and only the dense row stops at an end token: the others' words are not what is
    measured. The dense row's text."""
    dense, streams = runners[0], {runner.name: stream.branch() for runner in runners}
    texts: list[str] = []

    def ends(runner: Runner) -> Collection[int]:
        return setup.loaded.end_token_ids if runner is dense else ()

    def told(runner: Runner, step: Step) -> TimedToken:
        text = streams[runner.name].add(step.token_id)
        if runner is dense:
            texts.append(text)
        return TimedToken(variant=runner.name, index=step.index, token_id=step.token_id, text=text, ms=step.ms)

    yield from race(runners, prompt, setup.params.max_new_tokens, ends=ends, told=told)
    return "".join(texts)


def _figures(runner: Runner, dense: Runner, prompt_tokens: int) -> TimedFigures:
    ms = runner.decode_ms
    parameters = {id(p): p for p in runner.model.parameters()}.values()
    return TimedFigures(
        variant=runner.name,
        parameters=sum(p.numel() for p in parameters),
        resident_bytes=sum(p.numel() * p.element_size() for p in parameters),
        decode_ms=ms,
        tokens_per_s=1000 / ms,
        prefill_ms=runner.prefill_ms,
        prompt_tokens=prompt_tokens,
        speedup=dense.decode_ms / ms,
        prefill_speedup=dense.prefill_ms / runner.prefill_ms if runner.prefill_ms else NAN,
        steps=len(runner.step_ms),
        words=runner.words,
    )
