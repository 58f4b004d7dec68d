"""Number formats side by side: their range, their precision, what a number becomes, and a whole matrix cast to one.

A floating format keeps relative precision: neighbours are 2^-m of their size apart, m the bits of the mantissa. int8
with a scale keeps absolute precision: neighbours are one scale apart everywhere. FP8: Micikevicius et al. 2022; its
e4m3fn has no infinity, and its largest mantissa is a number where others have an infinity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from lab.calibration.inputs import LayerInputs
from lab.errors import BadInput, shown
from lab.models.linear import check_weight
from lab.quantization.clipping import pieces
from lab.quantization.method import Quantizing
from lab.quantization.quantized import Storage

FormatName = Literal["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8"]
Scaling = Literal["none", "row", "tensor"]
_SIGNIFICANT = 2.0**-126


@dataclass(frozen=True)
class NumberFormat:
    """A number format.

    Attributes:
        name: torch's.
        label: as on screen.
        bits: of one number.
        exponent_bits, mantissa_bits: 0 for an integer, whose bits but the sign are all one number.
        largest: finite number; of int8 a code.
        smallest_normal: positive number with all bits of precision.
        smallest: positive number.
        overflow: what a plain cast makes of a number beyond the largest, in words.
    """

    name: FormatName
    label: str
    bits: int
    exponent_bits: int
    mantissa_bits: int
    largest: float
    smallest_normal: float
    smallest: float
    overflow: str

    @property
    def relative_precision(self) -> float | None:
        """The largest |w - w'| / |w| in the normal range, 2^-(mantissa_bits + 1); None for an integer."""
        return 2.0 ** -(self.mantissa_bits + 1) if self.exponent_bits else None


def _floating(
    name: FormatName, label: str, exponent: int, mantissa: int, largest: float, lowest: int, overflow: str
) -> NumberFormat:
    normal = 2.0**lowest
    return NumberFormat(
        name, label, 1 + exponent + mantissa, exponent, mantissa, largest, normal, normal * 2.0**-mantissa, overflow
    )


_INFINITE = "infinity"
FORMATS: dict[FormatName, NumberFormat] = {
    form.name: form
    for form in (
        _floating("float16", "FP16", 5, 10, 65504.0, -14, _INFINITE),
        _floating("bfloat16", "BF16", 8, 7, (2 - 2.0**-7) * 2.0**127, -126, _INFINITE),
        _floating(
            "float8_e4m3fn",
            "FP8 e4m3",
            4,
            3,
            448.0,
            -6,
            "no number, or the largest one: there is no infinity, and libraries differ",
        ),
        _floating("float8_e5m2", "FP8 e5m2", 5, 2, 57344.0, -14, _INFINITE),
        NumberFormat("int8", "INT8", 8, 0, 0, 127.0, 1.0, 1.0, "clipped to 127 times the scale"),
    )
}
"""The five, by name. int8 is symmetric, codes -127 to 127 times a scale."""

_DTYPES: dict[FormatName, torch.dtype] = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
    "int8": torch.int8,
}


@dataclass(frozen=True)
class Became:
    """What one number becomes in one format.

    Attributes:
        form: the format's name.
        value: the number.
        became: what it is then; the largest finite number where it is beyond it.
        saturated: whether it was beyond the format's range.
        underflowed: whether it became 0 without being 0.
    """

    form: FormatName
    value: float
    became: float
    saturated: bool
    underflowed: bool

    @property
    def error(self) -> float:
        """value - became."""
        return self.value - self.became

    @property
    def relative_error(self) -> float | None:
        """|error| / |value|; None for 0."""
        return abs(self.error / self.value) if self.value else None


def became(value: float, name: FormatName, largest: float | None = None) -> Became:
    """What `value` becomes.

    Args:
        largest: of int8, the largest |w| that shares its scale; None: the value itself, which then is exact.

    Raises:
        BadInput: no such format, a value that is not finite or beyond fp32, or a `largest` that is not positive.
    """
    form = _format(name)
    if not math.isfinite(value) or abs(value) > torch.finfo(torch.float32).max:
        raise BadInput(f"{shown(value)} is no number that fp32 holds.", remedy="Give a finite number.")
    if largest is not None and not (0 < largest < math.inf):
        raise BadInput(
            f"The largest |w| of a scale is above 0, not {shown(largest)}.", remedy="Give a positive number."
        )
    scale = (abs(value) if largest is None else largest) / form.largest if name == "int8" else 1.0
    number = torch.tensor([value])
    result = float(_decoded(_encoded(number, form, torch.tensor(scale or 1.0)), torch.tensor(scale or 1.0), form))
    return Became(
        form=name,
        value=value,
        became=result,
        saturated=_rounds_beyond(abs(value) / (scale or 1.0), form),
        underflowed=value != 0 and result == 0,
    )


