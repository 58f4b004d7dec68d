"""Events of `pruning` runs without a model: masks of random weights, figures by formulas.

For tests of the page alone: the structure is that of real runs, the figures are not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from samples import sample_facts

from lab.events import ArrayData, Event, Progress, Proof, RunCancelled, RunCard, RunFailed, RunFinished, RunStarted
from lab.events.evaluation import Divergence, TextsChosen, TextUsed
from lab.events.pruning import (
    LayersPruned,
    MaskMade,
    PrunedCoverage,
    PrunedRow,
    PruneErrors,
    PruneSetting,
    SparseGptReplay,
    SparsityCell,
    StoredBytes,
    StoredForm,
)
from lab.experiments.pruning.params import PruningParams

LLAMA = {
    "q_proj": (576, 576),
    "k_proj": (192, 576),
    "v_proj": (192, 576),
    "o_proj": (576, 576),
    "gate_proj": (1536, 576),
    "up_proj": (1536, 576),
    "down_proj": (576, 1536),
}
NAMES = {
    "random": "At random",
    "magnitude": "Magnitude",
    "wanda": "Wanda",
    "sparsegpt": "SparseGPT",
    "rows": "Heads and channels",
    "global_magnitude": "Magnitude, all layers together",
}
POSITIONS = 511


def started(**params: Any) -> RunStarted:
    """The start of a run on the packaged model's shape."""
    facts = sample_facts()
    card = RunCard(
        experiment="pruning",
        model=facts.id,
        weight_hash=facts.weight_hash,
        dtype="float32",
        device="cpu",
        attention="sdpa",
        threads=2,
        params=PruningParams(**params).model_dump(mode="json"),
    )
    return RunStarted(run_id="toy", card=card, facts=facts, recorded="2027-01-29T21:00:00+00:00")


def ends(how: str = "finished") -> Event:
    """The last event: "finished", "stopped" or "failed"."""
    if how == "stopped":
        return RunCancelled()
    if how == "failed":
        return RunFailed(code="bad_input", message="The text is too short.", remedy="Take a longer one.")
    return RunFinished(compute_ms=1000.0, slices=40, longest_slice_ms=80.0)


def texts() -> TextsChosen:
    """Both texts of a run."""
    return TextsChosen(
        texts=(
            TextUsed("calibration", "Python's help topics", "ba9876543210", 2048),
            TextUsed("held-out", "Python's help topics", "0123456789ab", 512),
        )
    )


def setting(method: str = "wanda", sparsity: float = 0.5, pattern: str = "", label: str = "") -> PruneSetting:
    """A setting with a label for a person."""
    scope = {"wanda": "row", "rows": "heads and channels", "global_magnitude": "model"}.get(method, "matrix")
    share = pattern or f"{sparsity * 100:.3g} %"
    return PruneSetting(method, label or f"{NAMES.get(method, method)}, {share}", sparsity, pattern, scope)


def divergence(kl: float) -> Divergence:
    """A divergence on `POSITIONS` positions."""
    return Divergence(
        kl=kl,
        worst_kl=kl * 9,
        flips=round(POSITIONS * min(0.9, math.sqrt(max(kl, 0.0)) * 0.28)) if math.isfinite(kl) else 0,
        positions=POSITIONS,
        perplexity=math.exp(3.0 + min(kl, 20.0)) if math.isfinite(kl) else None,
        dense_perplexity=math.exp(3.0),
        bits_per_byte=0.9 + kl / 4,
        dense_bits_per_byte=0.9,
        text_hash="0123456789ab",
    )


