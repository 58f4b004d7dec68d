"""The accept/reject rule where the target is greedy: p is one-hot, so a token stands if it is the target's own.

The same verdict as `kernel.judge` gives for one-hot distributions, without making them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

import torch
from torch import Tensor

from lab.decoding.distribution import Distribution
from lab.decoding.drafts.base import Proposal
from lab.decoding.speculative.kernel import RoundVerdict, RowVerdict
from lab.errors import ModelError


def greedy_choices(distribution: Distribution, logits: Tensor, befores: Sequence[Sequence[int]]) -> list[int]:
    """The target's token after each row.

    Args:
        logits: (row, vocab) fp32.
        befores: the ids before each row's choice; needed where the rules look back.

    Raises:
        ModelError: the logits hold NaN.
    """
    if distribution.looks_back:
        pairs = zip(logits, befores, strict=True)
        logits = torch.stack([distribution.processed(row, before) for row, before in pairs])
    best = logits.max(dim=-1)
    # One transfer; float64 holds token ids exactly.
    values, ids = torch.stack((best.values.double(), best.indices.double())).tolist()
    if any(value != value for value in values):
        raise ModelError("The target's logits hold NaN.", remedy="Run the model in fp32.")
    return [int(i) for i in ids]


def judge_greedy(proposal: Proposal, choices: Sequence[int], like: Tensor) -> RoundVerdict:
    """The verdict.

    Args:
        choices: of `greedy_choices`: first the one after the text, then the one after each proposed token.
        like: (row, vocab), for the device of the verdict's last distribution, which is empty: it is one-hot.
    """
    tree, tokens = proposal.tree, proposal.token_ids
    rows = [
        RowVerdict("unjudged", float(choices[parent + 1] == token), 1.0)
        for token, parent in zip(tokens, tree.parents, strict=True)
    ]
    node = -1
    path: list[int] = []
    while children := tree.children(node):
        wanted = choices[node + 1]
        alpha = float(any(tokens[row] == wanted for row in children))
        taken = None
        for row in children:
            hit = tokens[row] == wanted
            rows[row] = RowVerdict(
                "accepted" if hit else "rejected", float(hit), 1.0, float(hit), nan, alpha, 1.0 - alpha
            )
            if hit:
                taken = row
                break
        if taken is None:
            return RoundVerdict(tuple(rows), tuple(path), wanted, "resampled", like.new_empty(0), nan)
        path.append(taken)
        node = taken
    return RoundVerdict(tuple(rows), tuple(path), choices[node + 1], "bonus", like.new_empty(0), nan)
