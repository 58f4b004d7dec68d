"""Beam search over anything that gives log-probabilities: a table of a lesson or a model's rows.

After Graves (2012) and Sutskever et al. (2014), with the rules of transformers 5.24's `_beam_search`, so that the same
settings find the same texts: all running beams are extended; of all continuations the best
max(2, 1 + end tokens) * width are the step's candidates. A candidate that ends (an end token, or the length limit) is
finished if it is among the first `width`, and is dropped otherwise. The best `width` that did not end run on.

Two differences, both where transformers leaves the result open:

- Equal scores are ordered by beam and token id (`candidates`), there by `torch.topk`.
- A beam that has no text of its own does not exist here. There the first step fills the beams with copies of the
  prompt at -1e9, which matters with more beams than tokens in the vocabulary alone: a copy may then "finish", be
  counted by early_stopping=True, and come back as a hypothesis with a score of -1e9.

Diverse beam groups (Vijayakumar et al. 2018) are not offered: transformers 5.24 has moved them to code on a hub, so
there is nothing left here to compare with.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Literal, Protocol, TypeVar

import torch
from torch import Tensor

from lab.decoding.beam.candidates import Continuation, best_continuations
from lab.decoding.beam.hypotheses import EarlyStopping, Finished, Pool, StopRule, final_score
from lab.decoding.processors import Repetition, make_processors
from lab.errors import BadInput

Fate = Literal["kept", "finished", "pruned"]
Reason = Literal["", "rank", "finished_pool", "length_penalty", "not_a_hypothesis"]
Mistake = Literal["nothing", "cache_not_reordered", "count_prompt_in_length", "drop_end_token"]

T = TypeVar("T")


class Beams(Protocol):
    """What the search asks of a distribution. The generators yield where a slice may end."""

    def first(self) -> Generator[None, None, Tensor]:
        """(1, vocab) fp32 log-probabilities of the first new token."""
        ...

    def extend(self, rows: Sequence[int], token_ids: Sequence[int]) -> Generator[None, None, Tensor]:
        """Row i goes on from the former row `rows[i]` with `token_ids[i]`.

        The first call's rows are all 0: the prompt.

        Returns:
            (row, vocab) fp32 log-probabilities of each row's next token.
        """
        ...


@dataclass(frozen=True)
class Settings:
    """How to search.

    Attributes:
        width: beams kept after each step.
        max_new_tokens: tokens of a text at most.
        end_token_ids: tokens that end a text.
        mistake: do one thing wrong on purpose. "count_prompt_in_length": the prompt's tokens count in n;
            "drop_end_token": an end token counts neither in n nor in the sum. "cache_not_reordered" is the rows' to
            make, the search itself does not change.

    Raises:
        BadInput: a number outside its limits, named.
    """

    width: int
    max_new_tokens: int
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = "false"
    end_token_ids: tuple[int, ...] = ()
    repetition: Repetition = field(default_factory=Repetition)
    mistake: Mistake = "nothing"

    def __post_init__(self) -> None:
        for name, value in (("width", self.width), ("max_new_tokens", self.max_new_tokens)):
            if value < 1:
                raise BadInput(f"{name} is {value}.", remedy="Give 1 or more.")
        if not math.isfinite(self.length_penalty):
            raise BadInput(f"length_penalty is {self.length_penalty}.", remedy="Give a finite number.")
        if self.repetition.min_new_tokens > self.max_new_tokens:
            raise BadInput(
                f"min_new_tokens is {self.repetition.min_new_tokens}, above max_new_tokens, {self.max_new_tokens}.",
                remedy="Lower the one or raise the other.",
            )

    @property
    def candidates(self) -> int:
        """Candidates of a step: enough for `width` to run on if every beam's end tokens are among them."""
        return max(2, 1 + len(set(self.end_token_ids))) * self.width

    @property
    def may_finish(self) -> int:
        """How many of them, by rank, may finish."""
        return self.width


@dataclass(frozen=True)
class Candidate:
    """One candidate of a step and what became of it; the fields are those of `lab.events.beam_search.Node`.

    A finished candidate is pruned for "length_penalty" if it would have entered the pool with all scores
    compared as plain sums (the pool before the step and the step's other finished candidates, length penalty
    0), and did not enter with the penalty; for "finished_pool" if it would not have entered either way.
    """

    id: int
    parent: int
    beam: int
    token_id: int
    log_prob: float
    score: float
    rank: int
    fate: Fate
    reason: Reason = ""
    becomes: int = -1


@dataclass(frozen=True)
class SearchStep:
    """One step; the fields are those of `lab.events.beam_search.BeamStep`.

    Attributes:
        rows: before the step, for each running beam the former row that it goes on from; () at the first.
    """

    index: int
    candidates: tuple[Candidate, ...]
    running: tuple[int, ...]
    shelf: tuple[Finished, ...]
    best_possible: float
    stop: str
    ms: float
    rows: tuple[int, ...]


@dataclass
class Tree:
    """All candidates so far, by id."""

    parents: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)

    def add(self, parent: int, token_id: int, log_prob: float) -> int:
        """Hang a token on a node (-1: on the prompt); gives its id."""
        self.parents.append(parent)
        self.token_ids.append(token_id)
        self.log_probs.append(log_prob)
        return len(self.parents) - 1

    def path(self, node: int) -> list[int]:
        """The nodes from the first new token to `node`; empty for -1."""
        path: list[int] = []
        while node >= 0:
            path.append(node)
            node = self.parents[node]
        return path[::-1]

    def tokens(self, node: int) -> list[int]:
        """The new tokens of the text that ends at `node`."""
        return [self.token_ids[i] for i in self.path(node)]


