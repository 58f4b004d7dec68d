"""The lesson of the `kv_cache` page. Its figures come from the code that runs: the question `worked_example`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lab.events import ModelFacts
from lab.strings import Strings
from widgets.format import format_bytes, format_count
from widgets.lesson_form import LessonForm, Part

ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
FORMULA = "2 · layers · kv_heads · head_dim · T · bytes"
REFERENCES = (
    "Shazeer 2019, Fast Transformer Decoding",
    "Pope et al. 2023, Efficiently Scaling Transformer Inference",
    "Ainslie et al. 2023, GQA",
    "Kwon et al. 2023, PagedAttention",
)


def sections(words: Strings, facts: ModelFacts | None, dtype: str, example: Mapping[str, Any] | None) -> list[Part]:
    """The lesson's sections as the lesson widget shows them.

    Args:
        dtype: of the cached elements, as the run card names it.
        example: the answer to `worked_example`; without it the section says that its figures are still to come.
    """
    form = LessonForm(words, "kv_cache")
    return [
        form.idea(),
        form.formula([FORMULA, *_here(facts, dtype)]),
        _worked(form, example["steps"] if example else ()),
        _predict(form, facts),
        *([_balance(form, example["figures"])] if example else []),
        form.tries("first_token", "sampling", "forgets"),
        form.not_this(),
        form.references(*REFERENCES),
    ]


def _here(facts: ModelFacts | None, dtype: str) -> list[str]:
    """The formula with this model's figures."""
    size = ELEMENT_BYTES.get(dtype)
    if facts is None or not size or any(layer.kind != "full" for layer in facts.layers):
        return []
    layers, heads, dim = len(facts.layers), facts.kv_heads, facts.head_dim
    return [f"2 · {layers} · {heads} · {dim} · T · {size} = {2 * layers * heads * dim * size:,} · T"]


def _worked(form: LessonForm, steps: Sequence[Mapping[str, Any]]) -> Part:
    if not steps:
        return form.worked((), None)
    rows = [
        [str(i), _vector(step["token"]), f"{len(step['keys'])} + {len(step['values'])}", _vector(step["output"])]
        for i, step in enumerate(steps, start=1)
    ]
    weights = ", ".join(f"{w:.2f}" for w in steps[-1]["weights"])
    told = form.say("worked", steps=len(steps), weights=weights)
    return form.worked([told], {"head": form.all("head"), "rows": rows})


def _vector(numbers: Sequence[float]) -> str:
    return "(" + ", ".join(str(int(n)) if n == int(n) else f"{n:.2f}" for n in numbers) + ")"


def _balance(form: LessonForm, figures: Mapping[str, Any]) -> Part:
    saves = form.say(
        "saves",
        tokens=format_count(figures["tokens"]),
        without=format_count(figures["computations_without"]),
        cached=format_count(figures["computations_with"]),
    )
    costs = form.say(
        "costs",
        each=format_count(figures["bytes_per_token"]),
        all=format_bytes(figures["bytes_32_kv_heads"]),
        context=format_count(figures["context"]),
        shared=format_bytes(figures["bytes_8_kv_heads"]),
    )
    return {"title": form.say("balance"), "paragraphs": [saves, costs]}


def _predict(form: LessonForm, facts: ModelFacts | None) -> Part:
    query, kv = (facts.query_heads, facts.kv_heads) if facts else (1, 1)
    if query == kv:
        return form.predict(form.all("choices_alone"), 1, text=form.say("ask_alone"), reply=form.say("reply_alone"))
    ratio = query / kv
    choices = sorted({2.0, ratio, float(query)})
    return form.predict(
        [f"{choice:g} ×" for choice in choices],
        choices.index(ratio),
        text=form.say("ask", kv=kv, query=query),
        reply=form.say("reply", query=query, kv=kv, ratio=f"{ratio:g}"),
    )
