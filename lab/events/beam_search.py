"""Events of the `beam_search` experiment.

A node is one candidate token at one depth. Node ids count from 0 over the run; -1 is the prompt. A candidate's
`score` is the sum of the log-probabilities of its path, as beam search ranks it (after processors).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lab.events.base import Event

Fate = Literal["kept", "finished", "pruned"]
Reason = Literal["", "rank", "finished_pool", "length_penalty", "not_a_hypothesis"]


@dataclass(frozen=True)
class Node:
    """One candidate of a step: kept, moved to the finished pool, or pruned.

    Attributes:
        parent: the node it follows; -1 for the prompt.
        beam: the row of its parent among the running beams before the step.
        text: what the token adds to the text of its path.
        log_prob: of the token given its path (the edge): score = the parent's score + log_prob.
        rank: among the step's candidates by score, 0 is the best; ties go to the lower beam, then the lower token id.
        fate: "kept" as a running beam, "finished", or "pruned".
        reason: why it was pruned: "rank" (too many better ones), "finished_pool" (it ended, and the pool holds better
            hypotheses), "length_penalty" (it ended, and only the length penalty put it behind those in the pool),
            "not_a_hypothesis" (it ended, but ranked below the first `num_beams` candidates, which alone may finish). ""
            unless pruned.
        becomes: its row among the running beams after the step; -1 unless kept.
    """

    id: int
    parent: int
    beam: int
    token_id: int
    text: str
    log_prob: float
    score: float
    rank: int
    fate: Fate
    reason: Reason = ""
    becomes: int = -1


@dataclass(frozen=True)
class Hypothesis:
    """A finished text on the shelf.

    Attributes:
        node: its last node.
        length: generated tokens, the end token included: the n of the formula.
        sum_log_prob: the sum of its edges.
        score: sum_log_prob / length ** length_penalty.
        is_end: it ended with an end token; else the length limit ended it.
    """

    node: int
    length: int
    sum_log_prob: float
    score: float
    is_end: bool


@dataclass(frozen=True, kw_only=True)
class BeamStep(Event):
    """One step of the search: all running beams extended, the candidates ranked.

    Attributes:
        index: 0 for the first new token.
        nodes: the top max(2, 1 + end tokens) * num_beams candidates by rank, losers included.
        running: after the step, for each running beam its node, best first.
        shelf: after the step, the finished hypotheses, best first, at most `num_beams`.
        best_possible: the best score that a running beam could still reach under the stopping rule's bound; NaN
            where the rule needs none.
        stop: "" while the search goes on, else why it stopped, in words.
        ms: this step's own compute, milliseconds (for index 0 without the prefill, whose chunks hold it).
        reorder_ms: of that, putting the cache's rows in order.
        cache_bytes: bytes of the cache's tensors over all beams; `formula_bytes` from the model's facts alone.
    """

    index: int
    nodes: tuple[Node, ...]
    running: tuple[int, ...]
    shelf: tuple[Hypothesis, ...]
    best_possible: float
    stop: str
    ms: float
    reorder_ms: float
    cache_length: int
    cache_bytes: int
    formula_bytes: int


@dataclass(frozen=True, kw_only=True)
class PathFollowed(Event):
    """Another way through the same distributions, for comparison: greedy, or one drawn path.

    Attributes:
        kind: "greedy" or "sampled".
        token_ids, texts, log_probs: of its tokens, over the whole vocabulary, after the same processors.
        nodes: for each token the tree's node that it coincides with; -1 where the tree has none.
        score: sum / length ** length_penalty, like the hypotheses'.
    """

    kind: Literal["greedy", "sampled"]
    token_ids: tuple[int, ...]
    texts: tuple[str, ...]
    log_probs: tuple[float, ...]
    nodes: tuple[int, ...]
    score: float


@dataclass(frozen=True, kw_only=True)
class BeamResult(Event):
    """The end of the search.

    Attributes:
        hypotheses: the best `num_beams`, best first, with all their token ids and texts.
        steps: how many steps the search took; `ms` of search alone.
    """

    hypotheses: tuple[Hypothesis, ...]
    token_ids: tuple[tuple[int, ...], ...]
    texts: tuple[str, ...]
    steps: int
    ms: float
