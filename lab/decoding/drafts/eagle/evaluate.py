"""Held-out figures of a head: how much of its drafts the target would accept, depth by depth.

`python -m lab.decoding.drafts.eagle.evaluate --data DIR [--head FILE]`: the target's own text on held-out prompts,
teacher-forced: the head drafts up to four tokens from every position, along the tokens that the text has.
alpha = sum_x min(p(x), q(x)) = 1 - total variation at temperature 1, with p over the whole vocabulary (Leviathan et al.
2023); agreement: how often both hold the same token most probable.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lab.decoding.drafts.eagle.data import Sample, batches, read_data
from lab.decoding.drafts.eagle.head import EagleHead
from lab.decoding.drafts.eagle.unroll import unroll

DEPTHS = 4


@torch.no_grad()
def figures(head: EagleHead, full_output: Tensor, samples: Sequence[Sample], depths: int = DEPTHS) -> dict[str, Any]:
    """Alpha, agreement and coverage per depth.

    Args:
        full_output: (vocab, hidden) all rows of the target's output matrix.

    Returns:
        "alpha" and "agreement": lists by depth, over texts drawn at temperature 1 and greedy ones alike;
        "alpha_sampled" over those drawn at 1, "agreement_greedy" over the greedy ones; "coverage": the target's
        probability on the head's rows in texts drawn at 1; "positions" judged.
    """
    alpha, agreement, weight = torch.zeros(3, 2, depths, dtype=torch.float64)
    covered = torch.zeros(2, dtype=torch.float64)
    for part, greedy in enumerate((False, True)):
        chosen = [s for s in samples if (s.temperature == 0) == greedy]
        for batch in batches(chosen, 1500, None):
            found = unroll(head, batch.ids, batch.features, depths)
            at = torch.arange(batch.ids.shape[1])
            wanted = batch.wanted[batch.judged]
            p = torch.exp(wanted @ head.output.t() - batch.lse[batch.judged][:, None])
            best = (wanted @ full_output.t()).argmax(-1)
            covered[part] += p.sum().double()
            for depth, estimate in enumerate(found):
                fair = (at >= depth).expand_as(batch.judged)[batch.judged]
                q = torch.softmax(head.logits(estimate[batch.judged]), dim=-1)
                alpha[part, depth] += torch.minimum(p, q).sum(-1)[fair].sum().double()
                agreement[part, depth] += (head.rows[q.argmax(-1)] == best)[fair].sum().double()
                weight[part, depth] += fair.sum().double()
    weight.clamp_(min=1)  # none of a kind: its figures are 0
    whole = weight.sum(0)
    return {
        "alpha": _rounded(alpha.sum(0) / whole),
        "agreement": _rounded(agreement.sum(0) / whole),
        "alpha_sampled": _rounded(alpha[0] / weight[0]),
        "agreement_greedy": _rounded(agreement[1] / weight[1]),
        "coverage": _rounded(covered / weight[:, 0])[0],
        "positions": int(whole[0]),
    }


def _rounded(values: Tensor) -> list[float]:
    return [round(float(value), 4) for value in values]


def main() -> None:
    """Print the figures of a head file."""
    from lab.decoding.drafts.eagle.generate_data import say
    from lab.decoding.drafts.eagle.store import PACKAGED, load_head, read_card
    from lab.models.registry import load_model

    parser = argparse.ArgumentParser(description="Held-out figures of a draft head")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--head", type=Path, default=PACKAGED)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    loaded = load_model(read_card(given.head).target, dtype="float32", device="cpu")
    model: Any = loaded.model
    data = read_data(given.data, held_out=True)
    for name, value in figures(load_head(loaded, given.head), model.lm_head.weight, data.samples).items():
        say(f"{name}: {value}")


if __name__ == "__main__":
    main()
