"""What can be asked of a `pruning` run, or of a model without one."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal

import torch
from pydantic import BaseModel, Field
from torch import Tensor

from lab.errors import BadInput, NotFound, Unavailable
from lab.events import ArrayData, ModelFacts
from lab.experiments.base import Question, RunContext
from lab.experiments.compared.ending import EnoughQuestion, enough
from lab.experiments.compared.fields import Projection
from lab.experiments.compared.targets import Target, find_targets, pick
from lab.experiments.pruning.choices import ONE_MATRIX, MethodName, PatternName, ScopeName
from lab.experiments.pruning.settings import Scheme
from lab.pruning.example import magnitude_example
from lab.pruning.mask_bits import LONGEST, ZERO, Viewport, kept_per_row, pack_mask, unpack_mask, value_bytes
from lab.pruning.nm import check_nm
from lab.pruning.storage import Counted, store
from lab.steps import finished

QUICK: tuple[MethodName, ...] = ("random", "magnitude")
"""Methods quick enough to answer while a slider moves: they read nothing but the matrix."""
MOST_BITS = 184 * 1024
"""Bytes of a mask in one answer: in base64, with the words beside it, they stay below 256 KiB."""
_NOT_OF_A_RUN = ("pattern", "scope", "seed")
"""What a question may say, and the mask that a run made does not follow."""
MOST_NAMED = 12
"""Offending groups that are named."""


class MatrixQuestion(Question):
    """One matrix of the model."""

    layer: int = Field(0, ge=0, description="Layer, 0 is the first.")
    projection: Projection = Field("q_proj", description="The weight matrix of the layer.")


class MaskQuestion(MatrixQuestion):
    """The mask of one matrix: by a quick method at any sparsity, by others as the run made it.

    Of those, what else is asked counts for nothing: the answer tells the sparsity that its mask really has.
    """

    method: MethodName = Field("magnitude", description="random or magnitude; others from a run.")
    sparsity: float = Field(0.5, ge=0.0, le=1.0, allow_inf_nan=False, description="Share of the weights that go.")
    pattern: PatternName = Field("none", description="N:M along the input.")
    scope: ScopeName = Field("matrix", description="Among which weights they are compared.")
    seed: int = Field(0, ge=0, le=2**32 - 1, description="Of random masks.")


class ValuesQuestion(MatrixQuestion):
    """Weights of a part of a matrix, at a screen's precision."""

    row: int = Field(0, ge=0, description="First row.")
    column: int = Field(0, ge=0, description="First column.")
    rows: int = Field(64, ge=1, le=LONGEST, description="Rows; fewer at the edge.")
    columns: int = Field(64, ge=1, le=LONGEST, description="Columns; fewer at the edge.")


class NmQuestion(MaskQuestion):
    """Whether a mask keeps an N:M pattern along the input."""

    check: Literal["2:4", "4:8", "1:4"] = Field("2:4", description="The pattern to check for.")


class StorageQuestion(Question):
    """Bytes of one matrix in each form, by count alone."""

    rows: int = Field(1536, ge=1, le=10**6, description="Outputs.")
    columns: int = Field(576, ge=1, le=10**6, description="Inputs.")
    sparsity: float = Field(
        0.5, ge=0.0, le=1.0, allow_inf_nan=False, description="Share of the weights that are pruned."
    )
    pattern: PatternName = Field("none", description="The pattern that the mask keeps.")
    value_bits: Literal[8, 16, 32] = Field(16, description="Of a weight.")


class WorkedExampleQuestion(Question):
    """The lesson's 2 x 3 matrix to 50 %. Nothing to choose."""


INSPECTIONS: Mapping[str, type[BaseModel]] = {
    "mask": MaskQuestion,
    "values": ValuesQuestion,
    "nm_check": NmQuestion,
    "storage": StorageQuestion,
    "worked_example": WorkedExampleQuestion,
    "enough": EnoughQuestion,
}
READS_WEIGHTS = frozenset({"mask", "values", "nm_check"})


def inspect(context: RunContext | None, facts: ModelFacts, name: str, params: BaseModel) -> dict[str, Any]:
    """Answer one question in at most 256 KiB and, on the default model, 100 ms.

    Args:
        context: a run or the loaded model; None where the question needs neither.
        params: of the class that `INSPECTIONS` names.

    Raises:
        NotFound: no such question.
        BadInput: no such layer, matrix or part of it; a pattern that does not fit; a mask too large for an answer.
        Unavailable: the question needs the model's weights, or a run.
    """
    del facts
    match name, params:
        case "nm_check", NmQuestion():
            return _nm(context, params)
        case "mask", MaskQuestion():
            return _mask(context, params)
        case "values", ValuesQuestion():
            return _values(context, params)
        case "storage", StorageQuestion():
            return _storage(params)
        case "worked_example", WorkedExampleQuestion():
            return {"matrix": asdict(magnitude_example())}
        case "enough", EnoughQuestion():
            return enough(context)
    raise NotFound(f"pruning answers no question {name!r}.", remedy=f"Ask one of {', '.join(INSPECTIONS)}.")


