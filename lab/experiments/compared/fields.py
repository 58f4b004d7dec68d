"""Parameters that experiments share which compare changed models with the dense one. No torch here."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from pydantic import Field

from lab.errors import BadInput
from lab.evaluation.texts import MOST_FILE_BYTES, TOPICS, WIKITEXT
from lab.events import ModelFacts
from lab.experiments.fields import names, shown

Projection = Literal[
    "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "c_attn", "attn.c_proj", "c_fc",
    "mlp.c_proj",
]  # fmt: skip
PROJECTIONS: tuple[Projection, ...] = Projection.__args__  # type: ignore[attr-defined]
CONV1D: tuple[Projection, ...] = ("c_attn", "attn.c_proj", "c_fc", "mlp.c_proj")
"""Of GPT-2, whose weights lie the other way round."""


def layers(description: str, most: int, **more: Any) -> Any:
    """The field `layers`, see `layers_in_order`; here and below `more` is for `shown`, such as `when`."""
    return Field(
        (0,),
        title="Layers",
        description=description,
        min_length=1,
        max_length=most,
        json_schema_extra=shown("layers", "main", **more),
    )


def layers_in_order(value: tuple[int, ...]) -> tuple[int, ...]:
    """Each layer once, the first one first: a field validator.

    Raises:
        ValueError: a negative layer.
    """
    if any(layer < 0 for layer in value):
        raise ValueError("layers are counted from 0")
    return tuple(sorted(set(value)))


def narrow_layers(field: dict[str, Any], facts: ModelFacts) -> None:
    """Narrow the schema of a field of layers to the model's own."""
    field["items"]["minimum"] = 0
    field["items"]["maximum"] = len(facts.layers) - 1


def check_layers(facts: ModelFacts, named: Iterable[int]) -> None:
    """Refuse layers that a model does not have.

    Raises:
        BadInput: with those it has.
    """
    layers = len(facts.layers)
    for layer in named:
        if layer >= layers:
            raise BadInput(
                f"Layer {layer} does not exist: {facts.name} has {layers} layers.",
                remedy=f"Name layers from 0 to {layers - 1}.",
            )


def projection(description: str, **more: Any) -> Any:
    """The field `projection`, of the type `Projection`."""
    return Field(
        "q_proj",
        title="Projection",
        description=description,
        json_schema_extra=shown("select", "main", labels=list(PROJECTIONS), **more),
    )


def narrow_projection(field: dict[str, Any], facts: ModelFacts) -> None:
    """Narrow the schema of `projection`: `disabled_options`, and the first one that there is as its default."""
    field["disabled_options"] = missing_projections(facts)
    field["default"] = next(name for name in PROJECTIONS if name not in field["disabled_options"])


def missing_projections(facts: ModelFacts) -> dict[str, str]:
    """Projections that a model does not have, each with the reason."""
    gpt2 = facts.architecture == "GPT2LMHeadModel"
    reason = f"{facts.name} ({facts.architecture}) has no such matrix."
    return {name: reason for name in PROJECTIONS if (name in CONV1D) != gpt2}


def calibration_tokens(default: int = 1024, description: str = "Tokens that methods learn from.", **more: Any) -> Any:
    """The field `calibration_tokens`."""
    return Field(
        default,
        title="Calibration text",
        description=description,
        ge=32,
        le=16_384,
        json_schema_extra=shown("number", "compare", unit="tokens", **more),
    )


def heldout_tokens(
    default: int = 512,
    description: str = "Tokens that errors are measured on; none of them is calibrated on.",
    **more: Any,
) -> Any:
    """The field `heldout_tokens`."""
    return Field(
        default,
        title="Held-out text",
        description=description,
        ge=16,
        le=16_384,
        json_schema_extra=shown("number", "compare", unit="tokens", **more),
    )


def text(**more: Any) -> Any:
    """The field `text`, see `lab.evaluation.texts`; a class that has it hashes it, see `text_hashes`."""
    return Field(
        "",
        title="Text",
        description="A text file; 'wikitext' where it can be fetched; empty: Python's own help topics.",
        max_length=500,
        json_schema_extra=shown("text", "compare", **names("file", "", TOPICS), **more),
    )


def text_hashes(text: str) -> dict[str, str]:
    """For `file_hashes`: the sha256 of the user's text, by its path; nothing for other texts.

    A new value each time where that is no regular file, which can be read but once. A file that cannot be read has
    "": the run refuses it.
    """
    if text in ("", TOPICS, WIKITEXT):
        return {}
    path = Path(text)
    try:
        if not path.is_file():
            return {text: uuid4().hex if path.exists() else ""}
        with path.open("rb") as file:
            return {text: hashlib.sha256(file.read(MOST_FILE_BYTES + 1)).hexdigest()}
    except (OSError, ValueError):
        return {text: ""}
