"""How large is it then? Bytes of a model's weights by count alone: of this model, a known one, or a given one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

from pydantic import Field

from lab.events import ModelFacts
from lab.experiments.base import Question
from lab.experiments.quantization.choices import KindName, ScaleName
from lab.models.architecture import MAX_LAYERS, MAX_VOCAB, MAX_WIDTH
from lab.quantization.families import MOST_WEIGHTS, Sizes, head_width
from lab.quantization.given_config import MOST_CHARACTERS, of_config, of_sizes
from lab.quantization.grid import SCALE_BITS, Grid
from lab.quantization.storage import LLAMA_7B, Matrices, Stored, by_count, of_facts, store, total


class StorageQuestion(Question):
    """Bytes of a model's weights at some bits, by count alone. Sizes matter for 'sizes' alone, a text for 'config'."""

    model: Literal["this", "llama-2-7b", "count", "config", "sizes"] = Field(
        "this",
        description="This model, a known one, nothing but a number of weights, a config.json or the sizes by hand.",
    )
    weights: int = Field(7_000_000_000, ge=1, le=MOST_WEIGHTS, description="Of 'count': all of them are quantized.")
    config: str = Field(
        "", max_length=MOST_CHARACTERS, description="Of 'config': the text of a config.json. No file is opened."
    )
    hidden: int = Field(4096, ge=1, le=MAX_WIDTH, description="Of 'sizes': width of the stream.")
    intermediate: int = Field(11008, ge=1, le=MAX_WIDTH, description="Width of the MLP.")
    layers: int = Field(32, ge=1, le=MAX_LAYERS, description="How many layers.")
    heads: int = Field(32, ge=1, le=MAX_WIDTH, description="Query heads of a layer.")
    kv_heads: int = Field(32, ge=1, le=MAX_WIDTH, description="Key/value heads of a layer; they divide the heads.")
    head_dim: int = Field(0, ge=0, le=MAX_WIDTH, description="Width of a head; 0: hidden / heads.")
    vocab: int = Field(32000, ge=1, le=MAX_VOCAB, description="Tokens of the vocabulary.")
    tied: bool = Field(False, description="Whether the head is the embedding's own matrix.")
    bits: int = Field(4, ge=2, le=8, description="Of a code.")
    kind: KindName = Field("absmax", description="Where the levels lie: it decides what a group stores.")
    group_size: int = Field(128, ge=16, le=512, description="Weights that share a scale; the last may be fewer.")
    scale_format: ScaleName = Field("float16", description="How scales are stored.")
    dense_bits: Literal[8, 16, 32] = Field(16, description="Of a weight before, and of what stays dense.")


def answer_storage(facts: ModelFacts, question: StorageQuestion) -> dict[str, Any]:
    """`total` and `kinds`: bytes of codes, scales, zero points and what stays dense, and of all before.

    Of a config also `read`, what was taken from it, and `notes`, what was assumed; its text is not sent back.

    Raises:
        BadInput: the config cannot be counted, sizes do not go together, or the matrices of this model are not known.
    """
    grid = Grid(question.bits, question.kind, question.group_size, ragged=True, scale_format=question.scale_format)
    asked = question.model_dump(exclude={"config"})
    if question.model == "count":
        whole = by_count(
            question.weights,
            question.bits,
            question.group_size,
            scale_bytes=SCALE_BITS[question.scale_format] // 8,
            zero_bits=grid.zero_bits,
            dense_bits=question.dense_bits,
        )
        return {**asked, "name": f"{question.weights:,} weights", "total": stored_answer(whole), "kinds": []}
    name, matrices, more = _matrices(facts, question)
    kinds = store(matrices, grid, question.dense_bits)
    told = {"name": name, "total": stored_answer(total(kinds)), "kinds": [stored_answer(kind) for kind in kinds]}
    return {**asked, **told, **more}


def stored_answer(one: Stored) -> dict[str, Any]:
    """Bytes of one kind, as an answer tells them."""
    return {**asdict(one), "bytes": one.bytes, "bits_per_weight": one.bits_per_weight}


def _matrices(facts: ModelFacts, question: StorageQuestion) -> tuple[str, tuple[Matrices, ...], dict[str, Any]]:
    """Its name, its matrices, and what else there is to tell."""
    match question.model:
        case "config":
            given = of_config(question.config)
            return given.name, given.matrices, {"read": given.read, "notes": list(given.notes)}
        case "sizes":
            sizes = Sizes(
                hidden=question.hidden,
                intermediate=question.intermediate,
                layers=question.layers,
                query_heads=question.heads,
                kv_heads=question.kv_heads,
                head_dim=question.head_dim or head_width(question.hidden, question.heads),
                vocab=question.vocab,
                tied=question.tied,
            )
            return "A decoder of these sizes", of_sizes(sizes), {}
        case "llama-2-7b":
            return "Llama 2 7B", LLAMA_7B, {}
    return facts.name, of_facts(facts), {}
