"""How well a model predicts a text: perplexity, exp of the mean negative log-likelihood of each token given those
before it in its window, and bits per byte, which can be compared between tokenizers.

The logits at position i are scored against token i + 1, shifted once, here and nowhere else. They are made and used
up chunk by chunk (1024 tokens of the default model's would take 201 MB at once).

Source: Jelinek et al. 1977; windows and stride as in transformers' "Perplexity of fixed-length models".
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from lab.decoding.choose_pass import choose_pass
from lab.decoding.chunks import prefill_chunk
from lab.decoding.passes import Pass, Rows
from lab.evaluation.tokens import Span, Tokens, Windows
from lab.steps import relay


@dataclass(frozen=True)
class Likelihood:
    """What a model made of a text.

    Attributes:
        nll: (scored,) fp32: the negative log-likelihood of each scored token, natural logarithm.
        positions: (scored,) int64: where each stands in the text.
        bytes: of UTF-8 that the scored tokens stand for.
        tokens: read, scored or not.
        text_hash: of the text.
        windows: in which it was read.
    """

    nll: Tensor
    positions: Tensor
    bytes: int
    tokens: int
    text_hash: str
    windows: Windows

    @property
    def scored(self) -> int:
        """Tokens that had something before them."""
        return self.nll.numel()

    @property
    def mean_nll(self) -> float | None:
        """Nats a token; None ("n/a") where no token was scored, as in a text of one token."""
        return float(self.nll.mean(dtype=torch.float64)) if self.scored else None

    @property
    def perplexity(self) -> float | None:
        """None where no token was scored; inf beyond what a number can hold, NaN if any logit was."""
        mean = self.mean_nll
        return None if mean is None else math.inf if mean >= 709 else math.exp(mean)

    @property
    def bits_per_byte(self) -> float | None:
        """None where no token was scored, or the scored ones stand for no bytes."""
        if not self.scored or not self.bytes:
            return None
        return float(self.nll.sum(dtype=torch.float64)) / math.log(2) / self.bytes


@dataclass(frozen=True)
class Chunk:
    """A few rows of one window on their way through a model.

    Attributes:
        ids: to send in.
        start: their first position in the window, prefix included.
        targets: (row,) int64: the token that each scored row is to predict.
        positions: (row,) int64: where the targets stand in the text.
        skip: rows at the start that are read but not scored.
        done: share of the text's rows done with this chunk, 0 to 1.
    """

    ids: tuple[int, ...]
    start: int
    targets: Tensor
    positions: Tensor
    skip: int
    done: float


def chunks(tokens: Tokens, windows: Windows, size: int) -> Generator[Chunk, None, None]:
    """The whole way of a text through a model, window by window, in even pieces of at most `size` tokens.

    The last token of a window is not sent: nothing after it is scored there.
    """
    spans = list(windows.spans(len(tokens), prefix=bool(tokens.prefix)))
    total = sum(_sent(span, tokens) for span in spans)
    done = 0
    for span in spans:
        row_ids = (*tokens.prefix, *tokens.ids[span.begin : span.end])[:-1]
        shift = span.begin - len(tokens.prefix) + 1  # row r predicts the token at r + shift
        pieces = -(-len(row_ids) // size)
        borders = [len(row_ids) * piece // pieces for piece in range(pieces + 1)] if pieces else []
        for start, stop in pairwise(borders):
            ids = row_ids[start:stop]
            first = min(max(start, span.first - shift), start + len(ids))  # the first row that is scored
            positions = torch.arange(first + shift, start + len(ids) + shift)
            targets = torch.tensor([tokens.ids[i] for i in positions.tolist()], dtype=torch.int64)
            done += len(ids)
            yield Chunk(ids, start, targets, positions, first - start, done / total)


def _sent(span: Span, tokens: Tokens) -> int:
    return len(tokens.prefix) + span.end - span.begin - 1


class Reader:
    """Sends chunks through a model with a cache of one window. Read, not changed.

    Args:
        model: a causal model of transformers, or a shell of one.

    Raises:
        ModelError: it has no attention key/value cache.
    """

    def __init__(self, model: nn.Module, tokens: Tokens, windows: Windows) -> None:
        self.model = model
        self.size = prefill_chunk(model)
        self._pass: Pass = choose_pass(
            model, windows.size + len(tokens.prefix), layers=(), fast=None, mistake="nothing"
        )

    @property
    def shows_features(self) -> bool:
        """Whether the head alone gives the logits again, bit for bit, from the features of a longer chunk's pass."""
        return self._pass.name == "llama"

    def reading(self, chunk: Chunk) -> Generator[float, None, Rows]:
        """The logits of every row of a chunk. Yields `chunk.done` between layers where a slice would be long.

        It enters and leaves inference mode between pauses.
        """
        if chunk.start == 0:
            self._pass.forget()
        return (yield from relay(self._pass.sliced_rows(chunk.ids, chunk.start), lambda _: chunk.done))


def measuring(model: nn.Module, tokens: Tokens, windows: Windows | None = None) -> Generator[float, None, Likelihood]:
    """Read a text and score it, pausing after each chunk.

    Args:
        model: a causal model of transformers, or a shell of one.

    Yields:
        The share done, 0 to 1.
    """
    windows = windows or Windows()
    reader = Reader(model, tokens, windows)
    collected = Collected()
    for chunk in chunks(tokens, windows, reader.size):
        logits = (yield from reader.reading(chunk)).logits[chunk.skip :]
        yield chunk.done
        with torch.inference_mode():
            if len(chunk.targets):
                collected.add(chunk, nll_of(logits.log_softmax(-1), chunk.targets))
            del logits
        yield chunk.done
    return collected.likelihood(tokens, windows)


def nll_of(log_probabilities: Tensor, targets: Tensor) -> Tensor:
    """(row,) fp32 on the CPU: of (row, vocab) log-probabilities, minus that of each row's target."""
    chosen: Tensor = log_probabilities.gather(1, targets.to(log_probabilities.device)[:, None])
    return chosen[:, 0].neg().float().cpu()


class Collected:
    """The figures of each scored token, as they come."""

    def __init__(self) -> None:
        self._nll: list[Tensor] = []
        self._positions: list[Tensor] = []

    def add(self, chunk: Chunk, nll: Tensor) -> None:
        """Take in one chunk's."""
        self._nll.append(nll)
        self._positions.append(chunk.positions)

    def likelihood(self, tokens: Tokens, windows: Windows) -> Likelihood:
        """All of them."""
        positions = torch.cat(self._positions) if self._positions else torch.empty(0, dtype=torch.int64)
        nll = torch.cat(self._nll) if self._nll else torch.empty(0)
        size = sum(tokens.bytes[i] for i in positions.tolist())
        return Likelihood(nll, positions, size, len(tokens), tokens.hash, windows)
