"""Packed kernels against plain arithmetic: codes computed again, and logits against dequantized dense weights."""

from __future__ import annotations

import math
import random
from contextlib import closing
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from lab.experiments.compared.finding import Finding
from lab.experiments.compared.progress import Made, Part
from lab.experiments.compared.speak import Reading, Voice
from lab.experiments.quantization.checked import Sample
from lab.experiments.quantization.choices import BreakRun
from lab.experiments.quantization.reference import Group
from lab.experiments.quantization.setup import Setup
from lab.models.shell import make_shell
from lab.quantization.packed.int4 import Int4Weight
from lab.quantization.packed.int8 import Int8Weight
from lab.quantization.packed.modules import PackedLinear, PackedWeight
from lab.quantization.packed.pack import Packed
from lab.quantization.packed.sliced import SLICE_WEIGHTS, packing_int4, packing_int8

GROUPS = 4
"""Of a packed matrix, computed again."""
TOLERANCE = 0.05
"""Of the largest logit difference, relative to the spread of the dequantized model's logits: packed products round
their inputs and results to bf16 (2^-8 relative) in every matrix."""


PRODUCT_TOLERANCE = 2.0**-7
"""Of the norm of a matrix's product: inputs are rounded alike on both sides, results to bf16 (2^-9 of each)."""
OUTPUT_TOLERANCE = 2.0**-5
"""Of one output's share of it: in the norm of a tall matrix (the head has 49,152 rows) one wrong row is lost."""


def repacked(shell: nn.Module, mistake: BreakRun) -> Part:
    """Make a known mistake in every packed matrix of a shell."""
    for module in shell.modules():
        if isinstance(module, PackedLinear):
            module.weight_codes = _broken(module.weight_codes, mistake)
            yield None


def _broken(weight: PackedWeight, mistake: BreakRun) -> PackedWeight:
    if isinstance(weight, Int8Weight):
        match mistake:
            case "neighbour_scales":
                return replace(weight, scales=weight.scales.roll(1))
            case "codes_off_by_one":
                return replace(weight, codes=(weight.codes.int() + 1).clamp(-127, 127).to(torch.int8))
            case "nibbles_swapped":
                return replace(weight, codes=_swapped(weight.codes))
    if isinstance(weight, Int4Weight):
        codes, scales, zeros = weight.codes, weight.scales, weight.zeros
        match mistake:
            case "neighbour_scales":
                scales, zeros = scales.roll(1, 1), zeros.roll(1, 1)
            case "codes_off_by_one":
                codes = (codes + 1).clamp(max=15)
            case "nibbles_swapped":
                codes = _swapped(codes)
        return Int4Weight.from_codes(codes, scales, zeros, weight.group_size)
    return weight


def _swapped(codes: Tensor) -> Tensor:
    return codes.view(len(codes), -1, 2).flip(2).reshape(codes.shape).contiguous()


