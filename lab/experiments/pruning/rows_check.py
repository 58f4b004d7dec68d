"""What a model with rows removed is held against: the dense model's own parts, and the masked model's logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lab.calibration.gather import calibrating
from lab.calibration.inputs import LayerInputs
from lab.experiments.compared.progress import Made, shares
from lab.experiments.compared.targets import Target
from lab.experiments.pruning.pruned import Whole
from lab.experiments.pruning.reference import NEAR, wrong_choice
from lab.experiments.pruning.setup import Setup
from lab.experiments.pruning.whole_check import AGAIN
from lab.models.linear import linear_module, out_in
from lab.pruning.rows import LayerRows, head_rows
from lab.steps import relay

FEW = 3
"""Layers, about, whose choice of channels is computed once more."""
PROMPT = 32
"""Tokens that the smaller and the masked model both read."""
NEAR_LOGITS = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Of the largest logit: what sums in another order may change."""


def checking_rows(setup: Setup, whole: Whole, windows: list[list[int]]) -> Made[None]:
    """Note whether the right channels went, the smaller matrices are the dense ones' parts, and the logits agree.

    The masked model is the dense one with the columns that read what went set to 0: it must say what the smaller says.
    """
    rows, smaller = whole.rows, whole.smaller
    if rows is None or smaller is None:
        return
    parts = [layer.parts for layer in rows.layers]
    read = [part.down for part in parts[:: max(1, len(parts) // FEW)]] if rows.score == "wanda" else []
    inputs: Mapping[str, LayerInputs] = {}
    if read:
        inputs = yield from relay(calibrating(setup.model, windows, read, hessian=False, keep=0), shares(AGAIN))
    named = {target.name: target for target in setup.targets}
    for layer in rows.layers:
        for name, left in _left(layer).items():
            setup.checked.note(named[name].title, wrong_part(named[name].weight, smaller.model, name, *left))
        down = named[layer.parts.down]
        if down.name in inputs:
            setup.checked.note(f"{down.title}, columns", wrong_channels(down, layer, inputs[down.name].mean_square))
        yield None
    setup.checked.matrices += len(setup.targets)
    setup.checked.methods.add("rows")
    ids = torch.tensor([windows[0][:PROMPT] if windows else [0]], device=setup.loaded.device)
    says = _logits(smaller.model, ids)
    yield None
    masked = _logits(whole.shell, ids)
    yield None
    setup.checked.note("the smaller model", wrong_logits(says, masked, setup.loaded.dtype))


def wrong_part(dense: Tensor, smaller: nn.Module, name: str, rows: Tensor | None, columns: Tensor | None) -> str:
    """Whether a matrix of the smaller model is the dense one, (out, in), without what went; "" if so, bit for bit.

    Args:
        rows, columns: (kept,) int64, what is left; None for all.
    """
    part = dense if rows is None else dense[rows.to(dense.device)]
    part = part if columns is None else part[:, columns.to(dense.device)]
    small = out_in(linear_module(smaller, name))
    if part.shape == small.shape and torch.equal(part, small):
        return ""
    return "the smaller model's matrix is not the dense one without what went"


def wrong_channels(down: Target, layer: LayerRows, mean_square: Tensor) -> str:
    """Whether channels with lower scores stayed: the 2-norm over a column of |W_ij| ||X_j||; "" if none did."""
    scores = down.weight.double().square().sum(dim=0).cpu() * mean_square.double().cpu()
    left = set(layer.channels.tolist())
    return wrong_choice(scores.sqrt().tolist(), [c in left for c in range(len(scores))], len(scores), NEAR)


def wrong_logits(says: Tensor, masked: Tensor, dtype: torch.dtype) -> str:
    """Whether two models' logits, (position, vocab), are the same but for rounding; "" if so."""
    off, size = float((says - masked).abs().max()), float(masked.abs().max())
    if off <= NEAR_LOGITS.get(dtype, 1e-3) * size:
        return ""
    return f"its logits are up to {off:.4g} from those of the dense model with zeros in the same places"


def _left(layer: LayerRows) -> dict[str, tuple[Tensor | None, Tensor | None]]:
    """By module name the rows and columns of the dense matrix that are left; None for all."""
    parts, channels = layer.parts, layer.channels
    found: dict[str, tuple[Tensor | None, Tensor | None]] = dict.fromkeys(parts.up, (channels, None))
    found[parts.down] = None, channels
    if parts.o:
        query, key = (head_rows(heads, parts.head_dim) for heads in (layer.heads, layer.kv_heads))
        found |= {parts.q: (query, None), parts.k: (key, None), parts.v: (key, None), parts.o: (None, query)}
    return found


def _logits(model: nn.Module, ids: Tensor) -> Tensor:
    """(position, vocab) fp32, of (1, position) token ids."""
    with torch.inference_mode():
        found: Any = model(input_ids=ids, use_cache=False)
        logits: Tensor = found.logits[0].float()
    return logits
