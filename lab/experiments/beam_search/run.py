"""The `beam_search` experiment: search, keep the losers in sight, follow greedy beside it, and prove the hypotheses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from lab.errors import BadInput
from lab.events import ModelFacts
from lab.experiments.base import RunContext, RunGenerator
from lab.experiments.beam_search.inspections import INSPECTIONS
from lab.experiments.beam_search.inspections import inspect as answer
from lab.experiments.beam_search.params import BeamSearchParams
from lab.experiments.beam_search.session import Session


class BeamSearchRunner:
    """See `lab.experiments.base.Runner`."""

    inspections: Mapping[str, type[BaseModel]] = INSPECTIONS

    def prepare(self, facts: ModelFacts, params: Any) -> None:
        """Refuse what this model cannot do.

        Raises:
            BadInput: an end token outside its vocabulary, a least number of tokens above the most, chat without a
                template, more new tokens than its context holds.
        """
        _check(facts, params)

    def run(self, context: RunContext, params: Any) -> RunGenerator:
        """Yield the run's events; the outcome holds the best hypothesis's tokens and text.

        Raises:
            BadInput: see `prepare`; or the prompt and the new tokens pass the model's context.
            ModelError: the model has no attention key/value cache, or gives NaN.
        """
        _check(context.model.facts, params)
        return (yield from Session(context, params).events())

    def inspect(self, context: RunContext | None, facts: ModelFacts, name: str, params: Any) -> dict[str, Any]:
        """Answer one question, see `lab.experiments.beam_search.inspections`."""
        del facts
        return answer(context, name, params)


def _check(facts: ModelFacts, params: BeamSearchParams) -> None:
    for token in params.end_token_ids:
        if not 0 <= token < facts.vocab:
            raise BadInput(
                f"End token {token} does not exist: {facts.name} has {facts.vocab:,} tokens.",
                remedy=f"Name tokens from 0 to {facts.vocab - 1:,}.",
            )
    if params.min_new_tokens > params.max_new_tokens:
        raise BadInput(
            f"min_new_tokens is {params.min_new_tokens}, above max_new_tokens, {params.max_new_tokens}.",
            remedy="Lower the one or raise the other.",
        )
    params.check_prompt(facts)


def make_runner() -> BeamSearchRunner:
    """The runner; see `lab.experiments.registry`."""
    return BeamSearchRunner()
