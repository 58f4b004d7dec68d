"""Events of the task "layer" without a model: a small random matrix, really quantized by numpy, and the answers to
questions about it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from quantization_whole import divergence, ends, setting, started, texts
from words_sim import HOSTILE

from lab.events import ArrayData, Event, Proof
from lab.events.quantization import (
    Coverage,
    CoverageRow,
    ErrorHistogram,
    GridNote,
    LayerErrors,
    ModelErrors,
    RankingNote,
    WorstWeight,
    WorstWeights,
)
from lab.events.quantization_methods import FormatsTable, LevelsShown, NumberFormat
from widgets.quantization.group_sizes import compared, weights_of

Matrix = npt.NDArray[np.float64]
ROWS, COLUMNS, BINS, WORST = 96, 576, 128, 6


def matrix(layer: int = 0) -> Matrix:
    """Weights of a bell curve, and one large outlier in row 5."""
    rng = np.random.default_rng(layer)
    weights = rng.normal(0, 0.05, (ROWS, COLUMNS))
    weights[5, 100] = 0.9
    return weights


def quantized(weights: Matrix, bits: int, share: str, kind: str = "absmax") -> tuple[Matrix, Matrix]:
    """Rounded weights and the scale of each group, symmetric or with a float minimum."""
    size = min(weights_of(share, weights.shape[1]), weights.shape[1])
    groups = weights.reshape(weights.shape[0], -1, size)
    if kind == "float_minimum":
        low = groups.min(-1, keepdims=True)
        scale = (groups.max(-1, keepdims=True) - low) / (2**bits - 1)
        made = np.round((groups - low) / scale) * scale + low
    else:
        scale = np.abs(groups).max(-1, keepdims=True) / (2 ** (bits - 1) - 1)
        made = np.round(groups / scale) * scale
    return made.reshape(weights.shape), scale[..., 0]


def worst_of(weights: Matrix, made: Matrix, share: str) -> tuple[WorstWeight, ...]:
    """The weights with the largest errors."""
    size = min(weights_of(share, COLUMNS), COLUMNS)
    places = np.argsort(-np.abs(made - weights), axis=None)[:WORST]
    at = [divmod(int(place), COLUMNS) for place in places]
    return tuple(WorstWeight(r, c, c // size, float(weights[r, c]), float(made[r, c])) for r, c in at)


def histogram(
    share: str, *, bits: int = 4, layer: int = 0, projection: str = "q_proj", kind: str = "absmax", chosen: bool = False
) -> tuple[ErrorHistogram, tuple[WorstWeight, ...]]:
    """The errors of one setting counted, and the largest of them."""
    weights = matrix(layer)
    made, scale = quantized(weights, bits, share, kind)
    errors = made - weights
    counts, _ = np.histogram(errors, bins=BINS, range=(-0.5, 0.5))
    square = float((errors**2).mean())
    found = ErrorHistogram(
        layer=layer,
        projection=projection,
        module=f"model.layers.{layer}.self_attn.{projection}",
        rows=ROWS,
        columns=COLUMNS,
        setting=setting(bits=bits, share=share),
        low=-0.5,
        high=0.5,
        counts=ArrayData.of(counts, "int64"),
        below=int((errors < -0.5).sum()),
        above=int((errors > 0.5).sum()),
        max_error=float(np.abs(errors).max()),
        mean_square=square,
        exact=float((errors == 0).mean()),
        half_step=float(scale.max()) / 2,
        clipped=0,
        snr_db=10 * math.log10(float((weights**2).mean()) / square) if square else math.inf,
        bits_per_weight=bits + 16 * scale.size / weights.size,
        groups=scale.size,
        ms=5.0,
        chosen=chosen,
    )
    return found, worst_of(weights, made, share)


def layer_run(*, hostile: bool = False, end: str = "finished", **params: Any) -> Iterator[Event]:
    """A run of the task: six group sizes of each layer, the three errors of four of them, and what beside them."""
    layers, bits = params.get("layers", (0,)), params.get("bits", 4)
    share = params.get("group_size", "64")
    words = HOSTILE if hostile else "SmolLM2's weights come from Q4_1: 4 bits with a float minimum change nothing"
    yield started(**params)
    yield GridNote(grid="Q4_1, groups of 32", checked="layer 0 q_proj", changed=0.0, max_error=0.0, words=words)
    for layer in layers:
        for size in compared(COLUMNS, share):
            counted, worst = histogram(size, bits=bits, layer=layer, chosen=size == share)
            yield counted
            if size == share:
                yield WorstWeights(layer=layer, projection="q_proj", setting=counted.setting, weights=worst)
    yield texts()
    if end != "finished":
        yield ends(end)
        return
    yield from _errors(layers, bits, share)
    yield from _beside(layers[0], bits, share, words if hostile else "")
    yield Proof(
        verdict="equal",
        claim="the weights that run are the values of their codes",
        compared=36,
        matched=36,
        explanation="",
        detail={},
        unit="groups of weights",
    )
    yield ends()


def _errors(layers: tuple[int, ...], bits: int, share: str) -> Iterator[Event]:
    for layer in layers:
        for size in compared(COLUMNS, share):
            weights = matrix(layer)
            made, _ = quantized(weights, bits, size)
            relative = float(np.linalg.norm(made - weights) / np.linalg.norm(weights))
            yield LayerErrors(
                layer=layer,
                projection="q_proj",
                setting=setting(bits=bits, share=size),
                weight_error=relative,
                calibration_error=relative / 3,
                heldout_error=relative / 2.9,
                to_nearest=None,
                bits_per_weight=bits + 0.25,
                ms=4.0,
            )
    for i, size in enumerate((share, "16", "row", "288")):
        yield ModelErrors(
            setting=setting(bits=bits, share=size),
            scope="layer 0 q_proj alone",
            whole=False,
            divergence=divergence((8.3e-5, 3.2e-5, 1.1e-4, 1.6e-4)[i]),
            mean_weight_error=(0.13, 0.097, 0.178, 0.163)[i],
            mean_output_error=(0.040, 0.026, 0.055, 0.049)[i],
            bits_per_weight=bits + 0.25,
        )
    yield RankingNote(
        first=setting(bits=bits, share="row").label,
        second=setting(bits=bits, share="288").label,
        better_first=("KL divergence",),
        better_second=("weight error", "output error"),
        words="By KL divergence one scale a row is better, by weight error it is groups of 288.",
    )


def _beside(layer: int, bits: int, share: str, reason: str) -> Iterator[Event]:
    counts, _ = np.histogram(np.random.default_rng(1).normal(0, 0.3, 5000), bins=64, range=(-1, 1))
    levels = tuple(i / 7 for i in range(-7, 8))
    used: Matrix = np.exp(-4.0 * np.array(levels) ** 2)
    yield LevelsShown(
        layer=layer,
        projection="q_proj",
        label="round to nearest, 4 bits, groups of 64",
        levels=levels,
        low=-1.0,
        high=1.0,
        counts=ArrayData.of(counts, "int64"),
        used=tuple(int(u) for u in (5000 * used / used.sum()).tolist()),
    )
    yield FormatsTable(
        layer=layer,
        projection="q_proj",
        formats=(
            NumberFormat("FP16", 16, 65504.0, 6.1e-5, 6e-8, 9.8e-4, 2e-4, 0, False),
            NumberFormat("FP8 e4m3", 8, 448.0, 0.0156, 0.00195, 0.125, 0.026, 3, False),
            NumberFormat("INT8", 8, 127.0, 1.0, 1.0, 1.0, 0.011, 0, True),
        ),
    )
    yield Coverage(
        setting=setting(bits=bits, share=share),
        truth="simulated",
        quantized_parameters=331_776,
        parameters=134_515_008,
        rows=(
            CoverageRow("q_proj", 1, 331_776, True, "", 176_256),
            CoverageRow(
                "embedding and head", 1, 28_311_552, False, reason or "its errors would enter twice", 113_246_208
            ),
            CoverageRow("other matrices", 209, 105_871_680, False, "they were left dense in this run", 423_486_720),
        ),
        bits_per_weight=4.25,
        model_bits=31.9,
        model_bytes=536_900_000,
        dense_bytes=538_060_032,
        layer_bits=(float(bits), *[0.0] * 29),
        layer_bytes=(176_256, *[0] * 29),
    )


def answer(name: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """What the backend would say of the same matrix; None for other questions."""
    if name == "histogram":
        sizes = params["group_sizes"] or compared(COLUMNS, "64")
        found = []
        for size in sizes:
            counted, worst = histogram(
                size,
                bits=params["bits"],
                layer=params["layer"],
                projection=params["projection"],
                kind=params["kind"],
            )
            item = {**vars(counted), "setting": vars(counted.setting), "counts": counted.counts.to_json()}
            found.append({**item, "notes": [], "worst": [vars(weight) for weight in worst]})
        return {"matrix": "layer 0 q_proj", "histograms": found, "refused": {}}
    if name == "group":
        weights = matrix(params["layer"])
        made, scale = quantized(weights, params["bits"], params["group_size"], params["kind"])
        size = min(weights_of(params["group_size"], COLUMNS), COLUMNS)
        columns = list(range(params["group"] * size, (params["group"] + 1) * size))
        row = params["row"]
        return {
            **params,
            "matrix": "layer 0 q_proj",
            "columns": columns,
            "before": [float(w) for w in weights[row, columns]],
            "after": [float(w) for w in made[row, columns]],
            "scale": float(scale[row, params["group"]]),
            "levels": [float(scale[row, params["group"]]) * q for q in range(-7, 8)],
        }
    return None