def weights(layer: int, rows: int, columns: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Weights in which some rows and columns are larger."""
    rng = np.random.default_rng(layer)
    size = np.exp(0.5 * rng.standard_normal((rows, 1)) * np.linspace(0.4, 1.4, rows)[:, None])
    return rng.standard_normal((rows, columns)) * size * (0.06 if rows else 1.0)


def kept_by(
    method: str, layer: int, shape: tuple[int, int], sparsity: float, pattern: str
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """A mask as the method would make it of `weights`."""
    rng = np.random.default_rng(7 + layer)
    score = np.abs(weights(layer, *shape))
    if method in ("wanda", "sparsegpt"):
        score = score * np.exp(0.7 * rng.standard_normal((1, shape[1])))
    if method == "sparsegpt":
        score = score * np.exp(0.25 * rng.standard_normal(shape))
    if method == "random":
        score = rng.random(shape)
    if pattern:
        n, m = (int(part) for part in pattern.split(":"))
        ranks = score.reshape(shape[0], -1, m).argsort(axis=2).argsort(axis=2)
        return np.asarray((ranks >= m - n).reshape(shape))
    if method == "wanda":
        return np.asarray(score.argsort(axis=1).argsort(axis=1) >= round(sparsity * shape[1]))
    ranks = score.ravel().argsort().argsort().reshape(shape)
    return np.asarray(ranks >= round(sparsity * score.size))


def mask(
    method: str,
    layer: int = 0,
    projection: str = "q_proj",
    *,
    sparsity: float = 0.5,
    pattern: str = "",
    chosen: bool = False,
    label: str = "",
    shape: tuple[int, int] | None = None,
) -> MaskMade:
    """One method's mask of one matrix."""
    rows, columns = shape or LLAMA[projection]
    kept = kept_by(method, layer, (rows, columns), sparsity, pattern)
    return MaskMade(
        layer=layer,
        projection=projection,
        module=f"model.layers.{layer}.self_attn.{projection}",
        rows=rows,
        columns=columns,
        setting=setting(method, sparsity, pattern, label),
        bits=ArrayData.of(np.packbits(kept, axis=1, bitorder="little"), "uint8"),
        kept=int(kept.sum()),
        row_kept=ArrayData.of(kept.sum(axis=1), "int32"),
        offending=0,
        ms=12.0,
        chosen=chosen,
    )


def errors(method: str, layer: int = 0, projection: str = "q_proj", *, label: str = "", **more: Any) -> PruneErrors:
    """One method's errors on one matrix; `more` replaces fields."""
    size = {"magnitude": 1.0, "wanda": 0.62, "sparsegpt": 0.41, "random": 2.1}.get(method, 1.0) * (1 + layer / 40)
    fields: dict[str, Any] = {
        "weight_error": 0.2 / size,
        "calibration_error": 0.21 * size,
        "heldout_error": 0.23 * size,
        "to_magnitude": None if method == "magnitude" else size / (1 + layer / 40),
        "sparsity": 0.5,
        "ms": 40.0,
    }
    used = setting(method, label=label)
    return PruneErrors(layer=layer, projection=projection, setting=used, **{**fields, **more})


def replay(layer: int = 0, projection: str = "q_proj", rows: int = 6, columns: int = 32) -> SparseGptReplay:
    """SparseGPT on a few rows: the mask by score, the error spread over later columns."""
    rng = np.random.default_rng(layer + 11)
    original = rng.standard_normal((rows, columns)) * 0.1
    spread = np.triu(rng.random((columns, columns)) * 0.2, 1)
    now, turn = original.copy(), np.zeros_like(original)
    score, kept, error = np.zeros_like(original), np.zeros(original.shape, np.uint8), np.zeros_like(original)
    for k in range(columns):
        turn[:, k] = now[:, k]
        score[:, k] = now[:, k] ** 2 / (0.4 + 0.6 * rng.random())
        kept[:, k] = score[:, k] > 0.006
        error[:, k] = np.where(kept[:, k], 0.0, now[:, k])
        now[:, k] = np.where(kept[:, k], now[:, k], 0.0)
        now[:, k + 1 :] -= np.outer(error[:, k], spread[k, k + 1 :])
    return SparseGptReplay(
        layer=layer,
        projection=projection,
        rows=tuple(range(0, rows * 3, 3)),
        start=0,
        width=576,
        original=ArrayData.of(original, "float32"),
        at_turn=ArrayData.of(turn, "float32"),
        score=ArrayData.of(score, "float32"),
        mask=ArrayData.of(kept, "uint8"),
        values=ArrayData.of(now, "float32"),
        error=ArrayData.of(error, "float32"),
        spread=ArrayData.of(spread, "float32"),
        magnitude_loss=ArrayData.of(np.linspace(0.02, 0.05, rows), "float32"),
        final_loss=ArrayData.of(np.linspace(0.008, 0.02, rows), "float32"),
        damping=0.01,
        block=128,
    )


def stored(used: PruneSetting, scope: str = "layer 0 q_proj", weights: int = 576 * 576) -> StoredBytes:
    """The bytes of one matrix or all in each form."""
    kept = round(weights * (1 - used.sparsity))
    packed = bool(used.pattern)
    return StoredBytes(
        setting=used,
        scope=scope,
        weights=weights,
        kept=kept,
        value_bytes=4,
        forms=(
            StoredForm("dense", weights * 4, True, "every weight, zeros among them"),
            StoredForm("bitmap + values", weights // 8 + kept * 4, True, "one bit a weight and the kept values"),
            StoredForm("CSR", kept * 6 + 4 * 577, True, "the kept values, a column number for each"),
            StoredForm(
                "2:4 packed",
                weights * 2 + weights // 8 if packed else weights * 4,
                packed,
                "N values of each M and the place of each" + ("" if packed else "; no such pattern holds"),
            ),
            StoredForm("rows removed", weights * 4, False, "the rows that are left; no row lost all its weights"),
        ),
        break_even=(("bitmap + values", 0.03125), ("CSR", 0.334)),
    )


def masks_run(
    *,
    end: str = "finished",
    label: str = "",
    pattern: str = "",
    layers: tuple[int, ...] = (0,),
    projection: str = "q_proj",
) -> Iterator[Event]:
    """The task "masks": each layer by four methods, errors, a replay, bytes."""
    yield started(task="masks", layers=layers, pattern=pattern or "none", projection=projection)
    yield texts()
    for layer in layers:
        for method in ("wanda", "magnitude", "random", "sparsegpt"):
            own = method == "wanda"
            named = label if own else ""
            yield mask(method, layer, projection, pattern=pattern, chosen=own, label=named)
            yield errors(method, layer, projection, label=named)
        yield replay(layer, projection)
        rows, columns = LLAMA[projection]
        yield stored(setting("wanda", pattern=pattern, label=label), f"layer {layer} {projection}", rows * columns)
        yield Progress(stage="masks", done=layer + 1, total=len(layers))
    if end == "finished":
        yield Proof(verdict="equal", claim="masks counted again", compared=16, matched=16, unit="rows of weights")
    yield ends(end)


def whole_model(used: PruneSetting, layers: int = 30, *, even: bool = True) -> Iterator[Event]:
    """All matrices of the model, layer by layer, and the coverage."""
    rng = np.random.default_rng(3)
    total = 0
    for layer in range(layers):
        cells = []
        for name, (rows, columns) in LLAMA.items():
            share = used.sparsity if even else min(0.98, max(0.02, used.sparsity + 0.25 * math.sin(layer / 4 + rows)))
            kept = round(rows * columns * (1 - share))
            total += rows * columns - kept
            error = 0.1 + 0.2 * float(rng.random())
            cells.append(SparsityCell(layer, name, rows * columns, kept, error, error * 0.8 if even else math.nan))
        yield LayersPruned(setting=used, cells=tuple(cells))
        yield Progress(stage="pruning", done=layer + 1, total=layers)
    kinds = tuple(
        PrunedRow(name, layers, a * b * layers, round(a * b * layers * (1 - used.sparsity)), "")
        for name, (a, b) in LLAMA.items()
    )
    kinds += (PrunedRow("embedding", 1, 28_311_552, 28_311_552, "tied to the head"),)
    kinds += (PrunedRow("norms", 61, 35_136, 35_136, "too small to matter"),)
    truth = "dense, smaller" if used.method == "rows" else "simulated"
    yield PrunedCoverage(setting=used, truth=truth, parameters=134_515_008, pruned=total, rows=kinds)
