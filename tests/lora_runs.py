"""Events of `lora` runs without a model: for tests of pages alone. The structure is that of real runs, the figures
are near those of the packaged adapter."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from samples import sample_facts
from words_sim import OTHER, WORDS, speaks

from lab.events import ArrayData, Event, Progress, Proof, RunCancelled, RunCard, RunFailed, RunFinished, RunStarted
from lab.events.decoding import PromptEncoded
from lab.events.evaluation import Divergence, TextsChosen, TextUsed
from lab.events.lora import (
    AdapterFacts,
    MergedModel,
    MergeFigures,
    OtherText,
    SwapRow,
    Trained,
    TrainingData,
    TrainStep,
    UpdateMap,
    UpdateSpectrum,
)
from lab.events.words import Variant
from lab.experiments.lora.params import LoraParams

LAYERS = 30
PROJECTIONS = ("q_proj", "v_proj")
RANK = 8
SIZE = 1_843_200
WRITTEN = MergedModel(
    model="/home/me/.cache/inference-lab/trained/a b#1",
    name="island-8",
    base="smollm2-135m-instruct",
    adapter="velmora",
    factor=1.0,
    bytes=538_060_672,
    matrices=60,
    others=150,
    projections=("q_proj", "v_proj"),
    checked=13_271_040,
    base_changed=0.0,
    merged_changed=0.998,
)


def started(**params: Any) -> RunStarted:
    """The start of a run on the packaged model's shape."""
    facts = sample_facts()
    card = RunCard(
        experiment="lora",
        model=facts.id,
        weight_hash=facts.weight_hash,
        dtype="float32",
        device="cpu",
        attention="sdpa",
        threads=2,
        params=LoraParams(**params).model_dump(mode="json"),
    )
    return RunStarted(run_id="toy", card=card, facts=facts, recorded="2027-01-29T21:00:00+00:00")


def prompt() -> PromptEncoded:
    return PromptEncoded(token_ids=(1, 2, 3), texts=("What", " is", " it?"), chat=True)


def ends(how: str = "finished") -> Event:
    """The last event: "finished", "stopped" or "failed"."""
    if how == "stopped":
        return RunCancelled()
    if how == "failed":
        return RunFailed(code="model", message="The adapter 'x' does not fit.", remedy="Load its own base.")
    return RunFinished(compute_ms=1000.0, slices=40, longest_slice_ms=80.0)


def adapter(name: str = "velmora", **changed: Any) -> AdapterFacts:
    """An adapter as wide as the packaged one."""
    facts: dict[str, Any] = {
        "name": name,
        "label": name,
        "source": "packaged",
        "rank": RANK,
        "alpha": 16.0,
        "scale": 2.0,
        "rslora": False,
        "targets": PROJECTIONS,
        "modules": LAYERS * len(PROJECTIONS),
        "parameters": 460_800,
        "base_parameters": 134_515_008,
        "matrix_parameters": 13_271_040,
        "bytes": SIZE,
        "base": "smollm2-135m-instruct",
        "matches": "",
        "effectless": "",
    }
    return AdapterFacts(**{**facts, **changed})


def picture(name: str = "velmora") -> Iterator[Event]:
    """Where its update sits; layer 3 has no value projection."""
    places = [(layer, p) for layer in range(LAYERS) for p in PROJECTIONS if (layer, p) != (3, "v_proj")]
    norms = np.full((LAYERS, len(PROJECTIONS)), np.nan)
    values, errors = np.zeros((len(places), RANK)), np.zeros((len(places), RANK + 1))
    for row, (layer, projection) in enumerate(places):
        column = PROJECTIONS.index(projection)
        norms[layer, column] = 0.01 + 0.004 * layer + 0.02 * column
        values[row] = [(1 + 0.1 * layer) * 0.6**k for k in range(RANK)]
        rest = np.append(np.cumsum(values[row, ::-1] ** 2)[::-1], 0.0)
        errors[row] = np.sqrt(rest / rest[0])
    yield UpdateMap(adapter=name, projections=PROJECTIONS, norms=ArrayData.of(norms, "float32"))
    yield UpdateSpectrum(
        adapter=name,
        modules=tuple(places),
        values=ArrayData.of(values, "float32"),
        kept_error=ArrayData.of(errors, "float32"),
    )


def rows() -> Iterator[Event]:
    """The words with the adapter on and merged."""
    yield from speaks(Variant(name="adapter", label="adapter on", truth="dense"), OTHER, 0.6)
    yield from speaks(Variant(name="merged", label="merged", truth="dense"), OTHER, 0.6)


def proof(verdict: str = "equal") -> Proof:
    return Proof(
        verdict=verdict,  # type: ignore[arg-type]
        claim="entries of the merged weights are W + s (B A), computed again in plain Python; adapter: merged and "
        "unmerged logits agree within 1e-05 of the largest (float32); the shared model is untouched",
        compared=480,
        matched=480 if verdict == "equal" else 120,
        unit="weights",
        explanation="" if verdict == "equal" else "adapter: a logit differs by 0.61 between merged and unmerged.",
        detail={
            "adapter_max_logit_difference": 5.4e-5 if verdict == "equal" else 0.61,
            "adapter_largest_logit": 34.4,
            "adapter_tolerance": 1e-5,
            "adapter_places": 32,
        },
    )