def _mask(context: RunContext | None, question: MaskQuestion) -> dict[str, Any]:
    """`bits` as in `MaskMade`, with `rows`, `columns`, `kept`, `label`; the `sparsity` is counted, `asked` what was."""
    target, bits, label = _bits(context, question)
    rows, columns = target.weight.shape
    kept = int(kept_per_row(bits).sum())
    return {
        **question.model_dump(exclude={"sparsity", *(() if question.method in QUICK else _NOT_OF_A_RUN)}),
        "asked": question.sparsity,
        "sparsity": 1 - kept / (rows * columns),
        "matrix": target.title,
        "label": label,
        "rows": rows,
        "columns": columns,
        "kept": kept,
        "bits": ArrayData.of(bits.numpy(), "uint8").to_json(),
    }


def _bits(context: RunContext | None, question: MaskQuestion) -> tuple[Target, Tensor, str]:
    target = _target(context, question)
    rows, columns = target.weight.shape
    size = rows * -(-columns // 8)
    if size > MOST_BITS:
        raise BadInput(
            f"The mask of {target.title}, {rows:,} x {columns:,}, takes {size:,} bytes, a bit a weight; "
            f"an answer holds {MOST_BITS:,} at most.",
            remedy="Ask for a smaller matrix, or run the task masks on this one: a run tells its masks whole.",
        )
    if question.method in QUICK:
        scheme = Scheme(question.method, question.sparsity, question.pattern, question.scope, seed=question.seed)
        made = finished(scheme.make(target.name).prune(target.weight))
        return target, pack_mask(made.mask), scheme.setting.label
    if question.method not in ONE_MATRIX:
        raise BadInput(f"{question.method} has no mask of one matrix.", remedy=f"Ask for {', '.join(ONE_MATRIX)}.")
    found = {} if context is None else context.kept.get("masks", {})
    key = target.layer, target.projection, question.method
    if key not in found:
        raise Unavailable(
            f"No run made a mask of {target.title} by {question.method}.", remedy="Run the task masks on it first."
        )
    bits: Tensor = found[key]
    return target, bits, f"{question.method}, as the run made it"


def _values(context: RunContext | None, question: ValuesQuestion) -> dict[str, Any]:
    """`values`: base64 of one signed byte a weight, row by row; 127 stands for `scale`, the matrix's largest |w|."""
    target = _target(context, question)
    view = Viewport(question.row, question.column, question.rows, question.columns)
    found = value_bytes(target.weight, view, spacing="linear")
    signed = (found.levels.to(torch.int16) - ZERO).to(torch.int8)
    rows, columns = signed.shape
    return {
        **question.model_dump(),
        "matrix": target.title,
        "rows": rows,
        "columns": columns,
        "values": base64.b64encode(signed.numpy().tobytes()).decode("ascii"),
        "scale": found.largest,
    }


def _nm(context: RunContext | None, question: NmQuestion) -> dict[str, Any]:
    """`valid`, `broken` groups in all, the first `named` (row, group, kept), and whether it holds along the outputs."""
    target, bits, label = _bits(context, question)
    n, m = (int(part) for part in question.check.split(":"))
    report = check_nm(unpack_mask(bits, target.weight.shape[1]), n, m)
    return {
        **question.model_dump(),
        "matrix": target.title,
        "label": label,
        "valid": report.valid,
        "broken": report.broken_count,
        "named": [[one.row, one.group, one.kept] for one in report.broken[:MOST_NAMED]],
        "fits_along_out": report.fits_along_out,
        "words": report.words,
    }


def _storage(question: StorageQuestion) -> dict[str, Any]:
    """`forms`: bytes, share of the dense bytes and break-even sparsity of each form."""
    weights = question.rows * question.columns
    n, m = (0, 0) if question.pattern == "none" else (int(part) for part in question.pattern.split(":"))
    kept = weights // m * n if m else weights - round(question.sparsity * weights)
    matrix = Counted(name="the matrix", rows=question.rows, columns=question.columns, kept=kept, n=n, m=m)
    forms = {
        layout: {"bytes": one.bytes, "share": one.share, "break_even": one.break_even, "unfit": one.unfit}
        for layout, one in store(matrix, question.value_bits).items()
    }
    return {**question.model_dump(), "weights": weights, "kept": kept, "forms": forms}


def _target(context: RunContext | None, question: MatrixQuestion) -> Target:
    if context is None:
        raise Unavailable("This question needs the model's weights.", remedy="Ask again when the model is loaded.")
    return pick(context.model, find_targets(context.model.model), question.layer, question.projection)
