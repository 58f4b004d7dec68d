"""Quantized matrices as a file holds them, and back: canonical codes and scales, in no processor's own order.

Codes of up to 4 bits lie two in a byte along the input, the even column in the lower half, counted from the lowest
code; wider codes take a byte each, signed where the grid is. Scales and minima are stored in their own format, so that
what comes back is equal bit for bit. Where codes have 2, 3, 5, 6 or 7 bits a file holds more than the packed bits that
`Storage` counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from lab.errors import BadInput, shown
from lab.quantization.affine import Affine, AffineWeight
from lab.quantization.double_quant import DoubleQuantized
from lab.quantization.grid import Grid
from lab.quantization.nf4 import Nf4Weight
from lab.quantization.quantized import Quantized

FORMATS = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
Described = dict[str, Any]


def to_file(quantized: Quantized) -> tuple[dict[str, Tensor], Described]:
    """The tensors of one matrix by short name, and the description with which `from_file` reads them.

    Raises:
        BadInput: a result of a method that has no form in a file.
    """
    if isinstance(quantized, AffineWeight):
        return _affine_to_file(quantized)
    if isinstance(quantized, Nf4Weight):
        return _nf4_to_file(quantized)
    raise BadInput(
        f"A {type(quantized).__name__} has no form in a file.", remedy="Choose the method nearest, gptq, awq or nf4."
    )


def from_file(described: Described, tensors: Mapping[str, Tensor]) -> Quantized:
    """The matrix again.

    Raises:
        BadInput: a description or tensors that do not belong together.
    """
    try:
        if described["form"] == "affine":
            return _affine_from_file(described, tensors)
        if described["form"] == "nf4":
            return _nf4_from_file(described, tensors)
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise BadInput(
            f"A quantized matrix cannot be read: {type(error).__name__} {shown(str(error))}.",
            remedy="Quantize the model again.",
        ) from None
    raise BadInput(f"There is no form {shown(described['form'])}.", remedy="Update the lab.")


def pack_nibbles(codes: Tensor) -> Tensor:
    """(rows, columns) codes from 0 to 15 as (rows, ceil(columns / 2)) uint8, the even column in the lower half."""
    codes = codes.to(torch.uint8)
    if codes.shape[1] % 2:
        codes = torch.nn.functional.pad(codes, (0, 1))
    return codes[:, 0::2] | codes[:, 1::2] << 4


def unpack_nibbles(packed: Tensor, columns: int) -> Tensor:
    """The inverse of `pack_nibbles`."""
    return torch.stack((packed & 15, packed >> 4), dim=-1).flatten(1)[:, :columns]


def _affine_to_file(made: AffineWeight) -> tuple[dict[str, Tensor], Described]:
    grid, form = made.grid, FORMATS[made.grid.scale_format]
    tensors = {"codes": _stored_codes(made.codes, grid), "scales": made.affine.scale.to(form)}
    if made.affine.offset is not None:
        tensors["zeros"] = made.affine.offset.to(torch.uint8 if grid.kind == "asymmetric" else form)
    if made.order is not None:
        tensors["order"] = made.order.to(torch.int32)
    if made.channel_scales is not None:
        tensors["channel_scales"] = made.channel_scales.float()
    described: Described = {
        "form": "affine",
        "grid": {field.name: getattr(grid, field.name) for field in fields(grid)},
        "shape": list(made.shape),
        "notes": list(made.notes),
    }
    return tensors, described


def _stored_codes(codes: Tensor, grid: Grid) -> Tensor:
    if grid.bits <= 4:
        return pack_nibbles(codes - grid.lowest)
    return codes.to(torch.int8 if grid.lowest < 0 else torch.uint8)


def _affine_from_file(described: Described, tensors: Mapping[str, Tensor]) -> AffineWeight:
    grid = Grid(**described["grid"])
    rows, columns = (int(size) for size in described["shape"])
    stored = tensors["codes"]
    low = grid.bits <= 4
    codes = unpack_nibbles(stored, columns).to(torch.int16) + grid.lowest if low else stored.to(torch.int16)
    groups = (1, 1) if grid.share == "tensor" else (rows, grid.groups(columns))
    scales, zeros = tensors["scales"], tensors.get("zeros")
    wanted = [(codes, (rows, columns)), (scales, groups), *([(zeros, groups)] if zeros is not None else [])]
    for tensor, shape in wanted:
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{tuple(tensor.shape)} where {shape} belongs")
    if (zeros is None) != (grid.zero_bits == 0):
        raise ValueError("zero points are missing or too many")
    if bool((codes < grid.lowest).any()) or bool((codes > grid.highest).any()):
        raise ValueError("codes outside the grid")
    order = tensors["order"].long() if "order" in tensors else None
    if order is not None and not (order.shape == (columns,) and 0 <= int(order.min()) <= int(order.max()) < groups[1]):
        raise ValueError("a group index outside the groups")
    affine = Affine(scales.float(), None if zeros is None else zeros.float())
    notes = tuple(str(note) for note in described["notes"])
    return AffineWeight(grid, (rows, columns), codes, affine, order, tensors.get("channel_scales"), notes)


def _nf4_to_file(made: Nf4Weight) -> tuple[dict[str, Tensor], Described]:
    tensors = {**made.tensors(), "codes": pack_nibbles(made.codes)}
    described: Described = {
        "form": "nf4",
        "block": made.block,
        "shape": list(made.shape),
        "notes": list(made.notes),
    }
    if isinstance(made.magnitudes, DoubleQuantized):
        described["double"] = {
            f.name: value
            for f in fields(made.magnitudes)
            if isinstance(value := getattr(made.magnitudes, f.name), int | float)
        }
    return tensors, described


def _nf4_from_file(described: Described, tensors: Mapping[str, Tensor]) -> Nf4Weight:
    rows, columns = (int(size) for size in described["shape"])
    codes, block = unpack_nibbles(tensors["codes"], columns), int(described["block"])
    if codes.shape != (rows, columns):
        raise ValueError(f"{tuple(codes.shape)} where {(rows, columns)} belongs")
    magnitudes: Tensor | DoubleQuantized
    if "double" in described:
        magnitudes = DoubleQuantized(
            codes=tensors["magnitude_codes"],
            scales=tensors["magnitude_scales"],
            mean=tensors["magnitude_mean"],
            **described["double"],
        )
        count = magnitudes.codes.numel()
    else:
        magnitudes = tensors["magnitudes"]
        count = magnitudes.numel()
    if count != -(-rows * columns // block):
        raise ValueError(f"{count} blocks")
    return Nf4Weight(block, (rows, columns), codes, magnitudes, tuple(str(note) for note in described["notes"]))
