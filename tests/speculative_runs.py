"""Drafts for tests, and driving the speculative loop and experiment without a backend."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from experiment_runs import Ran, run_experiment

from lab.decoding.choose_pass import choose_pass
from lab.decoding.distribution import Distribution
from lab.decoding.drafts.base import Proposal, Sight
from lab.decoding.speculative.loop import Round, Speculated, speculate
from lab.decoding.tree import Tree
from lab.experiments.speculative.params import SpeculativeParams
from lab.experiments.speculative.run import SpeculativeRunner

if TYPE_CHECKING:
    from torch import nn

    from lab.models.loading import LoadedModel


@dataclass
class Chain:
    """A draft that asks another model (or the target itself) anew for each token, with nothing remembered."""

    model: nn.Module
    name: str = "chain"
    wants_features: bool = False
    settled: list[int] = field(default_factory=list)

    def propose(self, sight: Sight, count: int, distribution: Distribution) -> Proposal:
        ids, tokens, drawn_from = list(sight.ids), [], []
        for _ in range(count):
            runner = choose_pass(self.model, len(ids), layers=(), fast=None, mistake="nothing")
            logits = runner(ids, 0, last=True, attention=False)
            assert logits is not None
            q = distribution.of(logits.clone(), ids)
            tokens.append(int(torch.multinomial(q, 1, generator=sight.generator)))
            drawn_from.append(None if distribution.greedy else q)
            ids.append(tokens[-1])
        return Proposal.chain(tokens, drawn_from)

    def settle(self, sight: Sight, accepted: int) -> None:
        del sight
        self.settled.append(accepted)

    def cache_bytes(self) -> tuple[int, int]:
        return 0, 0


@dataclass
class Fixed:
    """A draft that proposes what a function of the text and the count says, one-hot; `tree` if it says one."""

    says: Any
    name: str = "fixed"
    wants_features: bool = False

    def propose(self, sight: Sight, count: int, distribution: Distribution) -> Proposal:
        del distribution
        said: Proposal | Sequence[int] = self.says(sight.ids, count)
        return said if isinstance(said, Proposal) else Proposal.chain(said)

    def settle(self, sight: Sight, accepted: int) -> None:
        del sight, accepted

    def cache_bytes(self) -> tuple[int, int]:
        return 0, 0


def oracle(text: Sequence[int]) -> Fixed:
    """Proposes how this text goes on: always right for whoever writes it."""
    return Fixed(lambda ids, count: list(text[len(ids) : len(ids) + count]))


def always_wrong(text: Sequence[int], vocab: int) -> Fixed:
    """Proposes other tokens than this text has."""
    return Fixed(lambda ids, count: [(t + 1) % vocab for t in text[len(ids) : len(ids) + count]])


def forked(text: Sequence[int], vocab: int) -> Fixed:
    """A tree: a wrong branch first, then the right one with a wrong leaf."""

    def says(ids: list[int], count: int) -> Proposal:
        if count < 4 or len(ids) + 2 > len(text):
            return Proposal.chain(())
        right, after = text[len(ids)], text[len(ids) + 1]
        tokens = ((right + 1) % vocab, right, (after + 1) % vocab, after)
        return Proposal(tokens, (None,) * 4, Tree((-1, -1, 1, 1)))

    return Fixed(says)


def drain(run: Generator[Any, None, Speculated]) -> tuple[list[Any], Speculated]:
    """All that a run yields but its pauses, and its end."""
    items = []
    while True:
        try:
            item = next(run)
        except StopIteration as stop:
            return items, stop.value
        if item is not None:
            items.append(item)


def speculated(model: nn.Module, ids: Sequence[int], draft: Any, **options: Any) -> tuple[list[Round], list[int]]:
    """The rounds and the new tokens."""
    items, end = drain(speculate(model, ids, draft, **options))
    return [item for item in items if isinstance(item, Round)], end.token_ids


def generated(model: Any, ids: Sequence[int], new: int, **options: Any) -> list[int]:
    """transformers' own `generate()`, greedy."""
    tokens = model.generate(
        torch.tensor([list(ids)]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        max_new_tokens=new,
        do_sample=False,
        pad_token_id=0,
        **{"eos_token_id": None, **options},
    )
    return [int(t) for t in tokens[0, len(ids) :]]


def run_to_end(model: LoadedModel, **params: Any) -> Ran:
    """Run the experiment with these parameters."""
    return run_experiment(SpeculativeRunner(), model, SpeculativeParams(**params))
