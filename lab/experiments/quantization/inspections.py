"""Questions to the `quantization` experiment: histograms as a slider moves, a group, formats, storage, the example."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pydantic import BaseModel, Field, field_validator

from lab.errors import BadInput, NotFound, Unavailable
from lab.events import ModelFacts
from lab.experiments.base import Question, RunContext
from lab.experiments.compared.targets import Target, find_targets, pick
from lab.experiments.quantization.build import build
from lab.experiments.quantization.choices import GroupSize, KindName, MethodName, Projection, ScaleName, why_not
from lab.experiments.quantization.params import QuantizationParams
from lab.experiments.quantization.reference import value_of
from lab.experiments.quantization.settings import Scheme
from lab.experiments.quantization.storage_question import StorageQuestion, answer_storage, stored_answer
from lab.experiments.quantization.study import (
    MOST_SHARES,
    WORST,
    Studied,
    histogram,
    shares_to_compare,
    swept_event,
    weights_of,
    worst_weights,
)
from lab.quantization.example import ExampleGroup, absmax_example, outlier_example
from lab.quantization.formats import FORMATS, table
from lab.quantization.histograms import compare, group_before_after, worst_on_grid
from lab.quantization.storage import GB, by_count
from lab.steps import finished

if TYPE_CHECKING:
    from torch import nn

PLAIN: tuple[MethodName, ...] = ("nearest", "nf4", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2", "int8")
"""Methods quick enough to answer while a slider moves: no calibration, no search."""


class MatrixQuestion(Question):
    """One matrix of the model, one way to quantize it."""

    layer: int = Field(0, ge=0, description="Layer, 0 is the first.")
    projection: Projection = Field("q_proj", description="The weight matrix of the layer.")
    method: MethodName = Field("nearest", description=f"One of {', '.join(PLAIN)}.")
    bits: int = Field(4, ge=2, le=8, description="Of a code.")
    kind: KindName = Field("absmax", description="Where the levels lie.")
    scale_format: ScaleName = Field("float16", description="How scales are stored.")

    @field_validator("method")
    @classmethod
    def _quick(cls, value: MethodName) -> MethodName:
        if value not in PLAIN:
            raise ValueError(f"{value} takes a run; ask for one of {', '.join(PLAIN)}")
        return value


class HistogramQuestion(MatrixQuestion):
    """Errors of one matrix at up to six group sizes, on one axis."""

    group_sizes: tuple[GroupSize, ...] = Field(
        (), max_length=MOST_SHARES, description="None named: six that fit. Without a grid they do not matter."
    )


class GroupQuestion(MatrixQuestion):
    """One group of weights before and after."""

    group_size: GroupSize = Field("64", description="Weights that share a scale.")
    row: int = Field(0, ge=0, description="Row of the matrix: an output.")
    group: int = Field(0, ge=0, description="Group of that row, 0 is the first.")


class FormatsQuestion(Question):
    """One value in each number format."""

    value: float = Field(0.1, allow_inf_nan=False, description="Any number that fp32 holds.")
    largest: float = Field(
        0.0, ge=0.0, allow_inf_nan=False, description="The largest |w| that shares INT8's scale; 0: the value itself."
    )


class WorkedExampleQuestion(Question):
    """The lesson's worked examples and their figures. Nothing to choose."""


INSPECTIONS: Mapping[str, type[BaseModel]] = {
    "histogram": HistogramQuestion,
    "group": GroupQuestion,
    "formats": FormatsQuestion,
    "storage": StorageQuestion,
    "worked_example": WorkedExampleQuestion,
}
_FOUND: WeakKeyDictionary[nn.Module, list[Target]] = WeakKeyDictionary()
"""The matrices of a model, which is read-only, as long as it lives."""
READS_WEIGHTS = frozenset({"histogram", "group"})


def inspect(context: RunContext | None, facts: ModelFacts, name: str, params: BaseModel) -> dict[str, Any]:
    """Answer one question in at most 256 KiB and, on the default model, 100 ms.

    Args:
        context: a run or the loaded model; None where the question needs neither.
        params: of the class that `INSPECTIONS` names.

    Raises:
        NotFound: no such question.
        BadInput: the model has no such layer, matrix or group, or the group size does not fit.
        Unavailable: the question needs the model's weights.
    """
    match name, params:
        case "histogram", HistogramQuestion():
            return _histogram(context, params)
        case "group", GroupQuestion():
            return _group(context, params)
        case "formats", FormatsQuestion():
            return _formats(params)
        case "storage", StorageQuestion():
            return answer_storage(facts, params)
        case "worked_example", WorkedExampleQuestion():
            return _worked_example()
    raise NotFound(f"quantization answers no question {name!r}.", remedy=f"Ask one of {', '.join(INSPECTIONS)}.")


