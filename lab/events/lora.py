"""Events of the `lora` experiment: an adapter trained, shown before and after, merged, swapped.

An adapter adds dW = scale * B A to some weight matrices W (out, in): A is (rank, in), B is (out, rank), scale is
alpha / rank (or alpha / sqrt(rank) for rsLoRA). The base model's weights are never changed.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.events.array import ArrayData
from lab.events.base import Event
from lab.events.evaluation import Divergence


@dataclass(frozen=True, kw_only=True)
class AdapterFacts(Event):
    """An adapter of this run.

    Attributes:
        name: in this run: "trained", "packaged", "A". label: for a person.
        source: "trained here", "packaged", a file's name.
        targets: suffixes of the adapted modules; modules: how many there are.
        parameters: of A and B together; base_parameters: of the model, tied ones once; matrix_parameters: of
            the adapted matrices.
        bytes: of the factors in memory.
        base: the model that it was made for, as far as it says; matches: "" or what does not fit with the base at hand.
        effectless: "" or why it has no effect (B = 0, no module of that name, other shapes or vocabulary).
    """

    name: str
    label: str
    source: str
    rank: int
    alpha: float
    scale: float
    rslora: bool
    targets: tuple[str, ...]
    modules: int
    parameters: int
    base_parameters: int
    matrix_parameters: int
    bytes: int
    base: str
    matches: str
    effectless: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TrainingData(Event):
    """What is learnt: the task's name, examples and answer tokens of both splits, a few examples (prompt, answer)."""

    task: str
    words: str
    hash: str
    train_examples: int
    heldout_examples: int
    train_tokens: int
    heldout_tokens: int
    examples: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class TrainStep(Event):
    """One optimizer step.

    Attributes:
        step: 1 is the first, of `steps`; step 0 carries the losses before training.
        loss: mean over the batch's answer tokens, nats, before the step; NaN at step 0, which has no batch, and where a
            step that was told before is only measured, since the training ended there; so is `ms`.
        heldout_loss: after the step; None where not measured at this step.
        best: the held-out loss is the lowest so far: this adapter is kept. tokens: of the batch, answers only.
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
class Trained(Event):
    """Training has ended.

    Attributes:
        best_step: after which step the adapter stood that was kept. steps: done in all.
        loss_before, loss_after: of the first batch before it was learnt, and of the last; NaN without a step.
        heldout_before, heldout_after: of the base, and of the adapter kept; NaN where nothing is held out.
        stopped: why it ended early ("stopped", "the loss was no number", "10 minutes were over"); "" if it did not.
        base_untouched: the base's weights have the same hash as before.
    """

    adapter: str
    best_step: int
    steps: int
    seconds: float
    loss_before: float
    loss_after: float
    heldout_before: float
    heldout_after: float
    stopped: str
    base_untouched: bool


@dataclass(frozen=True, kw_only=True)
class UpdateMap(Event):
    """Where the update sits: |dW| / |W|, float32 (layer, projection), NaN where there is none."""

    adapter: str
    projections: tuple[str, ...]
    norms: ArrayData


@dataclass(frozen=True, kw_only=True)
class UpdateSpectrum(Event):
    """Singular values of dW of every adapted matrix, of the adapter as it is stored.

    Attributes:
        modules: (layer, projection) of each; layer -1 is outside the layers (the head).
        values: float32 (module, rank), largest first; the first 128 of larger ranks.
        kept_error: float32 (module, rank + 1): |dW - dW_k| / |dW| if only k singular values are kept, k = 0 to rank.
    """

    adapter: str
    modules: tuple[tuple[int, str], ...]
    values: ArrayData
    kept_error: ArrayData


@dataclass(frozen=True, kw_only=True)
class MergeFigures(Event):
    """An adapter merged into one kind of base, beside the same adapter unmerged.

    Attributes:
        kind: "float32", "bfloat16", "int4 dequantized", "int4 re-quantized".
        base: which weights were merged into, in words.
        max_logit_difference: merged against unmerged, over the prompt and the row's tokens. divergence: KL and flips
            likewise on held-out text; None if not measured.
        lost: |applied - dW|^2 / |dW|^2: 0 is exact, 1 as bad as merging nothing; it can be above 1.
        vanished: share of the entries of dW that changed nothing.
        restored: unmerging gave the base back bit for bit. Where the merged weights were rounded to another format
            ("int4 re-quantized", bf16 beside an fp32 base) there is no backup: the update was subtracted and the
            result rounded again.
        same_form: modules, shapes and dtypes are the base's.
        decode_ms, unmerged_decode_ms, base_decode_ms: medians of a step, taken in turn; NaN for the kinds that were
            not timed (rounded values in the run's own dtype, which run as fast as it).
    """

    adapter: str
    kind: str
    base: str
    max_logit_difference: float
    divergence: Divergence | None
    lost: float
    vanished: float
    restored: bool
    same_form: bool
    decode_ms: float
    unmerged_decode_ms: float
    base_decode_ms: float


@dataclass(frozen=True, kw_only=True)
class OtherText(Event):
    """The base with the adapter on beside the base, on text that the adapter was not trained for."""

    adapter: str
    divergence: Divergence


@dataclass(frozen=True, kw_only=True)
class SwapRow(Event):
    """One prompt with one adapter switched on ("" is the base): its text, and what switching took.

    Attributes:
        same_again: the text equals that of the same pair earlier in the run; None if there was none.
    """

    index: int
    total: int
    adapter: str
    prompt: str
    text: str
    switch_ms: float
    bytes: int
    same_again: bool | None


@dataclass(frozen=True, kw_only=True)
class MergedModel(Event):
    """The merged model as a model of its own, written where the lab finds it.

    Attributes:
        model: the id by which other runs ask for it. name: as in menus.
        base: id of the model that was merged into; factor: how much of the adapter's update.
        bytes: of the weight file.
        matrices: how many were adapted; projections: theirs. others: linear matrices that are the base's own.
        checked: weights of adapted matrices that were put on 4 bits, groups of 32, float minimum; 0 where no matrix
            has rows of whole groups. base_changed, merged_changed: share of them that this changes, in the base and
            in the merged model; 0 means that all lie on that grid; NaN where none was checked.
    """

    model: str
    name: str
    base: str
    adapter: str
    factor: float
    bytes: int
    matrices: int
    others: int
    projections: tuple[str, ...]
    checked: int
    base_changed: float
    merged_changed: float
