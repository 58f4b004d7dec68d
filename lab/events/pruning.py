"""Events of the `pruning` experiment: masks, errors, curves, what is saved, and recovery.

W is a weight matrix (out, in), W' the same pruned, X the inputs of its layer (positions, in). Rows are outputs.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.events.array import ArrayData
from lab.events.base import Event
from lab.events.evaluation import Divergence


@dataclass(frozen=True)
class PruneSetting:
    """One way to prune.

    Attributes:
        method: "random", "magnitude", "global_magnitude", "wanda", "sparsegpt", "rows".
        label: for a person, all that matters in it: "Wanda, 50 %", "SparseGPT, 2:4".
        sparsity: share of the weights that was asked for, 0 to 1.
        pattern: "2:4", "4:8", "1:4", or "" for none.
        scope: among which weights they are compared: "matrix", "row", "model"; "heads and channels".
    """

    method: str
    label: str
    sparsity: float
    pattern: str
    scope: str


@dataclass(frozen=True, kw_only=True)
class MaskMade(Event):
    """The mask of one matrix by one method.

    Attributes:
        layer: 0 is the first. projection: "q_proj", ... module: its full name. rows, columns: out, in.
        bits: uint8 (row, ceil(columns / 8)): bit j % 8 (the lowest first) of byte j // 8 is 1 where weight j is kept.
        kept: weights kept, counted. row_kept: int32 (row,).
        offending: groups that break the N:M pattern along the input; 0 where there is no pattern.
        ms: of the method on this matrix.
        chosen: it is the method that the run was asked for; others are there to compare.
        notes: a fallback taken, damping used.
    """

    layer: int
    projection: str
    module: str
    rows: int
    columns: int
    setting: PruneSetting
    bits: ArrayData
    kept: int
    row_kept: ArrayData
    offending: int
    ms: float
    chosen: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PruneErrors(Event):
    """Errors of one matrix by one method, each relative to what it is an error of.

    Attributes:
        weight_error: |W' - W| / |W|, Frobenius norms.
        calibration_error, heldout_error: |X (W' - W)^T| / |X W^T| on calibration and on held-out inputs.
        to_magnitude: this calibration_error / that of magnitude with the same pattern; None for magnitude itself.
        sparsity: counted.
    """

    layer: int
    projection: str
    setting: PruneSetting
    weight_error: float
    calibration_error: float
    heldout_error: float
    to_magnitude: float | None
    sparsity: float
    ms: float


@dataclass(frozen=True, kw_only=True)
class SparseGptReplay(Event):
    """SparseGPT column by column on a part of one matrix: some rows, neighbouring columns. Arrays are float32.

    When column k is pruned in row r (its mask bit is 0), a later column j changes by -error[r, k] * spread[k, j].

    Attributes:
        rows: row numbers shown. start: the first column shown, of all `width`.
        original: (row, column): the weights as they were. at_turn: as they stood when their column came.
        score: (row, column): w^2 / [U_kk]^2 at that time. mask: uint8 (row, column), 1 is kept.
        values: (row, column): in the end. error: (row, column): what later columns absorb, 0 where kept.
        spread: (column, column), 0 for j <= k.
        magnitude_loss, final_loss: (row,): mean square error of the row's output with the same share pruned by
            magnitude, and by SparseGPT.
        damping: what was added to the diagonal, as a share of its mean. block: columns in which masks are chosen.
    """

    layer: int
    projection: str
    rows: tuple[int, ...]
    start: int
    width: int
    original: ArrayData
    at_turn: ArrayData
    score: ArrayData
    mask: ArrayData
    values: ArrayData
    error: ArrayData
    spread: ArrayData
    magnitude_loss: ArrayData
    final_loss: ArrayData
    damping: float
    block: int


@dataclass(frozen=True)
class SparsityCell:
    """One matrix of a pruned model. output_error: on kept calibration inputs; NaN if not measured."""

    layer: int
    projection: str
    weights: int
    kept: int
    weight_error: float
    output_error: float


@dataclass(frozen=True, kw_only=True)
class LayersPruned(Event):
    """Some matrices of the whole model; they come as they are done."""

    setting: PruneSetting
    cells: tuple[SparsityCell, ...]


@dataclass(frozen=True)
class PrunedRow:
    """Matrices of one kind and what became of them: name ("q_proj", "embedding"), modules, parameters (tied ones
    once), kept (nonzero by the mask; all where not pruned), and why it was not pruned ("" if it was)."""

    name: str
    modules: int
    parameters: int
    kept: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class PrunedCoverage(Event):
    """How much of the model is really pruned; `truth`: "simulated": zeros in dense tensors; "dense, smaller": rows are
    gone."""

    setting: PruneSetting
    truth: str
    parameters: int
    pruned: int
    rows: tuple[PrunedRow, ...]


@dataclass(frozen=True, kw_only=True)
class CurvePoint(Event):
    """The whole model at one sparsity by one method beside the dense one, on held-out text.

    Attributes:
        index, total: the how-manyth of how many points.
        sparsity: of the pruned matrices, counted.
        divergence: None where the point was skipped. skipped: why; "" if it was measured.
        chosen: it is the run's own setting. ms: of pruning the model.
    """

    index: int
    total: int
    setting: PruneSetting
    sparsity: float
    divergence: Divergence | None
    skipped: str
    chosen: bool
    ms: float


@dataclass(frozen=True)
class StoredForm:
    """Bytes of the pruned matrices in one form; `words`: what is counted. valid: whether the mask allows that form."""

    name: str
    bytes: int
    valid: bool
    words: str


@dataclass(frozen=True, kw_only=True)
class StoredBytes(Event):
    """What the pruned matrices take: "dense", "bitmap + values", "CSR", "2:4 packed", "rows removed".

    Attributes:
        scope: "layer 0 q_proj" or "all layers". weights, kept: of them. value_bytes: of one value.
        break_even: name of a form and the sparsity from which on it is smaller than dense.
    """

    setting: PruneSetting
    scope: str
    weights: int
    kept: int
    value_bytes: int
    forms: tuple[StoredForm, ...]
    break_even: tuple[tuple[str, float], ...]


@dataclass(frozen=True, kw_only=True)
class TimedToken(Event):
    """One decode step of one variant; variants take turns, token by token. Index 0 comes out of the prefill."""

    variant: str
    index: int
    token_id: int
    text: str
    ms: float


@dataclass(frozen=True, kw_only=True)
class TimedFigures(Event):
    """One variant measured beside the dense model in the same run.

    Attributes:
        parameters: of the model. resident_bytes: of its weights in memory.
        decode_ms: median of a step. prefill_ms: of the prompt of `prompt_tokens`.
        speedup, prefill_speedup: dense ms / this one's. steps: measured.
        words: why it is not faster, or why it is; with all times NaN "not here: ..." where a kernel is missing, and
            "not run: ..." where there is one that was not timed.
    """

    variant: str
    parameters: int
    resident_bytes: int
    decode_ms: float
    tokens_per_s: float
    prefill_ms: float
    prompt_tokens: int
    speedup: float
    prefill_speedup: float
    steps: int
    words: str


@dataclass(frozen=True, kw_only=True)
class VariantLoss(Event):
    """What a variant that was timed lost: it beside the dense model on held-out text. `setting`: how it was pruned."""

    variant: str
    setting: PruneSetting
    divergence: Divergence


@dataclass(frozen=True, kw_only=True)
class RecoveryStep(Event):
    """One step of the fine-tune with the mask held.

    Attributes:
        step: 1 is the first, of `steps`; 0 is what is measured before it. loss: of its batch, nats; NaN at step 0, and
            where a step that was told before is only measured, since the training ended there; so is `ms`.
        heldout_loss: nats a token of the held-out text, after the step; None where not measured.
        best: the held-out loss is the lowest so far.
    """

    step: int
    steps: int
    loss: float
    heldout_loss: float | None
    learning_rate: float
    tokens: int
    best: bool
    ms: float


@dataclass(frozen=True, kw_only=True)
class Recovered(Event):
    """Before and after the fine-tune, on the same held-out text.

    Attributes:
        sparsity_before, sparsity_after: of the pruned matrices, counted. revived: pruned weights that are no longer 0.
        best_step: the step whose weights are kept. stopped: why it ended early, with the best so far; "" if it did not.
    """

    setting: PruneSetting
    pruned: Divergence
    recovered: Divergence
    sparsity_before: float
    sparsity_after: float
    revived: int
    best_step: int
    stopped: str