def table(values: tuple[float, ...], largest: float | None = None) -> tuple[tuple[Became, ...], ...]:
    """One row a value, one column a format; int8 shares the scale of `largest`, else of the largest value."""
    reach = largest if largest is not None else max((abs(v) for v in values), default=0.0)
    return tuple(tuple(became(value, name, reach or None) for name in FORMATS) for value in values)


@dataclass(frozen=True)
class CastWeight:
    """A `Quantized` matrix in a number format.

    Attributes:
        form: the format's name.
        codes: (out, in): the bits of the numbers, int16 or uint8; of int8 the numbers.
        scale: (out, 1) or (1, 1) fp32, or None.
        notes: see `Quantized`.
    """

    form: FormatName
    codes: Tensor
    scale: Tensor | None
    notes: tuple[str, ...] = ()

    @property
    def storage(self) -> Storage:
        """See `Quantized`; a scale takes 32 bits."""
        count = self.codes.numel()
        return Storage(
            weights=count,
            code_bits=FORMATS[self.form].bits * count,
            scale_bits=0 if self.scale is None else 32 * self.scale.numel(),
        )

    def tensors(self) -> dict[str, Tensor]:
        """See `Quantized`."""
        return {"codes": self.codes} if self.scale is None else {"codes": self.codes, "scales": self.scale}

    def dequantize(self) -> Tensor:
        """See `Quantized`."""
        scale = torch.ones(1, 1, device=self.codes.device) if self.scale is None else self.scale
        return _decoded(self.codes, scale, FORMATS[self.form])


@dataclass(frozen=True)
class Cast:
    """A cast to a number format, rounded to nearest, ties to even. What is beyond the range is saturated and counted.

    Attributes:
        form: the format's name.
        scaling: "none", or an fp32 scale a row or tensor that brings the largest |w| to the format's largest number.
            int8 needs one.
    """

    form: FormatName = "float8_e4m3fn"
    scaling: Scaling = "none"

    name: ClassVar[str] = "cast"
    label: ClassVar[str] = "Number format"
    wants_inputs: ClassVar[bool] = False
    wants_hessian: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _format(self.form)
        if self.scaling not in ("none", "row", "tensor"):
            raise BadInput(f"There is no scaling {shown(self.scaling)}.", remedy="Choose none, row or tensor.")
        if self.form == "int8" and self.scaling == "none":
            raise BadInput("int8 holds -127 to 127: weights need a scale.", remedy="Choose scaling by row or tensor.")

    def quantize(self, weight: Tensor, inputs: LayerInputs | None = None) -> Quantizing:  # noqa: ARG002
        """See `Method`.

        Raises:
            BadInput: a weight that is not finite.
        """
        check_weight(weight)
        form, weight = FORMATS[self.form], weight.detach()
        scale = None
        if self.scaling != "none":
            reach = torch.cat([weight[piece].float().abs().amax(1, keepdim=True) for piece in pieces(weight)])
            reach = reach.amax().view(1, 1) if self.scaling == "tensor" else reach
            scale = torch.where(reach > 0, (reach / form.largest).clamp_(min=_SIGNIFICANT), 1.0)
        yield 0.1
        codes: list[Tensor] = []
        beyond = 0
        for piece in pieces(weight):
            here = weight.new_ones(1, 1, dtype=torch.float32) if scale is None else scale
            rows = weight[piece].float()
            here = here if here.numel() == 1 else here[piece]
            codes.append(_encoded(rows, form, here))
            beyond += int((rows.abs() > form.largest * here * (1 + 2.0**-20)).sum())
            yield 0.1 + 0.9 * piece.stop / weight.shape[0]
        notes = (f"{beyond:,} weights beyond {form.largest:g} became that.",) if beyond else ()
        return CastWeight(self.form, torch.cat(codes), scale, notes)


def _format(name: str) -> NumberFormat:
    if name not in FORMATS:
        raise BadInput(f"There is no number format {shown(name)}.", remedy=f"Choose one of {', '.join(FORMATS)}.")
    return FORMATS[name]


def _encoded(values: Tensor, form: NumberFormat, scale: Tensor) -> Tensor:
    """The bits of `values` / `scale`, saturated."""
    scaled = (values / scale).clamp_(-form.largest, form.largest)
    if form.name == "int8":
        return scaled.round_().to(torch.int8)
    return scaled.to(_DTYPES[form.name]).view(torch.int16 if form.bits == 16 else torch.uint8)


def _decoded(codes: Tensor, scale: Tensor, form: NumberFormat) -> Tensor:
    numbers = codes if form.name == "int8" else codes.view(_DTYPES[form.name])
    return numbers.float() * scale


def _rounds_beyond(size: float, form: NumberFormat) -> bool:
    """Whether |w| / scale is beyond the largest number by half a step or more, so that no rounding brings it back."""
    step = 2.0 ** (math.frexp(form.largest)[1] - 1 - form.mantissa_bits) if form.exponent_bits else 1.0
    return size >= form.largest + step / 2
