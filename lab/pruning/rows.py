"""Structured pruning: whole MLP channels and attention heads, so that a smaller dense model is left.

A channel is one row of what feeds the activation (gate and up) and the matching column of what reads it (down). A head
is its rows of the query projection and its columns of the output projection; where query heads share a key/value head,
as many go in each group, or whole groups with their key and value rows. Every layer loses as many: a config has one
number for all of them.

Scores of a unit: "magnitude": the 2-norm of all its weights; "wanda": the 2-norm of |W_ij| ||X_j|| over the columns
that read it, which is what the layer's output loses (Sun et al. 2023; by columns as in An et al. 2023, "FLAP").
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from lab.calibration.gather import calibrating
from lab.calibration.inputs import LayerInputs
from lab.errors import BadInput, shown
from lab.models.linear import linear_module, out_in, set_weight
from lab.models.shell import make_shell
from lab.pruning.row_parts import LayerParts, layer_parts
from lab.steps import finished, relay

Score = Literal["magnitude", "wanda"]
SCORES: tuple[Score, ...] = ("magnitude", "wanda")


@dataclass(frozen=True)
class LayerRows:
    """What stays of one layer.

    Attributes:
        parts: its modules.
        channels: (kept,) int64, ascending.
        heads: (kept,) int64: query heads, ascending.
        kv_heads: (kept,) int64: key/value heads, ascending.
        channel_scores: (channels,) fp32; None if none were to go.
        head_scores: (heads,) fp32, likewise.
    """

    parts: LayerParts
    channels: Tensor
    heads: Tensor
    kv_heads: Tensor
    channel_scores: Tensor | None = None
    head_scores: Tensor | None = None


@dataclass(frozen=True)
class Rows:
    """What stays of a model.

    Attributes:
        layers: in order; every layer keeps as many.
        score: by which they were chosen.
    """

    layers: tuple[LayerRows, ...]
    score: Score

    @property
    def removed(self) -> tuple[int, int, int]:
        """Channels, query heads and key/value heads that go, of each layer."""
        one = self.layers[0]
        parts = one.parts
        return parts.channels - len(one.channels), parts.heads - len(one.heads), parts.kv_heads - len(one.kv_heads)


def choosing_rows(
    model: nn.Module,
    *,
    channels: float = 0.0,
    heads: int = 0,
    kv_groups: int = 0,
    score: Score = "magnitude",
    windows: Sequence[Sequence[int]] | None = None,
) -> Generator[float, None, Rows]:
    """Choose what goes. Yields the share done, after each layer's part.

    Args:
        model: not changed.
        channels: share of each layer's MLP channels, 0 to below 1; at least one stays.
        heads: query heads that go in each group that stays.
        kv_groups: key/value heads that go, with all their query heads.
        windows: calibration text as token ids; "wanda" needs it.

    Raises:
        BadInput: nothing to remove, or all; a score that does not exist; no text where it is needed.
        ModelError: a model whose parts cannot be removed; the reason is in the message.
    """
    if score not in SCORES:
        raise BadInput(f"There is no score {shown(score)}.", remedy=f"Choose {' or '.join(SCORES)}.")
    parts = layer_parts(model, heads=bool(heads or kv_groups))
    gone = _counts(parts[0], channels, heads, kv_groups)
    inputs: Mapping[str, LayerInputs] = {}
    if score == "wanda":
        if windows is None:
            raise BadInput("Wanda's score needs calibration text.", remedy="Give calibration text.")
        names = [part.down for part in parts if gone] + [part.o for part in parts if (heads or kv_groups) and part.o]
        inputs = yield from relay(calibrating(model, windows, names, hessian=False, keep=0), lambda share: 0.8 * share)
    found = []
    for index, part in enumerate(parts):
        with torch.no_grad():
            found.append(_choose(model, part, gone, heads, kv_groups, score, inputs))
        yield 0.8 + 0.2 * (index + 1) / len(parts) if inputs else (index + 1) / len(parts)
    return Rows(tuple(found), score)


def choose_rows(
    model: nn.Module,
    *,
    channels: float = 0.0,
    heads: int = 0,
    kv_groups: int = 0,
    score: Score = "magnitude",
    windows: Sequence[Sequence[int]] | None = None,
) -> Rows:
    """`choosing_rows`, run to its end at once."""
    return finished(
        choosing_rows(model, channels=channels, heads=heads, kv_groups=kv_groups, score=score, windows=windows)
    )


def masking_rows(model: nn.Module, rows: Rows) -> Generator[float, None, nn.Module]:
    """A shell of the model's own size in which the columns that read what goes are 0: what the smaller one computes.

    Yields the share done, after each layer.
    """
    shell = make_shell(model)
    for done, layer in enumerate(rows.layers, 1):
        parts = layer.parts
        columns = {parts.down: layer.channels}
        if parts.o:
            columns[parts.o] = head_rows(layer.heads, parts.head_dim)
        for name, kept in columns.items():
            module = linear_module(shell, name)
            weight = out_in(module)
            if len(kept) < weight.shape[1]:
                values = torch.zeros_like(weight)
                values[:, kept] = weight[:, kept]
                set_weight(module, values)
        yield done / len(rows.layers)
    return shell


def masked_rows(model: nn.Module, rows: Rows) -> nn.Module:
    """`masking_rows`, run to its end at once."""
    return finished(masking_rows(model, rows))


def head_rows(heads: Tensor, head_dim: int) -> Tensor:
    """The rows of a projection that belong to some heads, (len(heads) * head_dim,) int64."""
    return (heads[:, None] * head_dim + torch.arange(head_dim)).flatten()


def _counts(part: LayerParts, channels: float, heads: int, kv_groups: int) -> int:
    if not 0 <= channels < 1:
        raise BadInput(
            f"A share of {shown(channels)} of the channels cannot go.", remedy="Give 0 to below 1: 0.25 is a quarter."
        )
    gone = round(channels * part.channels)
    if gone >= part.channels:
        raise BadInput(f"All {part.channels} channels would go.", remedy="Remove fewer.")
    group = part.heads // max(part.kv_heads, 1)
    for count, limit, what in (
        (heads, group, "query heads of each group"),
        (kv_groups, part.kv_heads, "key/value heads"),
    ):
        if count and not 0 < count < limit:
            raise BadInput(
                f"{shown(count)} of {limit} {what} cannot go.",
                remedy=f"Remove 0 to {limit - 1}." if limit > 1 else "Remove none: there is only one.",
            )
    if not gone and not heads and not kv_groups:
        raise BadInput("There is nothing to remove.", remedy="Choose some channels or heads.")
    return gone


def _choose(
    model: nn.Module,
    part: LayerParts,
    gone: int,
    heads: int,
    kv_groups: int,
    score: Score,
    inputs: Mapping[str, LayerInputs],
) -> LayerRows:
    channel_scores = head_scores = None
    channels, queries, keys = torch.arange(part.channels), torch.arange(part.heads), torch.arange(part.kv_heads)
    if gone:
        square = _columns(model, part.down, inputs)
        if score == "magnitude":
            square = square + sum(_rows(model, name) for name in part.up)
        channel_scores = square.sqrt().cpu()
        channels = _kept(channel_scores, gone)
    if heads or kv_groups:
        size, group = part.head_dim, part.heads // part.kv_heads
        own = _columns(model, part.o, inputs).view(part.heads, size).sum(dim=1)
        shared = torch.zeros(part.kv_heads, device=own.device)
        if score == "magnitude":
            own = own + _rows(model, part.q).view(part.heads, size).sum(dim=1)
            for name in (part.k, part.v):
                shared = shared + _rows(model, name).view(part.kv_heads, size).sum(dim=1)
        own, shared = own.cpu(), shared.cpu()
        head_scores = own.sqrt()
        if kv_groups:
            keys = _kept(own.view(part.kv_heads, group).sum(dim=1) + shared, kv_groups)
        if heads:
            queries = torch.cat([int(key) * group + _kept(own.view(-1, group)[int(key)], heads) for key in keys])
        else:
            queries = head_rows(keys, group)
    return LayerRows(part, channels, queries, keys, channel_scores, head_scores)


def _kept(scores: Tensor, gone: int) -> Tensor:
    """All but the `gone` lowest, ascending; of equal ones the earlier goes."""
    return torch.argsort(scores, stable=True)[gone:].sort().values


def _rows(model: nn.Module, name: str) -> Tensor:
    return out_in(linear_module(model, name)).float().square().sum(dim=1)


def _columns(model: nn.Module, name: str, inputs: Mapping[str, LayerInputs]) -> Tensor:
    square = out_in(linear_module(model, name)).float().square().sum(dim=0)
    return square * inputs[name].mean_square if name in inputs else square
