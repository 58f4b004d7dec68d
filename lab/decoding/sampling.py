"""Choosing the next token: greedy, or drawn after temperature, top-k and top-p.

The order and the borders are those of transformers' warpers (`generation/logits_process.py`), so the same
seed draws the same tokens as `generate()`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lab.errors import BadInput


@dataclass(frozen=True)
class Sampling:
    """How to choose a token.

    Attributes:
        do_sample: draw from the distribution; False takes the most probable token.
        temperature: logits are divided by it when drawing; above 0.
        top_k: draw from the k most probable tokens; 0 from all.
        top_p: draw from the fewest tokens whose probabilities sum to p; in (0, 1].
        seed: of the run's own generator.
    """

    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise BadInput(f"temperature is {self.temperature}.", remedy="Give a finite number above 0.")
        if self.top_k < 0:
            raise BadInput(f"top_k is {self.top_k}.", remedy="Give 0 for all tokens, or how many to keep.")
        if not 0 < self.top_p <= 1:
            raise BadInput(f"top_p is {self.top_p}.", remedy="Give a number above 0 and at most 1.")
        if not -(2**63) <= self.seed < 2**64:
            raise BadInput(f"seed is {self.seed}.", remedy="Give a seed from 0 to 2**32 - 1.")

    def generator(self, device: torch.device) -> torch.Generator:
        """A generator of the run's own, seeded. It draws what the global one draws with the same seed."""
        return torch.Generator(device=device).manual_seed(self.seed)

    def scaled(self, logits: Tensor) -> Tensor:
        """`logits` after temperature (unchanged when greedy). Same shape."""
        if self.do_sample and self.temperature != 1.0:
            return logits / self.temperature
        return logits


def filtered(scaled: Tensor, sampling: Sampling) -> Tensor:
    """Put -inf on the tokens that top-k, then top-p, leave out.

    Args:
        scaled: (vocab,) logits after temperature.

    Returns:
        (vocab,) logits; at least one is finite. Ties at top-k's border all stay.
    """
    if sampling.top_k:
        k = min(sampling.top_k, scaled.shape[-1])
        border = torch.topk(scaled, k).values[-1]
        scaled = scaled.masked_fill(scaled < border, -math.inf)
    if sampling.top_p < 1.0:
        ascending, order = torch.sort(scaled, descending=False)
        mass_below = ascending.softmax(dim=-1).cumsum(dim=-1)
        leave = mass_below <= 1 - sampling.top_p
        leave[-1] = False
        scaled = scaled.masked_fill(leave.scatter(0, order, leave), -math.inf)
    return scaled


def choose(logits: Tensor, sampling: Sampling, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Choose the next token.

    Args:
        logits: (vocab,) fp32, as the model gives them.
        generator: of `sampling.generator`, on the logits' device; not used when greedy.

    Returns:
        The token id, a tensor of one int64 that has not left the device, and the (vocab,) logits after
        temperature and before top-k and top-p.
    """
    scaled = sampling.scaled(logits)
    if not sampling.do_sample:
        return torch.argmax(scaled, dim=-1, keepdim=True), scaled
    probabilities = torch.softmax(filtered(scaled, sampling), dim=-1)
    # (1, vocab), as in generate(): the draw depends on the shape's row length only, but why tempt it.
    return torch.multinomial(probabilities[None], 1, generator=generator)[0], scaled


def draw(distribution: Tensor, u: float) -> int:
    """The token at u by inverse distribution function: the first whose cumulated probability exceeds u.

    Args:
        distribution: (vocab,) not negative; need not sum to 1 exactly, u is scaled by the sum.
        u: in [0, 1]. 1 gives the last token of positive probability.

    Returns:
        A token id, never one of probability 0.

    Raises:
        BadInput: u outside [0, 1], or a distribution without any positive finite sum.
    """
    if not 0.0 <= u <= 1.0:
        raise BadInput(f"u is {u}.", remedy="Give a number from 0 to 1.")
    # on the host in double precision: a sum of 49,152 fp32 terms drifts, and some devices have no fp64
    cumulated = distribution.detach().to(device="cpu", dtype=torch.float64).cumsum(0)
    total = float(cumulated[-1]) if cumulated.numel() else 0.0
    if not 0.0 < total < float("inf"):
        raise BadInput(f"The distribution sums to {total}.", remedy="Give probabilities that sum to 1, without NaN.")
    place = int(torch.searchsorted(cumulated, u * total, right=True))
    if place < cumulated.numel() and float(distribution[place]) > 0.0:
        return place
    positive = distribution[:place].nonzero()  # u at the very end: trailing zeros are passed over
    return int(positive[-1])


def drawn(distribution: Tensor, generator: torch.Generator) -> int:
    """A token of `distribution`, (vocab,), at a uniform number of `generator`.

    `torch.multinomial` divides the whole vocabulary by random numbers first: up to 6 ms a token where this takes 0.15.
    """
    return draw(distribution, float(torch.rand((), generator=generator, device=generator.device)))
