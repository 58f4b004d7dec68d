"""Logits processors that depend on the text before: transformers' own, so that they mean what they mean there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from transformers import LogitsProcessorList
from transformers.generation.logits_process import (
    MinNewTokensLengthLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
)

from lab.errors import BadInput


@dataclass(frozen=True)
class Repetition:
    """Controls that transformers has, under its names.

    Attributes:
        repetition_penalty: logits of tokens that occurred are divided by it if positive, else multiplied; 1 is off.
        no_repeat_ngram_size: no n-gram of this length occurs twice; 0 is off.
        min_new_tokens: no end token before so many new ones.
    """

    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    min_new_tokens: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.repetition_penalty) and self.repetition_penalty > 0):
            raise BadInput(f"repetition_penalty is {self.repetition_penalty}.", remedy="Give a finite number above 0.")
        if self.no_repeat_ngram_size < 0:
            raise BadInput(f"no_repeat_ngram_size is {self.no_repeat_ngram_size}.", remedy="Give 0 or more.")
        if self.min_new_tokens < 0:
            raise BadInput(f"min_new_tokens is {self.min_new_tokens}.", remedy="Give 0 or more.")


def make_processors(repetition: Repetition, prompt_length: int, end_token_ids: Sequence[int]) -> LogitsProcessorList:
    """The processors in transformers' order; empty if nothing is asked for."""
    made = LogitsProcessorList()
    if repetition.repetition_penalty != 1.0:
        made.append(RepetitionPenaltyLogitsProcessor(penalty=repetition.repetition_penalty))
    if repetition.no_repeat_ngram_size > 0:
        made.append(NoRepeatNGramLogitsProcessor(repetition.no_repeat_ngram_size))
    if repetition.min_new_tokens > 0 and end_token_ids:
        made.append(MinNewTokensLengthLogitsProcessor(prompt_length, repetition.min_new_tokens, list(end_token_ids)))
    return made
