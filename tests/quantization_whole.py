"""Events of `quantization` runs over the whole model without one: errors by a formula, words by hand.

For tests of the page alone: the structure is that of real runs, the figures are not.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

from samples import sample_facts

from lab.events import Event, Progress, Proof, RunCancelled, RunCard, RunFailed, RunFinished, RunStarted
from lab.events.evaluation import Divergence, TextsChosen, TextUsed
from lab.events.quantization import (
    Coverage,
    CoverageRow,
    GridNote,
    MapCell,
    MapCells,
    ModelErrors,
    ParetoPoint,
    Sensitivity,
    Setting,
)
from lab.experiments.quantization.params import QuantizationParams

LLAMA = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
LAYERS = 30
POSITIONS = 511


def started(**params: Any) -> RunStarted:
    """The start of a run on the packaged model's shape."""
    facts = sample_facts()
    card = RunCard(
        experiment="quantization",
        model=facts.id,
        weight_hash=facts.weight_hash,
        dtype="float32",
        device="cpu",
        attention="sdpa",
        threads=2,
        params=QuantizationParams(**params).model_dump(mode="json"),
    )
    return RunStarted(run_id="toy", card=card, facts=facts, recorded="2027-01-29T21:00:00+00:00")


def ends(how: str = "finished") -> Event:
    """The last event: "finished", "stopped" or "failed"."""
    if how == "stopped":
        return RunCancelled()
    if how == "failed":
        return RunFailed(code="bad_input", message="The text is too short.", remedy="Take a longer one.")
    return RunFinished(compute_ms=1000.0, slices=40, longest_slice_ms=80.0)


def divergence(kl: float, flips: int | None = None) -> Divergence:
    """A divergence on `POSITIONS` positions."""
    return Divergence(
        kl=kl,
        worst_kl=kl * 9,
        flips=round(POSITIONS * min(0.6, math.sqrt(max(kl, 0.0)) * 0.28)) if flips is None else flips,
        positions=POSITIONS,
        perplexity=math.exp(3.0 + max(kl, 0.0)),
        dense_perplexity=math.exp(3.0),
        bits_per_byte=0.9 + kl / 4,
        dense_bits_per_byte=0.9,
        text_hash="0123456789ab",
    )


def setting(method: str = "nearest", bits: int = 4, share: str = "64", label: str = "") -> Setting:
    """A setting with a label for a person."""
    names = {"nearest": "round to nearest", "gptq": "GPTQ", "awq": "AWQ", "nf4": "NF4"}
    group = {"row": "one scale a row"}.get(share, f"groups of {share}")
    return Setting(method, label or f"{names.get(method, method)}, {bits} bits, {group}", bits, "absmax", share)


def texts() -> TextsChosen:
    """Both texts of a run."""
    return TextsChosen(
        texts=(
            TextUsed("calibration", "Python's help topics", "ba9876543210", 1024),
            TextUsed("held-out", "Python's help topics", "0123456789ab", 512),
        )
    )


def map_run(*, bits: int = 3, layers: int = LAYERS, tried: int = LAYERS, end: str = "finished") -> Iterator[Event]:
    """A map: layer by layer, then each layer alone, then all of them."""
    rng = random.Random(4)
    used = setting(bits=bits)
    yield started(task="map", bits=bits)
    yield texts()
    base = 2.0**-bits
    for layer in range(layers):
        cells = []
        for row, name in enumerate(LLAMA):
            error = base * (1.1 + 0.3 * math.cos(layer / 5 + row) + 0.2 * rng.random())
            error *= 1.6 if (layer, name) in ((0, "k_proj"), (29, "down_proj")) else 1.0
            cells.append(
                MapCell(
                    layer, name, bits, error, error * (0.7 + 0.4 * rng.random()), error * 0.6, bits + 0.25, 576 * 576
                )
            )
        yield MapCells(setting=used, cells=tuple(cells))
        yield Progress(stage="quantizing", done=layer + 1, total=layers)
    for layer in range(min(tried, layers)):
        kl = 0.012 + 0.05 * math.exp(-layer / 1.5) + 0.03 * math.exp(-(29 - layer) / 2) + 0.006 * rng.random()
        yield Sensitivity(
            layer=layer, setting=used, divergence=divergence(kl), bits_per_weight=bits + 0.25, index=layer, total=layers
        )
    if end == "finished":
        yield whole(used, 0.61)
        yield coverage(used, [bits] * layers)
        yield Proof(verdict="equal", claim="groups computed again are equal", compared=64, matched=64, unit="groups")
    yield ends(end)


