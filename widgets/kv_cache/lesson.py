"""The lesson beside the picture: the idea, the formula, the worked example, what this is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.events import ModelFacts
from lab.kv_cache.example import worked_example
from lab.kv_cache.formula import computations_with_cache, computations_without_cache, full_cache_bytes

MIB, GIB = 1024**2, 1024**3


def sections(facts: ModelFacts | None) -> list[dict[str, Any]]:
    """The lesson's sections as the lesson widget shows them; figures come from the code that runs."""
    return [_idea(facts), _example(), _count(), _size(), _predict(facts), _try(), _not(facts), _references()]


def _idea(facts: ModelFacts | None) -> dict[str, Any]:
    here = []
    if facts is not None and all(layer.kind == "full" for layer in facts.layers):
        size = 4 if facts.dtype in ("float32", "F32") else 2
        per_token = full_cache_bytes(len(facts.layers), facts.kv_heads, facts.head_dim, 1, size)
        here = [
            f"Here 2 · {len(facts.layers)} · {facts.kv_heads} · {facts.head_dim} · {size} = {per_token:,} bytes a token."
        ]
    return {
        "title": "The idea",
        "paragraphs": [
            "To write the next token the model looks back at all earlier ones. What it looks at, a key and a value for "
            "each token, layer and head, never changes afterwards. Keep it, and each step computes one token instead "
            "of all.",
        ],
        "math": "2 · layers · kv_heads · head_dim · T · bytes",
        "after": here,
    }


def _example() -> dict[str, Any]:
    rows = [
        [str(i + 1), _vector(step.token), f"{step.cached} + {step.cached}", _vector(step.output)]
        for i, step in enumerate(worked_example())
    ]
    return {
        "title": "By hand",
        "paragraphs": [
            "One head of size 2. Query and key are the token itself; the value is the token with its second number "
            "doubled. Three tokens arrive, and the cache only grows."
        ],
        "table": {"head": ["step", "token", "keys + values", "output"], "rows": rows},
    }


def _vector(numbers: tuple[float, ...]) -> str:
    return "(" + ", ".join(f"{n:.2f}".rstrip("0").rstrip(".") if n == round(n) else f"{n:.2f}" for n in numbers) + ")"


def _count() -> dict[str, Any]:
    without, cached = computations_without_cache(1000), computations_with_cache(1000)
    return {
        "title": "What it saves",
        "paragraphs": [
            f"1,000 tokens without a cache take 1 + 2 + … + 1,000 = {without:,} key and value computations; "
            f"with it, {cached:,}."
        ],
    }


def _size() -> dict[str, Any]:
    per_token = full_cache_bytes(32, 32, 128, 1, 2)
    whole = full_cache_bytes(32, 32, 128, 8192, 2)
    shared = full_cache_bytes(32, 8, 128, 8192, 2)
    return {
        "title": "What it costs",
        "paragraphs": [
            f"32 layers, 32 key/value heads of 128, 2 bytes: {per_token:,} bytes a token, {whole / GIB:.0f} GiB at 8,192 "
            f"tokens. With 8 key/value heads shared by the 32 query heads: {shared / GIB:.0f} GiB."
        ],
    }


def _predict(facts: ModelFacts | None) -> dict[str, Any]:
    query, kv = (facts.query_heads, facts.kv_heads) if facts else (9, 3)
    if query == kv:
        return {
            "title": "Predict first",
            "paragraphs": ["Double the text: does a decode step take twice as long? Run and see."],
        }
    ratio = query / kv
    choices = sorted({2.0, ratio, float(query)})
    return {
        "title": "Predict first",
        "paragraphs": [
            f"This model shares {kv} key/value head{'s' if kv > 1 else ''} among {query} query heads. How much larger "
            "would the cache be without sharing?"
        ],
        "question": {
            "choices": [f"{c:g} ×" for c in choices],
            "answer": choices.index(ratio),
            "reply": f"{query} / {kv} = {ratio:g}: the dashed line in the picture.",
        },
    }


def _try() -> dict[str, Any]:
    return {
        "title": "Try",
        "paragraphs": [
            "Break it: drop one layer's cache. The words may stay fluent; the proof does not.",
            "Point at a token: the attention picture shows which positions it read.",
        ],
    }


def _not(facts: ModelFacts | None) -> dict[str, Any]:
    weights = f" ({facts.weight_bytes / MIB:,.0f} MiB)" if facts else ""
    return {
        "title": "This is not",
        "paragraphs": [f"the memory of the weights{weights}, nor what a server that allocates in pages reserves."],
    }


def _references() -> dict[str, Any]:
    return {
        "title": "References",
        "paragraphs": [
            "Shazeer 2019, Fast Transformer Decoding. Pope et al. 2023, Efficiently Scaling Transformer Inference. "
            "Ainslie et al. 2023, GQA. Kwon et al. 2023, PagedAttention."
        ],
    }


Answer = Mapping[str, Any]