def _histogram(context: RunContext | None, question: HistogramQuestion) -> dict[str, Any]:
    """`histograms`: the fields of `ErrorHistogram`, the coarsest first, on one axis, with the `worst` weights of each;
    `refused`: group sizes that do not fit, with reasons."""
    target = _target(context, question)
    columns = target.weight.shape[1]
    base = _scheme(question)
    if not base.gridded:
        return {"matrix": target.title, "histograms": [_counted(target, base)], "refused": {}}
    asked: list[str] = list(question.group_sizes) or shares_to_compare(target, "64")
    refused = {size: why for size in asked if (why := why_not(size, columns))}
    sizes = sorted((size for size in asked if size not in refused), key=lambda size: -weights_of(size, columns))
    schemes = [_scheme(question, size) for size in sizes]
    swept = compare(target.weight, [scheme.grid for scheme in schemes]) if schemes else ()
    found = []
    for scheme, one in zip(schemes, swept, strict=True):
        event = swept_event(target, scheme, one)
        size = scheme.grid.group_size(columns)
        worst = [  # the fields of WorstWeight; `asdict` copies each, which 72 of them would be felt
            {"row": o.row, "column": o.column, "group": o.column // size, "before": o.value, "after": o.became}
            for o in worst_on_grid(target.weight, one, WORST)
        ]
        found.append({**asdict(event), "counts": event.counts, "worst": worst})
    return {"matrix": target.title, "histograms": found, "refused": refused}


def _counted(target: Target, scheme: Scheme) -> dict[str, Any]:
    began = perf_counter()
    made = finished(build(scheme).quantize(target.weight))
    studied = Studied(target, scheme, made, made.dequantize(), (perf_counter() - began) * 1e3)
    event = histogram(studied, None, chosen=False)
    worst = [asdict(weight) for weight in worst_weights(studied).weights]
    return {**asdict(event), "counts": event.counts, "worst": worst}


def _group(context: RunContext | None, question: GroupQuestion) -> dict[str, Any]:
    """`before`, `after`, `codes`, `scale`, `offset`, `levels` (all values the group can take), `start` column."""
    target = _target(context, question)
    scheme = _scheme(question, question.group_size)
    if not scheme.gridded:
        raise BadInput(f"{question.method} has no groups on a grid.", remedy="Ask for nearest.")
    scheme.check(target.weight.shape[1])
    view = group_before_after(target.weight, scheme.grid, question.row, question.group)
    levels = [value_of(code, view.scale, view.offset, scheme.grid) for code in range(view.lowest, view.highest + 1)]
    columns = list(range(view.start, view.start + len(view.before)))
    return {**question.model_dump(), "matrix": target.title, **asdict(view), "columns": columns, "levels": levels}


def _formats(question: FormatsQuestion) -> dict[str, Any]:
    """`formats`: what the value becomes in each, with the format's range and precision."""
    found = []
    for became in table((question.value,), question.largest or None)[0]:
        form = FORMATS[became.form]
        found.append({**asdict(form), **asdict(became), "error": became.error, "relative_error": became.relative_error})
    return {"value": question.value, "formats": found}


def _worked_example() -> dict[str, Any]:
    """The lesson's weights at 4 and 8 bits, the outlier with and without, and the size of 7 billion weights."""
    with_it, without = outlier_example()
    return {
        "four": [_example(absmax_example(bits=bits)) for bits in (4, 8)],
        "outlier": _example(with_it),
        "without_outlier": _example(without),
        "seven_billion": stored_answer(by_count(7 * GB, 4, 128)),
    }


def _example(group: ExampleGroup) -> dict[str, Any]:
    return {**asdict(group), "bound": group.bound}


def _scheme(question: MatrixQuestion, share: str = "64") -> Scheme:
    params = QuantizationParams.model_validate(
        {
            "method": question.method,
            "bits": question.bits,
            "kind": question.kind,
            "scale_format": question.scale_format,
            "group_size": share,
        }
    )
    return Scheme.of(params)


def _target(context: RunContext | None, question: MatrixQuestion) -> Target:
    if context is None:
        raise Unavailable("This question needs the model's weights.", remedy="Ask again when the model is loaded.")
    model = context.model.model
    if model not in _FOUND:  # a walk through all modules: more than a tenth of a histogram's time
        _FOUND[model] = find_targets(model)
    return pick(context.model, _FOUND[model], question.layer, question.projection)
