"""From logits to the distribution that a token is drawn from: processors, temperature, top-k, top-p.

One object for target and draft, so that both sides see the same rules. Processors that look at the text
(repetition penalty, no repeated n-grams, a least number of new tokens) are transformers' own, and are given the
ids that precede the very token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import LogitsProcessorList

from lab.decoding.processors import Repetition, make_processors
from lab.decoding.sampling import Sampling, filtered


@dataclass(frozen=True)
class Distribution:
    """The rules that turn logits into probabilities.

    Attributes:
        sampling: greedy, or temperature, top-k and top-p.
        repetition: controls that depend on the text before.
        prompt_length: tokens of the prompt, for a least number of new ones.
        end_token_ids: tokens that end the text.
    """

    sampling: Sampling
    repetition: Repetition = field(default_factory=Repetition)
    prompt_length: int = 0
    end_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        made = make_processors(self.repetition, self.prompt_length, self.end_token_ids)
        object.__setattr__(self, "_processors", made)

    @property
    def greedy(self) -> bool:
        """Whether the most probable token is taken."""
        return not self.sampling.do_sample

    @property
    def looks_back(self) -> bool:
        """Whether the tokens before change the distribution."""
        return bool(self._made)

    @property
    def _made(self) -> LogitsProcessorList:
        processors: LogitsProcessorList = self.__dict__["_processors"]
        return processors

    def processed(self, logits: Tensor, ids: Sequence[int]) -> Tensor:
        """(vocab,) logits after the processors and before temperature."""
        if not self._made:
            return logits
        before = torch.tensor([list(ids)], device=logits.device)
        result: Tensor = self._made(before, logits[None])[0]  # type: ignore[arg-type]
        return result

    def of(self, logits: Tensor, ids: Sequence[int]) -> Tensor:
        """The distribution that the next token is drawn from.

        Args:
            logits: (vocab,) fp32, as a model gives them.
            ids: the tokens before, prompt included.

        Returns:
            (vocab,) fp32 probabilities that sum to 1; one-hot at the most probable token when greedy.
        """
        logits = self.processed(logits, ids)
        if self.greedy:
            return torch.nn.functional.one_hot(logits.argmax(), logits.shape[-1]).to(logits.dtype)
        return torch.softmax(filtered(self.sampling.scaled(logits), self.sampling), dim=-1)

    def rows(self, logits: Tensor, ids: Sequence[Sequence[int]]) -> Tensor:
        """`of` for each of several rows: (row, vocab). `ids[i]` precede the token of row i."""
        return torch.stack([self.of(row, before) for row, before in zip(logits, ids, strict=True)])
