"""Train a head: `python -m lab.decoding.drafts.eagle.train --data DIR --out FILE`.

Forward KL to the target's distribution on the head's rows, first with one pass and a pull of the estimates towards the
features, then with the head reading its own estimates (`unroll`). The target is only read: its features, its embedding
and its output rows. The file is written every few hundred steps, so the training can be stopped at any time.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lab.decoding.drafts.eagle.data import Batch, Data, batches, read_data
from lab.decoding.drafts.eagle.evaluate import figures
from lab.decoding.drafts.eagle.generate_data import say
from lab.decoding.drafts.eagle.head import EagleHead, new_head
from lab.decoding.drafts.eagle.store import HeadCard, load_head, read_card, save_head
from lab.decoding.drafts.eagle.unroll import unroll

ROWS = 2048
"""Output rows of a head, unless said otherwise."""


@dataclass(frozen=True)
class Stage:
    """One stretch of training.

    Attributes:
        depths: passes of `unroll`.
        rate: the highest learning rate; it warms up and falls along a cosine.
        pull: weight of the smooth L1 distance between estimates and features.
        overlap: weight of 1 - alpha, which is what acceptance depends on, beside the KL.
        noise: standard deviation of normal noise on the features read, in parts of their root mean square: the
            same text is not seen twice, which holds off learning it by heart.
    """

    steps: int
    depths: int
    rate: float
    pull: float
    overlap: float = 0.0
    noise: float = 0.0


@dataclass(frozen=True)
class Recipe:
    """All that decides the outcome, besides the data."""

    stages: tuple[Stage, ...]
    rows: int = ROWS
    tokens: int = 640
    warm_up: int = 30
    clip: float = 1.0
    seed: int = 20
    decay: float = 0.7
    """Weight of each depth relative to the one before."""
    shrink: float = 0.0
    """Weight decay."""


def loss(head: EagleHead, batch: Batch, stage: Stage, decay: float, generator: torch.Generator | None = None) -> Tensor:
    """The mean over judged positions, summed over depths with falling weights."""
    judged = batch.judged
    wanted = batch.wanted[judged]
    with torch.no_grad():
        p = torch.exp(wanted @ head.output.t() - batch.lse[judged][:, None])
    features = batch.features
    if stage.noise:
        size = features.square().mean(-1, keepdim=True).sqrt()
        features = features + stage.noise * size * torch.randn(features.shape, generator=generator)
    at = torch.arange(batch.ids.shape[1])
    total = torch.zeros(())
    for depth, estimate in enumerate(unroll(head, batch.ids, features, stage.depths)):
        fair = (at >= depth).expand_as(judged)[judged]
        chosen = estimate[judged]
        log_q = torch.log_softmax(head.logits(chosen), dim=-1)
        # p does not sum to 1 on the rows: a position that the rows hardly cover counts little, as in alpha.
        part = -(p * log_q).sum(-1)
        if stage.overlap:
            part = part + stage.overlap * (1 - torch.minimum(p, log_q.exp()).sum(-1))
        if stage.pull:
            part = part + stage.pull * functional.smooth_l1_loss(chosen, wanted, reduction="none").mean(-1)
        total = total + decay**depth * part[fair].mean()
    return total


def fit(
    head: EagleHead, data: Data, recipe: Recipe, checkpoint: Callable[[int], None], every: int = 250
) -> list[float]:
    """Train `head` in place; gives the loss of each step. `checkpoint` is called every `every` steps and at the end."""
    generator = torch.Generator().manual_seed(recipe.seed)
    source = _endless(data, recipe.tokens, generator)
    losses: list[float] = []
    for number, stage in enumerate(recipe.stages, start=1):
        optimizer = torch.optim.AdamW(head.parameters(), lr=stage.rate, betas=(0.9, 0.95), weight_decay=recipe.shrink)
        began = time.monotonic()
        for step in range(stage.steps):
            for group in optimizer.param_groups:
                group["lr"] = stage.rate * _schedule(step, stage.steps, recipe.warm_up)
            value = loss(head, next(source), stage, recipe.decay, generator)
            optimizer.zero_grad(set_to_none=True)
            value.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(head.parameters(), recipe.clip)
            optimizer.step()
            losses.append(float(value.detach()))
            if (step + 1) % 50 == 0:
                mean = sum(losses[-50:]) / 50
                each = (time.monotonic() - began) / (step + 1)
                say(f"stage {number}, step {step + 1} of {stage.steps}: loss {mean:.4f}, {each:.2f} s a step")
            if len(losses) % every == 0:
                checkpoint(len(losses))
    checkpoint(len(losses))
    return losses


def _schedule(step: int, steps: int, warm_up: int) -> float:
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(steps - warm_up, 1)))


def _endless(data: Data, tokens: int, generator: torch.Generator) -> Iterator[Batch]:
    while True:
        for batch in batches(data.samples, tokens, generator):
            if batch.judged[:, 3:].any():
                yield batch


def main() -> None:
    """Train from the command line."""
    from safetensors import __version__ as safetensors_version
    from transformers import __version__ as transformers_version

    from lab.models.registry import load_model

    parser = argparse.ArgumentParser(description="Train a draft head on generated data")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument(
        "--files", type=int, help="use the first so many data files only (a first head while more are made)"
    )
    parser.add_argument("--init", type=Path, help="go on from this head")
    parser.add_argument(
        "--rows", type=int, help="output rows that the head can say; default: those of --init, else 2048"
    )
    parser.add_argument("--tokens", type=int, default=640, help="positions a step")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--shrink", type=float, default=0.0, help="weight decay")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument(
        "--stage",
        nargs=6,
        action="append",
        metavar=("STEPS", "DEPTHS", "RATE", "PULL", "OVERLAP", "NOISE"),
        help="may be repeated; default: 650 1 1.5e-3 .05 0 0, then 380 3 8e-4 0 1 .1",
    )
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    stages = given.stage or [
        ("650", "1", "1.5e-3", ".05", "0", "0"),
        ("380", "3", "8e-4", "0", "1", ".1"),
    ]
    recipe = Recipe(
        stages=tuple(Stage(int(s), int(d), float(r), float(p), float(o), float(n)) for s, d, r, p, o, n in stages),
        rows=given.rows or ROWS,
        tokens=given.tokens,
        seed=given.seed,
        shrink=given.shrink,
    )
    loaded = load_model(given.model, dtype="float32", device="cpu")
    model: Any = loaded.model
    data, held_out = read_data(given.data, held_out=False, files=given.files), read_data(given.data, held_out=True)
    if data.weight_hash != loaded.facts.weight_hash:
        sys.exit("The data was made by another target: generate it again.")
    say(f"{len(data.samples)} texts, {data.tokens} generated tokens")
    said_most = data.mass.topk(recipe.rows).indices.sort().values
    head = new_head(model, said_most, recipe.seed)
    if given.init:
        before = load_head(loaded, given.init)
        if given.rows is None:
            head, recipe = new_head(model, before.rows, recipe.seed), replace(recipe, rows=len(before.rows))
        head.load_state_dict(before.state_dict())
    versions = {"torch": torch.__version__, "transformers": transformers_version, "safetensors": safetensors_version}

    def checkpoint(step: int) -> None:
        # A part of the texts is enough on the way: the figures cost as much as a hundred steps.
        done = step == sum(stage.steps for stage in recipe.stages)
        found = figures(head, model.lm_head.weight, held_out.samples[:: 1 if done else 5])
        said = {**asdict(recipe), "steps_done": step, "texts": len(data.samples), "generated_tokens": data.tokens}
        if given.init:
            said["continued_from"] = read_card(given.init).recipe
        save_head(head, HeadCard(loaded.facts.id, loaded.facts.weight_hash, said, versions, found), given.out)
        say(f"step {step}: alpha {found['alpha_sampled']}, greedy agreement {found['agreement_greedy']}")

    fit(head, data, recipe, checkpoint)


if __name__ == "__main__":
    main()
