"""What can be chosen in the `quantization` experiment, with the words for it. No torch here."""

from __future__ import annotations

from typing import Literal

from lab.experiments.compared.fields import CONV1D as CONV1D
from lab.experiments.compared.fields import PROJECTIONS as PROJECTIONS
from lab.experiments.compared.fields import Projection as Projection

Task = Literal["layer", "map", "pareto", "words", "packed"]
TASKS: dict[Task, str] = {
    "layer": "study one layer",
    "map": "map the model",
    "pareto": "compare settings",
    "words": "compare words",
    "packed": "run packed kernels",
}
MethodName = Literal["nearest", "gptq", "awq", "nf4", "llm_int8", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2", "int8"]
METHODS: dict[MethodName, str] = {
    "nearest": "round to nearest",
    "gptq": "GPTQ",
    "awq": "AWQ",
    "nf4": "NF4",
    "llm_int8": "LLM.int8()",
    "float16": "FP16",
    "bfloat16": "BF16",
    "fp8_e4m3": "FP8 e4m3",
    "fp8_e5m2": "FP8 e5m2",
    "int8": "INT8",
}
FORMATS: dict[MethodName, int] = {"float16": 16, "bfloat16": 16, "fp8_e4m3": 8, "fp8_e5m2": 8, "int8": 8}
"""Number formats and the bits of a number: no groups, no kind of levels to choose."""
GRIDDED: tuple[MethodName, ...] = ("nearest", "gptq", "awq")
"""Methods on an affine grid: bits, kind and group size matter."""
CALIBRATED: tuple[MethodName, ...] = ("gptq", "awq")

KindName = Literal["absmax", "full_range", "asymmetric", "float_minimum"]
KINDS: dict[KindName, str] = {
    "absmax": "symmetric, −Q to Q",
    "full_range": "symmetric, one more below",
    "asymmetric": "asymmetric, integer zero point",
    "float_minimum": "scale and float minimum",
}
ScaleName = Literal["float16", "bfloat16", "float32"]
GroupSize = Literal[
    "16",
    "32",
    "64",
    "96",
    "128",
    "192",
    "256",
    "288",
    "384",
    "512",
    "64+rest",
    "128+rest",
    "256+rest",
    "512+rest",
    "row",
    "tensor",
]
GROUP_SIZES: tuple[GroupSize, ...] = GroupSize.__args__  # type: ignore[attr-defined]
REST = "+rest"
"""The last group of a row may be smaller than the others."""

Clip = Literal["none", "ratio", "percentile", "least_weight_error", "least_output_error"]
CLIPS: dict[Clip, str] = {
    "none": "nothing clipped",
    "ratio": "fixed ratio",
    "percentile": "percentile",
    "least_weight_error": "search: least weight error",
    "least_output_error": "search: least output error",
}
Activations = Literal["none", "dynamic_token", "dynamic_tensor", "static_max", "static_percentile", "static_average"]
ACTIVATIONS: dict[Activations, str] = {
    "none": "not quantized",
    "dynamic_token": "dynamic, per token",
    "dynamic_tensor": "dynamic, per tensor",
    "static_max": "static: maximum",
    "static_percentile": "static: percentile",
    "static_average": "static: moving average",
}
CacheBits = Literal["none", "8", "4", "2"]
CACHE_BITS: dict[CacheBits, str] = {"none": "not quantized", "8": "8 bits", "4": "4 bits", "2": "2 bits"}
Methods = Literal["nearest", "all"]
BreakRun = Literal["nothing", "neighbour_scales", "codes_off_by_one", "nibbles_swapped", "missing_abs"]
MISTAKES: dict[BreakRun, str] = {
    "nothing": "nothing",
    "neighbour_scales": "take the scale of the next group",
    "codes_off_by_one": "codes off by one",
    "nibbles_swapped": "swap the two halves of each byte",
    "missing_abs": "forget the sign: max w for max |w|",
}


def divides(group_size: str, columns: int) -> bool:
    """Whether rows of `columns` weights can have such groups."""
    if group_size in ("row", "tensor"):
        return True
    size = int(group_size.removesuffix(REST))
    return size <= columns and (group_size.endswith(REST) or columns % size == 0)


def why_not(group_size: str, columns: int) -> str:
    """Why rows of `columns` weights cannot have such groups; "" if they can."""
    if divides(group_size, columns):
        return ""
    size = int(group_size.removesuffix(REST))
    if size > columns:
        return f"A row has only {columns} weights."
    also = f" {size}{REST} makes the last group smaller." if f"{size}{REST}" in GROUP_SIZES else ""
    return f"{columns} = {columns // size} × {size} + {columns % size}.{also}"
