"""A method object for a scheme."""

from __future__ import annotations

from lab.errors import NotFound
from lab.experiments.quantization.settings import Scheme
from lab.quantization.awq import UNCLIPPED
from lab.quantization.formats import Cast, FormatName, Scaling
from lab.quantization.llm_int8 import LlmInt8
from lab.quantization.method import Method
from lab.quantization.methods import Settings, make_method

_CASTS: dict[str, FormatName] = {
    "float16": "float16",
    "bfloat16": "bfloat16",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
    "int8": "int8",
}
SCALINGS: dict[FormatName, Scaling] = {"float8_e4m3fn": "tensor", "float8_e5m2": "tensor", "int8": "row"}
"""As is usual: 8-bit floats by one scale a matrix, integers by one a row."""


def build(scheme: Scheme, projection: str = "") -> Method:
    """The method with its settings.

    Args:
        projection: of the matrix, where it is for one alone: AWQ does not clip queries and keys.

    Raises:
        BadInput: settings outside its limits.
    """
    name, p = scheme.method, scheme.params
    if name in _CASTS:
        form = _CASTS[name]
        return Cast(form, scaling=SCALINGS.get(form, "none"))
    if name == "llm_int8":
        return LlmInt8()
    if name == "nf4":
        return make_method(name, Settings(bits=4, share=64, double_quant=p.double_quant))
    if not scheme.gridded:
        raise NotFound(f"There is no method {name!r}.")
    grid, clip = scheme.grid, scheme.clip
    return make_method(
        name,
        Settings(
            bits=grid.bits,
            kind=grid.kind,
            share=grid.share,
            ragged=grid.ragged,
            scale_format=grid.scale_format,
            clip=clip.how,
            clip_amount=clip.amount,
            act_order=p.act_order,
            static_groups=p.static_groups,
            damping=p.damping,
            awq_clip=p.awq_clip and not projection.endswith(UNCLIPPED),
        ),
    )
