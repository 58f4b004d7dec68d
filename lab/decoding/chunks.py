"""How many prompt tokens go through the model in one pass, so that no slice of a run is long.

A pass that can pause between layers takes `CHUNK_OF_LAYERS` tokens: larger products are faster, and its slices are
a few layers long. One that runs the model's own `forward` whole takes fewer.
"""

from __future__ import annotations

import torch
from torch import nn

CHUNK = 128
"""Prompt tokens in one pass that cannot pause, at most."""

CHUNK_OF_LAYERS = 512
"""Prompt tokens in one pass that pauses between layers."""

PAUSE_MS = 100.0
"""A pass pauses at the next layer after this time; where it pauses changes no sum."""

FLOPS_A_SLICE = 6.75e9
"""Work of one slice on one CPU thread: about 120 ms on an AVX2 core in fp32, which leaves room below 200 ms."""


def prefill_chunk(model: nn.Module) -> int:
    """Prompt tokens in one pass: at most `CHUNK`, a multiple of 8, fewer where the CPU has few threads.

    It depends on the model's size, the device and the number of threads alone, not on a clock, so that the
    same run card gives the same sums.
    """
    if next(model.parameters()).device.type != "cpu":
        return CHUNK
    flops_a_token = 2 * sum(p.numel() for p in model.parameters())
    most = torch.get_num_threads() * FLOPS_A_SLICE / flops_a_token
    return max(8, min(CHUNK, int(most) // 8 * 8))