def check_codes(setup: Setup, name: str, packed: Packed) -> Part:
    """Some groups of each packed matrix: no weight further from its value than s / 2 and what bf16 rounds away."""
    checked = setup.checked
    dense = dict(setup.model.named_modules())
    for module_name in packed.packed:
        module = packed.shell.get_submodule(module_name)
        assert isinstance(module, PackedLinear)  # noqa: S101 - it is listed as packed
        codes, weight = module.weight_codes, dense[module_name].weight
        assert isinstance(weight, Tensor)  # noqa: S101
        title = f"{name}, {module_name}"
        samples = [_sample(codes, weight, title, dice) for dice in checked.dice_for(title, GROUPS)]
        rows = {int(sample.where[0]) // weight.shape[1] for sample in samples}
        runs = {row: codes.dense(row, row + 1)[0] for row in rows}
        for sample in samples:
            row = int(sample.where[0]) // weight.shape[1]
            checked.settle_one(sample, runs[row][sample.where - row * weight.shape[1]])
        yield None


def _sample(codes: PackedWeight, weight: Tensor, title: str, dice: random.Random) -> Sample:
    rows, columns = codes.shape
    row = dice.randrange(rows)
    size = codes.group_size if isinstance(codes, Int4Weight) else columns
    number = dice.randrange(columns // size)
    if isinstance(codes, Int4Weight):
        scale, zero = float(codes.scales[row, number]), float(codes.zeros[row, number])
    else:
        scale, zero = float(cast("Int8Weight", codes).scales[row]), 0.0
    inside = torch.arange(number * size, (number + 1) * size)
    before = weight[row, inside].double().tolist()
    group = Group(before, (), scale, zero, (), min(before), max(before))
    return Sample(f"{title}, row {row}, group {number}", row * columns + inside, group, _too_far)


def _too_far(group: Group) -> str:
    """A weight further than s / 2 from what runs; scales and zero points are rounded to bf16."""
    room = group.scale / 2 * (1 + 1e-3) + (8 * group.scale + abs(group.offset or 0.0)) * 2.0**-8 * bool(group.offset)
    for before, after in zip(group.before, group.after, strict=True):
        if abs(before - after) > room + 1e-6 * abs(before):
            return f"{before:.6g} became {after:.6g}, further than s/2 = {group.scale / 2:.6g}"
    return ""


def against_dequantized(setup: Setup, name: str, packed: Packed, prompt: list[int]) -> Made[Finding]:
    """Products of each packed matrix, and the packed model's logits after the prompt, beside dequantized weights.

    The weights are quantized once more from the dense ones, not taken from what runs.
    """
    claim = f"{name}: products of each packed matrix within 2^-7, logits of dequantized weights within {TOLERANCE:.0%}"
    shell = make_shell(setup.model)
    worst, worst_output, wrong = 0.0, 0.0, ""
    for module_name in packed.packed:
        own = packed.shell.get_submodule(module_name)
        assert isinstance(own, PackedLinear)  # noqa: S101 - it is listed as packed
        dense = shell.get_submodule(module_name)
        weight = dense.weight
        assert isinstance(weight, Tensor)  # noqa: S101
        values = yield from _requantized(own.weight_codes, weight)
        dense.weight = nn.Parameter(values.to(weight.dtype), requires_grad=False)
        yield None
        for rows in (1, own.weight_codes.few + 1):
            share, output, off = yield from product_error(own, values, rows, setup.params.seed, setup.loaded.dtype)
            worst, worst_output = max(worst, share), max(worst_output, off)
            many = f"{name}, {module_name}: a product of {rows} row{'s' * (rows > 1)}"
            if not share <= PRODUCT_TOLERANCE and not wrong:
                wrong = f"{many} is off by {share:.2g} of it."
            if not off <= OUTPUT_TOLERANCE and not wrong:
                wrong = f"{many} is off at output {output} by {off:.2g} of what that row of weights gives."
            yield None
    said_by = []
    for model in (shell, packed.shell):
        reading = Reading(Voice(name, name, "packed", model), len(prompt) + 1)
        yield None
        with closing(reading.prefill(prompt[:-1] or prompt)) as prefill:
            said = yield from prefill
        yield None
        said_by.append(reading.add(prompt[-1]).log_p if len(prompt) > 1 else said.log_p)
        yield None
    difference = float((said_by[0] - said_by[1]).abs().max())
    spread = float(said_by[0].max() - said_by[0].min())
    share = difference / spread if spread else 0.0
    detail = {f"{name}_largest_difference": difference, f"{name}_spread": spread, f"{name}_tolerance": TOLERANCE}
    detail |= {f"{name}_worst_product": worst, f"{name}_worst_output": worst_output}
    if wrong:
        return Finding(claim, "different", wrong, detail)
    if share <= TOLERANCE:
        return Finding(claim, "equal", detail=detail)
    words = (
        f"{name}: after the prompt a log-probability differs by {difference:.3g}, {share:.0%} of their spread; "
        f"rounding to bf16 explains {TOLERANCE:.0%}."
    )
    return Finding(claim, "different", words, detail)


def product_error(
    module: PackedLinear, values: Tensor, rows: int, seed: int, dtype: torch.dtype
) -> Made[tuple[float, int, float]]:
    """The difference of a module's product from plain arithmetic, relative to its norm; the output furthest off,
    and how far, relative to its own norm and to what its weights give on average. Pauses between the two products.

    Args:
        values: (out, in) fp32, the weights that should run.
        rows: of random inputs, normally distributed.
    """
    dice = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, values.shape[1], generator=dice).to(dtype)
    found = (yield from module.sliced(x)).float()
    yield None
    with torch.inference_mode():
        exact = x.bfloat16().float() @ values.t()
        if module.bias_values is not None:
            found = found - module.bias_values.float()
        off = (found - exact).norm(dim=0)
        usual = exact.norm(dim=0).hypot(values.norm(dim=1).mul_(math.sqrt(rows)))
        shares = torch.where(off > 0, off / usual, off)  # a row of zeros gives 0
        output = int(shares.argmax())
        size, difference = float(exact.norm()), float(off.norm())
    return difference / size if size else difference, output, float(shares[output])


def _requantized(like: PackedWeight, weight: Tensor) -> Made[Tensor]:
    """(out, in) fp32: what a packed matrix's weights should be, from the dense ones, in blocks of rows."""
    group = like.group_size if isinstance(like, Int4Weight) else None
    again = yield from packing_int8(weight) if group is None else packing_int4(weight, group)
    values = torch.empty(weight.shape)
    step = max(1, SLICE_WEIGHTS // weight.shape[1])
    for start in range(0, len(values), step):
        if start:
            yield None
        values[start : start + step] = again.dense(start, min(start + step, len(values)))
    return values