def beam_search(
    beams: Beams, settings: Settings, prompt_ids: Sequence[int] = (), tree: Tree | None = None
) -> Generator[SearchStep | None, None, list[Finished]]:
    """Search for the best texts.

    Args:
        prompt_ids: the tokens before, for the processors.
        tree: filled as the search goes.

    Yields:
        None where a slice may end, and each step.

    Returns:
        The finished texts, best first, at most `width`.

    Raises:
        ModelError: the model gave NaN.
    """
    return (yield from _Search(beams, settings, list(prompt_ids), tree or Tree()).run())


class _Search:
    def __init__(self, beams: Beams, settings: Settings, prompt_ids: list[int], tree: Tree) -> None:
        self._beams, self._settings, self._prompt, self._tree = beams, settings, prompt_ids, tree
        self._ends = frozenset(settings.end_token_ids)
        self._processors = make_processors(settings.repetition, len(prompt_ids), sorted(self._ends))
        self._rule = StopRule(settings.early_stopping, settings.length_penalty, settings.max_new_tokens)
        self._pool = Pool(settings.width)
        self._running: list[int] = [-1]
        self._sums = [0.0]

    def run(self) -> Generator[SearchStep | None, None, list[Finished]]:
        rows: tuple[int, ...] = ()
        for index in range(self._settings.max_new_tokens):
            source = self._beams.extend(rows, [self._tree.token_ids[n] for n in self._running]) if index else None
            log_probs, ms = yield from timed(source or self._beams.first())
            began = perf_counter()
            with torch.inference_mode():
                found = best_continuations(self._processed(log_probs), self._sums, self._settings.candidates)
            del log_probs
            step_rows, (candidates, rows) = rows, self._sort_out(found, index)
            stop, bound = self._stop(index)
            yield SearchStep(
                index,
                tuple(candidates),
                tuple(self._running),
                tuple(self._pool.held),
                bound,
                stop,
                ms + (perf_counter() - began) * 1e3,
                step_rows,
            )
            if stop:
                break
        return self._pool.held

    def _processed(self, log_probs: Tensor) -> Tensor:
        """The processors change log-probabilities, which are not normalised again: as transformers does."""
        if not self._processors:
            return log_probs
        texts = [[*self._prompt, *self._tree.tokens(node)] for node in self._running]
        ids = torch.tensor(texts, dtype=torch.long, device=log_probs.device)
        result: Tensor = self._processors(ids, log_probs)  # type: ignore[arg-type]
        return result

    def _sort_out(self, found: list[Continuation], index: int) -> tuple[list[Candidate], tuple[int, ...]]:
        """Decide each candidate's fate; the running beams and the pool become those after the step."""
        width, last = self._settings.width, index + 1 == self._settings.max_new_tokens
        before = list(self._pool.held)
        parents = [self._running[c.beam] for c in found]
        nodes = [self._tree.add(p, c.token_id, c.log_prob) for p, c in zip(parents, found, strict=True)]
        ended = [last or c.token_id in self._ends for c in found]
        finishing = [
            self._finish(node, c, index)
            for node, c, end in zip(nodes[: self._settings.may_finish], found, ended, strict=False)
            if end
        ]
        self._pool.offer(finishing)
        entered = {text.node for text in self._pool.held}
        by_sum = self._pool.would_enter_by_sum(finishing, before)
        kept = [rank for rank, end in enumerate(ended) if not end][:width]
        becomes = {rank: row for row, rank in enumerate(kept)}
        candidates = []
        for rank, (node, parent, c, end) in enumerate(zip(nodes, parents, found, ended, strict=True)):
            fate, reason = _fate(
                rank < self._settings.may_finish, end, rank in becomes, node in entered, node in by_sum
            )
            row = becomes.get(rank, -1)
            candidates.append(Candidate(node, parent, c.beam, c.token_id, c.log_prob, c.score, rank, fate, reason, row))
        self._running = [nodes[rank] for rank in kept]
        self._sums = [found[rank].score for rank in kept]
        return candidates, tuple(found[rank].beam for rank in kept)

    def _finish(self, node: int, found: Continuation, index: int) -> Finished:
        settings, is_end = self._settings, found.token_id in self._ends
        length, total = index + 1, found.score
        if settings.mistake == "count_prompt_in_length":
            length += len(self._prompt)
        if settings.mistake == "drop_end_token" and is_end:
            length, total = max(length - 1, 1), total - found.log_prob
        return Finished(node, length, total, final_score(total, length, settings.length_penalty), is_end)

    def _stop(self, index: int) -> tuple[str, float]:
        """Why the search stops ("" if it goes on), and the bound of the best running beam (NaN where none is used)."""
        if index + 1 == self._settings.max_new_tokens:
            return "the texts are as long as they may be", math.nan
        bound = self._rule.bound(self._sums[0], index + 1) if self._running else -math.inf
        stop = self._rule.why_stop(self._pool, bound)
        needless = self._settings.early_stopping == "true" or not self._running
        return stop, math.nan if needless else bound


def _fate(may_finish: bool, end: bool, kept: bool, entered: bool, by_sum: bool) -> tuple[Fate, Reason]:
    if kept:
        return "kept", ""
    if not end:
        return "pruned", "rank"
    if not may_finish:
        return "pruned", "not_a_hypothesis"
    if entered:
        return "finished", ""
    return "pruned", "length_penalty" if by_sum else "finished_pool"


def timed(steps: Generator[None, None, T]) -> Generator[None, None, tuple[T, float]]:
    """Hand on the pauses of `steps`; gives what it returned and its own milliseconds, those of the pauses left out."""
    ms = 0.0
    while True:
        began = perf_counter()
        try:
            next(steps)
        except StopIteration as end:
            return end.value, ms + (perf_counter() - began) * 1e3
        ms += (perf_counter() - began) * 1e3
        yield None