def whole(used: Setting, kl: float) -> ModelErrors:
    """All layers at one setting."""
    return ModelErrors(
        setting=used,
        scope="all layers",
        whole=True,
        divergence=divergence(kl),
        mean_weight_error=0.14,
        mean_output_error=0.12,
        bits_per_weight=used.bits + 0.25,
    )


def coverage(used: Setting, bits: list[float]) -> Coverage:
    """A model's coverage with so many bits in each layer; 0 stays dense."""
    per_layer = 3_538_944
    sizes = tuple(round(per_layer * ((b + 0.25) / 8 if b else 4)) for b in bits)
    quantized = sum(per_layer for b in bits if b)
    return Coverage(
        setting=used,
        truth="simulated",
        quantized_parameters=quantized,
        parameters=134_515_008,
        rows=(
            CoverageRow("q_proj", 30, 9_953_280, True, "", 5_000_000),
            CoverageRow("embedding", 1, 28_311_552, False, "tied to the head", 113_246_208),
        ),
        bits_per_weight=sum(sizes) * 8 / max(quantized, 1),
        model_bits=8.2,
        model_bytes=sum(sizes) + 113_246_208,
        dense_bytes=538_060_032,
        layer_bits=tuple(float(b) for b in bits),
        layer_bytes=sizes,
    )


def pareto_run(*, upto: int = 99, chosen: str = "64", end: str = "finished", label: str = "") -> Iterator[Event]:
    """Settings of several methods, one of them skipped."""
    yield started(task="pareto", methods="all", group_size=chosen)
    yield texts()
    yield GridNote(grid="Q4_1, groups of 32", checked="layer 0 q_proj", changed=0.0, max_error=0.0, words="On a grid.")
    points = list(_points(chosen, label))
    for point in points[:upto]:
        yield Progress(stage="settings", done=point.index + 1, total=len(points))
        yield point
    yield ends(end)


def _points(chosen: str, label: str) -> Iterator[ParetoPoint]:
    kinds = [("nearest", b, s) for b in (2, 3, 4, 5, 8) for s in ("row", "128", "64", "32")]
    kinds += [("gptq", 3, "64"), ("gptq", 4, "64"), ("awq", 4, "64"), ("nf4", 4, "64"), ("llm_int8", 8, "row")]
    kinds += [("bfloat16", 16, "")]
    for index, (method, bits, share) in enumerate(kinds):
        size = {"row": 576.0, "": math.inf}.get(share) or float(share)
        extra = 0.0 if math.isinf(size) else 16 / size
        loss = 30.0 * 4.0**-bits * {"gptq": 0.35, "nf4": 0.4, "awq": 0.5, "llm_int8": 0.9}.get(method, 1.0)
        loss *= 1.0 if math.isinf(size) else (size / 64) ** 0.25
        skip = "groups of 128 do not fit rows of 576" if share == "128" and bits == 5 else ""
        yield ParetoPoint(
            index=index,
            total=len(kinds),
            setting=setting(method, bits, share, label if method == "nf4" else ""),
            bits_per_weight=bits + extra,
            model_bytes=round(106_000_000 * (bits + extra) / 8) + 113_000_000,
            divergence=None if skip else divergence(loss),
            skipped=skip,
            chosen=(method, bits, share) == ("nearest", 4, chosen),
            ms=900.0,
        )
