"""Questions to the `kv_cache` experiment: one head's exact attention, what-ifs, and the worked example."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal

import torch
from pydantic import BaseModel, Field

from lab.errors import BadInput, NotFound, Unavailable
from lab.events import ArrayData, ModelFacts
from lab.experiments.base import Question, RunContext
from lab.kv_cache.example import three_token_example
from lab.kv_cache.formula import CACHE_DTYPES, bytes_per_token, cache_bytes, cache_dtype, computations, layer_shapes
from lab.kv_cache.presets import known_model
from lab.kv_cache.replay import CacheReplay
from lab.kv_cache.what_if import MAX_CONTEXT, what_if
from lab.models.memory import free_bytes

KEPT_CACHE = "cache"
MAX_POSITIONS = 40_000


class AttentionQuestion(Question):
    """Which positions one head of one layer read in the pass that made new token `index`."""

    index: int = Field(0, ge=0, description="New token, 0 is the first.")
    layer: int = Field(0, ge=0, description="Layer, 0 is the first.")
    head: int = Field(0, ge=0, description="Query head, 0 is the first.")


class WhatIfQuestion(Question):
    """The same model with another cache, by formula."""

    window: int = Field(1024, ge=1, le=MAX_CONTEXT, description="Window of every layer, positions.")
    batch: int = Field(1, ge=1, le=4096, description="Sequences at a time.")
    max_context: int = Field(MAX_CONTEXT, ge=1, le=MAX_CONTEXT, description="End of the context axis, positions.")
    dtype: Literal["model", "float32", "bfloat16", "float16", "int8", "int4"] = Field(
        "model", description="How the cache is stored; 'model' is as the model runs."
    )


class WorkedExampleQuestion(Question):
    """The lesson's three-token example and its figures. Nothing to choose."""


INSPECTIONS: Mapping[str, type[BaseModel]] = {
    "attention": AttentionQuestion,
    "what_if": WhatIfQuestion,
    "worked_example": WorkedExampleQuestion,
}


def inspect(context: RunContext | None, facts: ModelFacts, name: str, params: BaseModel) -> dict[str, Any]:
    """Answer one question in at most 256 KiB and, on the default model, 100 ms.

    Args:
        context: the finished run, None where the question is of the model alone.
        params: of the class that `INSPECTIONS` names.

    Raises:
        NotFound: no such question.
        BadInput: the run has no such token, layer or head.
        Unavailable: the question needs a run, or what it asks for was not kept.
    """
    if isinstance(params, AttentionQuestion) and name == "attention":
        return _attention(context, params)
    if isinstance(params, WhatIfQuestion) and name == "what_if":
        return _what_if(context, facts, params)
    if isinstance(params, WorkedExampleQuestion) and name == "worked_example":
        return _worked_example()
    raise NotFound(f"kv_cache answers no question {name!r}.", remedy=f"Ask one of {', '.join(INSPECTIONS)}.")


def _attention(context: RunContext | None, question: AttentionQuestion) -> dict[str, Any]:
    """`weights`: float32 (position,), exact; the first is that of `first_position`, the last is the newest."""
    replay = context.kept.get(KEPT_CACHE) if context is not None else None
    if not isinstance(replay, CacheReplay):
        raise Unavailable("Exact attention needs a finished run whose cache is still kept.", remedy="Run it again.")
    weights, first = replay.attention(question.index, question.layer, question.head)
    if weights.shape[0] > MAX_POSITIONS:
        raise BadInput(
            f"The answer would hold {weights.shape[0]:,} positions; the limit is {MAX_POSITIONS:,}.",
            remedy="See the recorded attention, which is pooled.",
        )
    return {
        **question.model_dump(),
        "first_position": first,
        "positions": weights.shape[0],
        "weights": ArrayData.of(weights.numpy(), "float32"),
        "how": "recomputed: this step's token sent once more through the kept cache, cut to its length, with "
        "transformers' eager attention",
    }


def _what_if(context: RunContext | None, facts: ModelFacts, question: WhatIfQuestion) -> dict[str, Any]:
    if context is not None:
        device, own = str(context.model.device), str(context.model.dtype).removeprefix("torch.")
    else:
        device, own = ("cuda" if torch.cuda.is_available() else "cpu"), facts.dtype
    if own not in CACHE_DTYPES:
        own = "float32"
    answer = what_if(
        name=facts.name,
        layers=layer_shapes(facts),
        query_heads=facts.query_heads,
        context=facts.context or MAX_CONTEXT,
        dtype=own if question.dtype == "model" else question.dtype,
        free_bytes=free_bytes(device),
        batch=question.batch,
        window=question.window,
        longest=question.max_context,
    )
    return {**asdict(answer), "device": device}


def _worked_example() -> dict[str, Any]:
    lesson = known_model("llama-2-7b")
    grouped = known_model("llama-3-8b")
    if lesson is None or grouped is None:
        raise NotFound("The lesson's models are not among the known ones.")
    bf16 = cache_dtype("bfloat16")
    return {
        "steps": [asdict(step) for step in three_token_example()],
        "figures": {
            "tokens": 1000,
            "computations_without": computations(1, 1000, cached=False),
            "computations_with": computations(1, 1000, cached=True),
            "bytes_per_token": bytes_per_token(lesson.layers, bf16),
            "context": 8192,
            "bytes_32_kv_heads": cache_bytes(lesson.layers, 8192, bf16),
            "bytes_8_kv_heads": cache_bytes(grouped.layers, 8192, bf16),
        },
    }