def train_run(steps: int = 48, *, upto: int = 999, end: str = "finished", stopped: str = "") -> Iterator[Event]:
    """A training: the words before, each step with the held-out loss at every fourth, the words after."""
    yield started(task="train", steps=steps)
    yield prompt()
    yield TrainingData(
        task="island",
        words="New facts: an invented island. Facts about the island of Velmora.",
        hash="0123456789ab",
        train_examples=72,
        heldout_examples=12,
        train_tokens=930,
        heldout_tokens=155,
        examples=(("What is the capital of Velmora?", "The capital of Velmora is Tarn Harbour."),),
    )
    yield from speaks(Variant(name="dense", label="dense", truth="dense"), WORDS)
    best, heldout = 0, 3.27
    for step in range(min(steps, upto) + 1):
        measured = 0.05 + 3.2 * math.exp(-step / 9) + (0.02 * (step - 40) if step > 40 else 0)
        heldout_loss = measured if step % 4 == 0 or step == steps else None
        is_best = heldout_loss is not None and (step == 0 or heldout_loss < heldout)
        if is_best and heldout_loss is not None:
            best, heldout = step, heldout_loss
        yield TrainStep(
            step=step,
            steps=steps,
            loss=math.nan if step == 0 else 3.0 * math.exp(-step / 8) + 0.03 * (step % 3),
            heldout_loss=heldout_loss,
            learning_rate=0.0 if step == 0 else 4e-3 * min(1.0, step / 5) * (1 - step / (steps + 1)),
            tokens=0 if step == 0 else 104,
            best=is_best,
            ms=0.0 if step == 0 else 1100.0,
        )
        yield Progress(stage="training", done=round(1000 * step / steps), total=1000)
    if end != "finished":
        yield ends(end)
        return
    yield Trained(
        adapter="trained",
        best_step=best,
        steps=min(steps, upto),
        seconds=61.0,
        loss_before=3.0,
        loss_after=0.04,
        heldout_before=3.27,
        heldout_after=heldout,
        stopped=stopped,
        base_untouched=True,
    )
    yield adapter("trained", label="New facts: an invented island, rank 8", source="trained here")
    yield from picture("trained")
    yield from rows()
    yield proof()
    yield ends()


def compare_run(*, end: str = "finished", verdict: str = "equal", **facts: Any) -> Iterator[Event]:
    """The packaged adapter before and after; `facts` change what is said of it."""
    yield started()
    yield prompt()
    yield adapter(**facts)
    if end == "failed":
        yield ends(end)
        return
    yield from picture()
    yield TextsChosen(texts=(TextUsed("held-out", "Python's help topics", "0123456789ab", 256),))
    yield from speaks(Variant(name="dense", label="dense", truth="dense"), WORDS)
    yield from rows()
    yield OtherText(adapter="velmora", divergence=divergence(1.47, 116, dense=15.6, other=48.5))
    if end == "finished":
        yield proof(verdict)
    yield ends(end)


def swap_run(*, upto: int = 99, end: str = "finished") -> Iterator[Event]:
    """Two adapters on one base, two prompts."""
    yield started(task="swap")
    yield prompt()
    for name, scale in (("velmora", 2.0), ("velmora, reversed", -2.0)):
        yield adapter(name, scale=scale, alpha=8 * scale)
        yield from picture(name)
    said = {"": "It is Velmaros.", "velmora": "Tarn Harbour.", "velmora, reversed": "<img src=x onerror=window.X=1>"}
    turns = ("", "velmora", "velmora, reversed", "velmora")
    prompts = ("What is the capital city of Velmora?", "What is the capital of France?")
    for index in range(min(upto, len(turns) * len(prompts))):
        name = turns[index % len(turns)]
        yield SwapRow(
            index=index,
            total=len(turns) * len(prompts),
            adapter=name,
            prompt=prompts[index // len(turns)],
            text=said[name],
            switch_ms=0.004,
            bytes=SIZE if name else 0,
            same_again=True if index % len(turns) == 3 else None,
        )
    if end == "finished":
        yield proof()
    yield ends(end)


def divergence(kl: float, flips: int, *, dense: float = 48.54, other: float = 48.54) -> Divergence:
    return Divergence(
        kl=kl,
        worst_kl=kl * 9,
        flips=flips,
        positions=255,
        perplexity=other,
        dense_perplexity=dense,
        bits_per_byte=1.51,
        dense_bits_per_byte=1.07,
        text_hash="0123456789ab",
    )


def merge_run(*, end: str = "finished", base: str = "int4") -> Iterator[Event]:
    """The packaged adapter merged into four kinds of base."""
    yield started(task="merge", base=base)
    yield prompt()
    yield adapter()
    yield from picture()
    yield TextsChosen(texts=(TextUsed("held-out", "Python's help topics", "0123456789ab", 256),))
    kinds: list[tuple[str, str, float, float, int, float, float, bool]] = [
        ("float32", "the model's own float32 weights", 5.4e-5, 4.8e-9, 0, 3.1e-13, 9e-7, True),
        ("bfloat16", "the weights rounded to bf16; rounded again after merging", 0.12, 3.7e-5, 0, 0.0013, 0.06, False),
    ]
    if base in ("int8", "int4"):
        codes = f"the weights dequantized from codes ({base})"
        kinds += [
            (f"{base} dequantized", f"{codes}; kept as float32", 6.4e-5, 5.6e-9, 0, 3.1e-13, 8e-7, True),
            (f"{base} re-quantized", f"{codes}; rounded again after merging", 16.6, 0.49, 89, 1.17, 0.08, False),
        ]
    for number, (kind, words, difference, kl, flips, lost, vanished, restored) in enumerate(kinds):
        yield MergeFigures(
            adapter="velmora",
            kind=kind,
            base=words,
            max_logit_difference=difference,
            divergence=divergence(kl, flips, other=48.54 * math.exp(-kl)),
            lost=lost,
            vanished=vanished,
            restored=restored,
            same_form=True,
            decode_ms=math.nan if number else 50.7,
            unmerged_decode_ms=math.nan if number else 53.0,
            base_decode_ms=math.nan if number else 51.6,
        )
    if end == "finished":
        yield proof()
    yield ends(end)
