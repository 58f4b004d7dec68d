"""The lesson beside the picture: the idea, the formula, the worked example, what this is not.

Its figures come from the code that runs: the answer to the question `worked_example`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lab.events import ModelFacts
from widgets.format import format_bytes

Section = dict[str, Any]
ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def sections(facts: ModelFacts | None, dtype: str, example: Mapping[str, Any] | None) -> list[Section]:
    """The lesson's sections as the lesson widget shows them.

    Args:
        dtype: of the cached elements, as the run card names it.
        example: the answer to `worked_example`; without it the sections that need its figures are left out.
    """
    worked = [_by_hand(example["steps"]), _saves(example["figures"]), _costs(example["figures"])] if example else []
    return [_idea(facts, dtype), _predict(facts), *worked, _try(), _not(facts), _references()]


def _idea(facts: ModelFacts | None, dtype: str) -> Section:
    section: Section = {
        "title": "The idea",
        "paragraphs": [
            "To write the next token the model looks back at all earlier ones. What it looks at, a key and a value "
            "for each token, layer and head, never changes afterwards. Keep it, and each step computes one token "
            "instead of all."
        ],
        "math": ["2 · layers · kv_heads · head_dim · T · bytes"],
    }
    size = ELEMENT_BYTES.get(dtype)
    if facts is not None and size and all(layer.kind == "full" for layer in facts.layers):
        layers, heads, dim = len(facts.layers), facts.kv_heads, facts.head_dim
        section["math"].append(f"2 · {layers} · {heads} · {dim} · T · {size} = {2 * layers * heads * dim * size:,} · T")
    return section


def _by_hand(steps: Sequence[Mapping[str, Any]]) -> Section:
    rows = [
        [str(i), _vector(step["token"]), f"{len(step['keys'])} + {len(step['values'])}", _vector(step["output"])]
        for i, step in enumerate(steps, start=1)
    ]
    last = steps[-1]
    weights = ", ".join(f"{w:.2f}" for w in last["weights"])
    return {
        "title": "By hand",
        "paragraphs": [
            "One head of size 2. Query and key are the token itself; the value is the token with its second number "
            f"doubled. Three tokens arrive. At step {len(steps)} the weights over the cache are {weights}, and each "
            "output equals its row of full attention from scratch.",
        ],
        "table": {"head": ["step", "token", "keys + values", "output"], "rows": rows},
    }


def _vector(numbers: Sequence[float]) -> str:
    return "(" + ", ".join(str(int(n)) if n == int(n) else f"{n:.2f}" for n in numbers) + ")"


def _saves(figures: Mapping[str, Any]) -> Section:
    tokens, without, cached = (figures[k] for k in ("tokens", "computations_without", "computations_with"))
    return {
        "title": "What it saves",
        "paragraphs": [
            f"{tokens:,} tokens without a cache take 1 + 2 + … + {tokens:,} = {without:,} key and value computations; "
            f"with it, {cached:,}."
        ],
    }


def _costs(figures: Mapping[str, Any]) -> Section:
    return {
        "title": "What it costs",
        "paragraphs": [
            f"32 layers, 32 key/value heads of 128, 2 bytes: {figures['bytes_per_token']:,} bytes a token, "
            f"{format_bytes(figures['bytes_32_kv_heads'])} at {figures['context']:,} tokens. With 8 key/value heads "
            f"shared by the 32 query heads: {format_bytes(figures['bytes_8_kv_heads'])}."
        ],
    }


def _predict(facts: ModelFacts | None) -> Section:
    query, kv = (facts.query_heads, facts.kv_heads) if facts else (1, 1)
    if query == kv:
        return {
            "title": "Predict first",
            "paragraphs": ["Double the text: does a decode step take twice as long? Run and see."],
        }
    ratio = query / kv
    choices = sorted({2.0, ratio, float(query)})
    return {
        "title": "Predict first",
        "question": {
            "text": f"This model shares {kv} key/value head{'s' if kv > 1 else ''} among {query} query heads. How much "
            "larger would the cache be without sharing?",
            "choices": [f"{choice:g} ×" for choice in choices],
            "answer": choices.index(ratio),
            "reply": f"{query} / {kv} = {ratio:g}: the dashed line in the ledger.",
        },
    }


def _try() -> Section:
    return {
        "title": "Try",
        "paragraphs": [
            "Break it: let one layer forget. The words may stay fluent; the proof does not.",
            "Point at a token: the attention picture shows which positions it read.",
        ],
    }


def _not(facts: ModelFacts | None) -> Section:
    weights = f" ({format_bytes(facts.weight_bytes)})" if facts else ""
    return {
        "title": "This is not",
        "paragraphs": [f"the memory of the weights{weights}, nor what a server that allocates in pages reserves."],
    }


def _references() -> Section:
    return {
        "title": "References",
        "paragraphs": [
            "Shazeer 2019, Fast Transformer Decoding; Pope et al. 2023, Efficiently Scaling Transformer Inference; "
            "Ainslie et al. 2023, GQA; Kwon et al. 2023, PagedAttention."
        ],
    }
