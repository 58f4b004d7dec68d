"""Logits at the last places of a text by one model, and how far two models are apart there."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lab.decoding.choose_pass import choose_pass

_PLACES_A_PASS = 16


def last_logits(model: nn.Module, ids: Sequence[int], places: int) -> Generator[None, None, Tensor]:
    """The logits after each of the last tokens of a text, pausing between chunks.

    Args:
        model: a causal model, a shell of one, adapters on or not; read, not changed.
        ids: the text.
        places: how many of its last tokens, 1 to all.

    Returns:
        (place, vocab) fp32 on the CPU.
    """
    runner = choose_pass(model, len(ids), layers=(), fast=None, mistake="nothing")
    first = len(ids) - places
    for start in range(0, first, runner.chunk):
        stop = min(start + runner.chunk, first)
        yield from runner.sliced(ids[start:stop], start, last=False, attention=False)
        yield
    found = []
    for start in range(first, len(ids), _PLACES_A_PASS):
        stop = min(start + _PLACES_A_PASS, len(ids))
        with torch.inference_mode():
            found.append(runner.rows(ids[start:stop], start).logits.float().cpu().clone())
        yield
    with torch.inference_mode(False):
        return torch.cat(found)


@dataclass(frozen=True)
class Apart:
    """Two models' logits.

    Attributes:
        difference: the largest of any logit. scale: the largest |logit| of the first.
        places: positions compared.
    """

    difference: float
    scale: float
    places: int

    @property
    def relative(self) -> float:
        """Of the scale."""
        return self.difference / self.scale if self.scale else self.difference


def apart(one: Tensor, other: Tensor) -> Apart:
    """Compare (place, vocab) logits; a NaN in either is infinitely far."""
    difference = float((one - other).abs().max())
    return Apart(difference if difference == difference else float("inf"), float(one.abs().max()), len(one))
