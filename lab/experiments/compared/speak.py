"""Greedy words of one model, token by token, and the same model shown another's text."""

from __future__ import annotations

import copy
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lab.decoding import cache_layout
from lab.decoding.choose_pass import choose_pass
from lab.decoding.passes import Pass, TransformersPass
from lab.quantization.kv_layer import quantized_cache, quantized_layers, settling
from lab.quantization.kv_scheme import KvScheme

TOP = 6


@dataclass
class Voice:
    """A model that speaks.

    Attributes:
        name, label, truth: see the event `Variant`.
        model: a shell or the dense model itself.
        cache: how its key/value cache is quantized; None: not.
    """

    name: str
    label: str
    truth: str
    model: nn.Module
    cache: KvScheme | None = None
    notes: tuple[str, ...] = ()

    def runner(self, capacity: int) -> Pass:
        """A fresh pass with an empty cache."""
        if self.cache is None:
            return choose_pass(self.model, capacity, layers=(), fast=None, mistake="nothing")
        runner = TransformersPass(self.model, 1)
        runner.cache = quantized_cache(self.model, self.cache)
        return runner


@dataclass(frozen=True)
class Said:
    """What a model makes of the text so far: log-probabilities of the next token, (vocab,) fp32 on the CPU."""

    log_p: Tensor
    gap: float

    @property
    def best(self) -> int:
        """The most probable token."""
        return int(self.log_p.argmax())

    def top(self) -> list[tuple[int, float]]:
        """The most probable tokens with their log-probabilities."""
        found = self.log_p.topk(min(TOP, self.log_p.numel()))
        return [(int(i), float(v)) for i, v in zip(found.indices.tolist(), found.values.tolist(), strict=True)]


class Reading:
    """A text going into a voice's cache.

    Args:
        capacity: positions to make room for.
    """

    def __init__(self, voice: Voice, capacity: int) -> None:
        self.voice = voice
        self.runner = voice.runner(capacity)
        self.length = 0

    def prefill(self, ids: Sequence[int]) -> Generator[None, None, Said]:
        """Read a prompt, dense; a quantized cache becomes codes afterwards."""
        quantized = self.voice.cache is not None
        if quantized:
            for layer in quantized_layers(self.runner.cache):
                layer.hold = True
        row: Tensor | None = None
        for start in range(0, len(ids), self.runner.chunk):
            stop = min(start + self.runner.chunk, len(ids))
            row = yield from self.runner.sliced(ids[start:stop], start, last=stop == len(ids), attention=False)
            yield
        if quantized:
            yield from settling(self.runner.cache)
        self.length = len(ids)
        return _said(row)

    def add(self, token: int) -> Said:
        """Read one more token."""
        with torch.inference_mode():
            row = self.runner((token,), self.length, last=True, attention=False)
        self.length += 1
        return _said(row)

    def fork(self) -> Reading | None:
        """A reading that goes on from here by itself; None where the text must be read again.

        Only a quantized cache must be copied: read again, positions that became codes one group at a time would all be
        read dense first.
        """
        if self.voice.cache is None:
            return None
        other = Reading(self.voice, 1)
        copied: Any = copy.copy(self.runner.cache)
        copied.layers = cache_layout.snapshot(self.runner.cache)
        other.runner.cache, other.length = copied, self.length
        return other


def _said(row: Tensor | None) -> Said:
    if row is None:
        raise AssertionError("the pass was asked for the last position")
    with torch.inference_mode():
        logits = row.float()
        best = logits.topk(min(2, logits.numel())).values
        return Said(logits.log_softmax(-1).cpu().clone(), float(best[0] - best[-1]))


def kl(dense: Said, other: Said) -> float:
    """KL(dense || other), nats."""
    p, q = dense.log_p.double(), other.log_p.double()
    return max(0.0, float((p.exp() * (p - q)).sum()))
