"""What every draft is: something that proposes tokens cheaply and says how probable it held them.

A draft lives for one run. It may keep a cache of its own; after each round it hears which tokens stand now and
puts its memory right. It is told the target's features where it wants them, and may share the target's cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from lab.decoding.distribution import Distribution
from lab.decoding.passes import Pass
from lab.decoding.tree import Tree


@dataclass(frozen=True)
class Proposal:
    """What a draft proposes in one round.

    Attributes:
        token_ids: the proposed tokens, at most as many as asked for; may be empty.
        q: for each token, the (vocab,) fp32 distribution it was drawn from, summing to 1; None where the draft
            draws nothing (look-up, retrieval): then q is 1 for that very token (one-hot).
        tree: how the tokens hang together; row i is token i. A chain unless the draft makes trees. Siblings of a
            tree are distinct, ordered by preference, and one-hot.
        source: a few words on where it came from, for the page ("3-gram at position 17"); "" for nothing to say.
    """

    token_ids: tuple[int, ...]
    q: tuple[Tensor | None, ...]
    tree: Tree
    source: str = ""

    @classmethod
    def chain(cls, token_ids: Sequence[int], q: Sequence[Tensor | None] | None = None, source: str = "") -> Proposal:
        """Tokens one after the other; one-hot if `q` is None."""
        ids = tuple(token_ids)
        return cls(ids, tuple(q) if q is not None else (None,) * len(ids), Tree.chain(len(ids)), source)


@dataclass
class Sight:
    """What a draft may look at: the target and its run so far.

    Attributes:
        ids: prompt and accepted tokens, the newest last; grows from round to round. The draft does not change it.
        target: the target's pass. Its cache holds all of `ids` but the last. A draft that shares it (early exit) takes
            back what it appends (`cache_layout.mark`, `keep`) before `propose` returns.
        features: (row, hidden): the target's features of the tokens verified last and accepted, ending with the
            position before the last of `ids`; None before the first pass. Given to drafts with
            `wants_features`; in the first round those of the whole prompt.
        generator: of the run; all draws of the draft come from it.
    """

    ids: list[int]
    target: Pass
    generator: torch.Generator
    features: Tensor | None = None


class Draft(Protocol):
    """Proposes tokens.

    Attributes:
        name: as in the parameters, e.g. "lookup".
        wants_features: whether `Sight.features` must be filled (the prompt then goes through with all features kept).
    """

    name: str
    wants_features: bool

    def propose(self, sight: Sight, count: int, distribution: Distribution) -> Proposal:
        """Propose at most `count` tokens to follow `sight.ids`. Runs inside inference mode, in one slice.

        Every draw is from `distribution.of(logits, ids)` of the draft's own logits, with the ids that precede that
        very token (accepted and proposed before), and that distribution is handed out as q: so q is what the
        token was drawn from, whatever temperature, top-k, top-p or penalty says. Greedy: one-hot.
        """
        ...

    def settle(self, sight: Sight, accepted: int) -> None:
        """The round is over: the first `accepted` rows of the path that was verified stand, then one token of
        the target's. Forget what was proposed beyond them. `sight.ids` is up to date."""
        ...

    def cache_bytes(self) -> tuple[int, int]:
        """Bytes that the draft's own cache holds, and positions; (0, 0) without one."""
        ...


@dataclass(frozen=True)
class Verdict:
    """Whether a draft fits a target: `reason` is "" if it does, else why not, in words for a person."""

    reason: str = ""
    notes: tuple[str, ...] = field(default=())
