"""Parameters of the `pruning` experiment. No torch here."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, field_validator

from lab.events import ModelFacts
from lab.experiments.base import Preset, presets
from lab.experiments.compared import fields
from lab.experiments.compared.fields import Projection
from lab.experiments.fields import PromptParams, chat, max_new_tokens, prompt, shown
from lab.experiments.pruning.choices import (
    METHODS,
    MISTAKES,
    PATTERNS,
    SCOPES,
    TASKS,
    BreakRun,
    Compared,
    MethodName,
    PatternName,
    ScopeName,
    Task,
)

MAX_LAYERS = 4
"""Layers that the task "masks" studies at a time."""
_SPOKEN = ["words", "savings"]
_MASKED = ["random", "magnitude", "wanda", "sparsegpt"]


class PruningParams(PromptParams):
    """What to prune, how, and what to look at."""

    experiment: ClassVar[str] = "pruning"
    first: ClassVar[tuple[str, ...]] = ("task", "method", "sparsity", "pattern", "layers", "projection", "prompt")

    task: Task = Field(
        "masks",
        title="Do",
        description="Study the masks and errors of one projection by several methods; set loss against sparsity; set "
        "words beside words; count and measure what is saved; or fine-tune with the mask held.",
        json_schema_extra=shown("select", "main", labels=list(TASKS.values())),
    )
    method: MethodName = Field(
        "wanda",
        title="Method",
        description="How the weights that go are chosen.",
        json_schema_extra=shown("select", "main", labels=list(METHODS.values())),
    )
    sparsity: float = Field(
        0.5,
        title="Sparsity",
        description="Share of the weights that are set to zero.",
        ge=0.0,
        le=1.0,
        allow_inf_nan=False,
        json_schema_extra=shown("slider", "main", step=0.01, when={"pattern": "none"}),
    )
    pattern: PatternName = Field(
        "none",
        title="Pattern",
        description="N:M keeps N of each M neighbouring weights along the input, as hardware wants it.",
        json_schema_extra=shown("segmented", "main", labels=list(PATTERNS.values()), when={"method": _MASKED}),
    )
    scope: ScopeName = Field(
        "matrix",
        title="Compare within",
        description="Magnitude compares the weights of the whole matrix or of each row; Wanda always those of a row.",
        json_schema_extra=shown(
            "segmented", "compare", labels=list(SCOPES.values()), when={"method": ["random", "magnitude"]}
        ),
    )
    layers: tuple[int, ...] = fields.layers(
        "Layers whose projection is studied, 0 is the first.", MAX_LAYERS, when={"task": "masks"}
    )
    projection: Projection = fields.projection(
        "The weight matrix of those layers that is studied.", when={"task": "masks"}
    )
    prompt: str = prompt("The capital of France is", "Text that both models continue.", when={"task": _SPOKEN})
    chat: bool = chat(when={"task": _SPOKEN})
    max_new_tokens: int = max_new_tokens(32, 256, when={"task": _SPOKEN})
    damping: float = Field(
        0.01,
        title="Damping",
        description="This part of the mean of the Hessian's diagonal is added to it.",
        gt=0.0,
        le=1.0,
        allow_inf_nan=False,
        json_schema_extra=shown("number", "compare", when={"method": "sparsegpt"}),
    )
    compare: Compared = Field(
        "magnitude_wanda",
        title="Curves",
        description="Magnitude and Wanda, or all methods (SparseGPT takes a minute or more a point).",
        json_schema_extra=shown(
            "segmented", "compare", labels=["magnitude and Wanda", "all methods"], when={"task": "curve"}
        ),
    )
    steps: int = Field(
        20,
        title="Steps",
        description="Optimizer steps of the fine-tune, each forward and backward through the whole model; the page "
        "tells what one takes, and can end the training with the best so far.",
        ge=1,
        le=500,
        json_schema_extra=shown("slider", "main", unit="steps", when={"task": "recover"}),
    )
    learning_rate: float = Field(
        5e-5,
        title="Learning rate",
        description="Of AdamW, after a short warm-up.",
        gt=0.0,
        le=0.1,
        allow_inf_nan=False,
        json_schema_extra=shown("number", "compare", when={"task": "recover"}),
    )
    batch_tokens: int = Field(
        256,
        title="Tokens a step",
        description="Of the calibration text, read in order.",
        ge=16,
        le=4096,
        json_schema_extra=shown("number", "compare", unit="tokens", when={"task": "recover"}),
    )
    calibration_tokens: int = fields.calibration_tokens(2048)
    heldout_tokens: int = fields.heldout_tokens()
    text: str = fields.text()
    seed: int = Field(
        0,
        title="Seed",
        description="Draws the random masks, and chooses the rows that the proof computes again.",
        ge=0,
        le=2**32 - 1,
        json_schema_extra=shown("number", "sampling"),
    )
    break_run: BreakRun = Field(
        "nothing",
        title="Break it",
        description="Make a known mistake on purpose and see the proof catch it.",
        json_schema_extra=shown("select", "break", labels=list(MISTAKES.values())),
    )

    @field_validator("layers")
    @classmethod
    def _layers_in_order(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return fields.layers_in_order(value)

    def file_hashes(self) -> dict[str, str]:
        """The sha256 of the user's text."""
        return fields.text_hashes(self.text)

    @classmethod
    def for_model(cls, facts: ModelFacts) -> dict[str, Any]:
        """Narrow layers and projections to the model's own."""
        schema = super().for_model(facts)
        fields.narrow_layers(schema["properties"]["layers"], facts)
        fields.narrow_projection(schema["properties"]["projection"], facts)
        return schema


PRESETS: tuple[Preset, ...] = presets(
    "pruning",
    kept={},
    two_of_four={"pattern": "2:4"},
    curve={"task": "curve"},
    words={"task": "words", "method": "wanda", "prompt": "The largest planet is"},
    savings={"task": "savings", "prompt": "Once upon a time"},
    repair={"task": "recover", "method": "wanda"},
)
