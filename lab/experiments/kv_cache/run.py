"""The `kv_cache` experiment: decode with the cache, beside it without, count the bytes, and prove the tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from lab.errors import BadInput
from lab.events import ModelFacts
from lab.experiments.base import RunContext, RunGenerator
from lab.experiments.kv_cache.inspections import INSPECTIONS
from lab.experiments.kv_cache.inspections import inspect as answer
from lab.experiments.kv_cache.params import KVCacheParams
from lab.experiments.kv_cache.session import Session


class KVCacheRunner:
    """See `lab.experiments.base.Runner`."""

    inspections: Mapping[str, type[BaseModel]] = INSPECTIONS

    def prepare(self, facts: ModelFacts, params: Any) -> None:
        """Refuse what this model cannot do.

        Raises:
            BadInput: a layer that it does not have, chat without a template, more new tokens than its context holds.
        """
        _check(facts, params)

    def run(self, context: RunContext, params: Any) -> RunGenerator:
        """Yield the run's events; the outcome holds the new tokens and their text.

        Raises:
            BadInput: see `prepare`; or the prompt and the new tokens pass the model's context.
            ModelError: the model has no attention key/value cache.
        """
        _check(context.model.facts, params)
        return (yield from Session(context, params).events())

    def inspect(self, context: RunContext | None, facts: ModelFacts, name: str, params: Any) -> dict[str, Any]:
        """Answer one question, see `lab.experiments.kv_cache.inspections`."""
        return answer(context, facts, name, params)


def _check(facts: ModelFacts, params: KVCacheParams) -> None:
    layers = len(facts.layers)
    for layer in params.trace_layers:
        if layer >= layers:
            raise BadInput(
                f"Layer {layer} does not exist: {facts.name} has {layers} layers.",
                remedy=f"Name layers from 0 to {layers - 1}.",
            )
    params.check_prompt(facts)


def make_runner() -> KVCacheRunner:
    """The runner; see `lab.experiments.registry`."""
    return KVCacheRunner()
