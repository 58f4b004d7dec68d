"""Loading a quantized directory: packed where a kernel computes exactly what the codes say, else dequantized."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from lab.errors import ModelError
from lab.models.architecture import read_config
from lab.models.loading import LoadedModel, _end_tokens, _load_tokenizer, attention_of, choose_device, reason_of
from lab.models.memory import require_memory
from lab.models.quiet import quiet_transformers
from lab.models.weights import read_header
from lab.quantization.affine import AffineWeight
from lab.quantization.card import WEIGHTS, Card, facts_of_quantized, read_card
from lab.quantization.directory import sha256_of
from lab.quantization.packed.int4 import GROUP_SIZES, MIDDLE, ROWS, Int4Weight
from lab.quantization.packed.int8 import WIDTH, Int8Weight
from lab.quantization.packed.modules import PackedLinear, PackedWeight
from lab.quantization.packed.token import making_kernels
from lab.quantization.packed_file import from_file
from lab.quantization.quantized import Quantized

_REMEDY = "Quantize the model again, or copy the directory again."


@dataclass(frozen=True)
class LoadedQuantized:
    """A quantized model, ready to run.

    Attributes:
        loaded: as any loaded model; its modules are packed or hold dequantized weights.
        card: what it says of itself.
        packed: modules that run in a packed kernel, with its name ("int8" or "int4").
        simulated: modules whose dequantized weights run dense, with the reason: they save no memory and no time here.
    """

    loaded: LoadedModel
    card: Card
    packed: dict[str, str]
    simulated: dict[str, str]

    @property
    def label(self) -> str:
        """ "PACKED", "SIMULATED" or both counted, for a badge."""
        if not self.simulated:
            return "PACKED"
        return "SIMULATED" if not self.packed else f"{len(self.packed)} PACKED, {len(self.simulated)} SIMULATED"


def load_quantized(
    directory: Path, *, dtype: str = "auto", device: str = "auto", packed: bool = True
) -> LoadedQuantized:
    """Load what `lab quantize` wrote.

    Args:
        packed: False: dequantize everything.

    Raises:
        ModelError: no card, or files that are damaged or do not belong together.
        NotEnoughMemory: it will not fit; both numbers are in the message.
    """
    card = read_card(directory)
    where, kind = choose_device(device, dtype)
    require_memory(directory.name, card.model.parameters, str(kind).removeprefix("torch."), str(where))
    made, dense = _read(directory, card)
    for name, quantized in made.items():
        weight = quantized.dequantize()
        dense[f"{name}.weight"] = weight.t().contiguous() if card.modules[name]["transposed"] else weight
    model = _model(directory, card, dense, kind)
    model.to(where)
    reasons: dict[str, str] = {}
    kinds: dict[str, str] = {}
    for name, quantized in made.items():
        module = model.get_submodule(name)
        found = _packed(quantized, module) if packed and where.type == "cpu" else _whyless(packed)
        if isinstance(found, str):
            reasons[name] = found
        else:
            bias = module.bias if isinstance(module.bias, Tensor) else None
            model.set_submodule(name, PackedLinear(found, bias))
            kinds[name] = f"int{found.bits}"
    for _ in making_kernels(model):
        pass
    model.train(False)
    model.requires_grad_(False)
    facts = facts_of_quantized(directory)
    loaded = LoadedModel(facts, model, _load_tokenizer(directory, facts), where, kind, _end_tokens(model, facts.name))
    return LoadedQuantized(loaded, card, kinds, reasons)


def _read(directory: Path, card: Card) -> tuple[dict[str, Quantized], dict[str, Tensor]]:
    file = directory / WEIGHTS
    if not file.is_file():
        raise ModelError(f"{directory.name} has a card but no {WEIGHTS}.", remedy=_REMEDY)
    read_header(file)
    if sha256_of(file) != card.file_sha256:
        raise ModelError(f"The weights of {directory.name} are not those of its card.", remedy=_REMEDY)
    try:
        with safe_open(str(file), framework="pt") as opened:
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - no mapping
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{WEIGHTS} cannot be read: {reason_of(error, directory)}", remedy=_REMEDY) from None
    made = {}
    for name, described in card.modules.items():
        own = [key for key in tensors if key.rpartition(".")[0] == name and not key.endswith((".bias", ".weight"))]
        made[name] = from_file(described, {key.rpartition(".")[2]: tensors.pop(key) for key in own})
    return made, tensors


def _model(directory: Path, card: Card, dense: dict[str, Tensor], kind: torch.dtype) -> Any:
    import transformers

    config = read_config(directory)
    cls: Any = getattr(transformers, card.model.architecture, None)
    if cls is None:
        raise ModelError(f"transformers has no {card.model.architecture[:100]}.", remedy="Update transformers.")
    try:
        with quiet_transformers():
            model, info = cls.from_pretrained(
                None,
                config=config,
                state_dict=dense,
                dtype=kind,
                attn_implementation=attention_of(card.model),
                output_loading_info=True,
            )
    except Exception as error:
        raise ModelError(
            f"The weights of {directory.name} cannot be loaded: {reason_of(error, directory)}", remedy=_REMEDY
        ) from error
    missing = sorted(info.get("missing_keys", ()))
    if missing:
        raise ModelError(f"The weights of {directory.name} lack {missing[0]!r}.", remedy=_REMEDY)
    return model


def _whyless(packed: bool) -> str:
    return "packed kernels run on the CPU only" if packed else "packing was switched off"


def _packed(quantized: Quantized, module: nn.Module) -> PackedWeight | str:
    """The matrix for a packed kernel where that gives the very same weights, else the reason why not."""
    if type(module) is not nn.Linear:
        return f"{type(module).__name__} is no plain nn.Linear"
    if not isinstance(quantized, AffineWeight):
        return "there is no kernel for its levels"
    if quantized.order is not None or quantized.channel_scales is not None:
        return "its columns are reordered or scaled"
    grid, scale = quantized.grid, quantized.affine.scale
    rows, columns = quantized.shape
    if not torch.equal(scale.bfloat16().float(), scale):
        return "the kernels take scales of bf16 and would round these"
    if grid.bits > 4:
        if grid.bits != 8 or grid.kind != "absmax" or grid.share != "row":
            return "the int8 kernel takes symmetric codes with one scale a row"
        if columns % WIDTH:
            return f"its rows of {columns} weights are no multiple of {WIDTH}"
        return Int8Weight(quantized.codes.to(torch.int8), scale[:, 0].bfloat16())
    if grid.share not in GROUP_SIZES or columns % int(grid.share) or rows % ROWS:
        return f"the int4 kernel takes whole groups of {', '.join(map(str, GROUP_SIZES))}"
    shift = 0 if quantized.affine.offset is None else MIDDLE
    if quantized.affine.offset is None:
        zeros = torch.zeros_like(scale)
    elif grid.kind == "asymmetric":
        zeros = (MIDDLE - quantized.affine.offset) * scale
    else:
        zeros = quantized.affine.offset + MIDDLE * scale
    if not torch.equal(zeros.bfloat16().float(), zeros):
        return "the int4 kernel takes zero points of bf16 and would round these"
    codes = quantized.codes.to(torch.int32) + MIDDLE - shift
    return Int4Weight.from_codes(codes, scale, zeros, int(grid.share))
