"""Parameters of the `quantization` experiment. No torch here."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, field_validator

from lab.events import ModelFacts
from lab.experiments import fields
from lab.experiments.base import Preset, presets
from lab.experiments.compared import fields as compared
from lab.experiments.compared.fields import missing_projections as missing_projections
from lab.experiments.fields import PromptParams, shown
from lab.experiments.quantization.choices import (
    ACTIVATIONS,
    CACHE_BITS,
    CALIBRATED,
    CLIPS,
    GRIDDED,
    GROUP_SIZES,
    KINDS,
    METHODS,
    MISTAKES,
    TASKS,
    Activations,
    BreakRun,
    CacheBits,
    Clip,
    GroupSize,
    KindName,
    MethodName,
    Methods,
    Projection,
    ScaleName,
    Task,
    why_not,
)
from lab.experiments.quantization.mixed import read_layer_bits

MAX_LAYERS = 4
"""Layers that the task "layer" studies at a time."""
_SIMULATED = ["layer", "map", "pareto", "words"]
_MODEL = ["map", "pareto", "words"]
_SPOKEN = ["words", "packed"]


class QuantizationParams(PromptParams):
    """What to quantize, how, and what to look at."""

    experiment: ClassVar[str] = "quantization"
    first: ClassVar[tuple[str, ...]] = (
        "task",
        "method",
        "bits",
        "group_size",
        "kind",
        "layers",
        "projection",
        "prompt",
    )

    task: Task = Field(
        "layer",
        title="Do",
        description="Study the errors of one projection; map all of them and try each layer alone; set bits per weight "
        "against what is lost; set words beside words; or run packed kernels beside the dense model.",
        json_schema_extra=shown("select", "main", labels=list(TASKS.values())),
    )
    method: MethodName = Field(
        "nearest",
        title="Method",
        description="How codes are chosen.",
        json_schema_extra=shown("select", "main", labels=list(METHODS.values()), when={"task": _SIMULATED}),
    )
    bits: int = Field(
        4,
        title="Bits of a code",
        description="Levels are 2 to this power, or one fewer where they are symmetric.",
        ge=2,
        le=8,
        json_schema_extra=shown("slider", "main", unit="bits", when={"task": _SIMULATED, "method": list(GRIDDED)}),
    )
    group_size: GroupSize = Field(
        "64",
        title="Group size",
        description="Neighbouring weights of a row that share a scale; 'row' and 'tensor' share one among all of them; "
        "with '+rest' the last group of a row may be smaller.",
        json_schema_extra=shown("select", "main", labels=list(GROUP_SIZES), when={"method": list(GRIDDED)}),
    )
    kind: KindName = Field(
        "absmax",
        title="Levels",
        description="Where the levels lie between the ends of a group.",
        json_schema_extra=shown(
            "select", "main", labels=list(KINDS.values()), when={"task": _SIMULATED, "method": list(GRIDDED)}
        ),
    )
    layers: tuple[int, ...] = compared.layers(
        "Layers whose projection is studied, 0 is the first.", MAX_LAYERS, when={"task": "layer"}
    )
    projection: Projection = compared.projection(
        "The weight matrix of those layers that is studied.", when={"task": "layer"}
    )
    prompt: str = fields.prompt("The capital of France is", "Text that both models continue.", when={"task": _SPOKEN})
    chat: bool = fields.chat(when={"task": _SPOKEN})
    max_new_tokens: int = fields.max_new_tokens(40, 256, when={"task": _SPOKEN})
    scale_format: ScaleName = Field(
        "float16",
        title="Scales stored as",
        description="Scales and minima are rounded to it before codes are made.",
        json_schema_extra=shown("segmented", "compare", when={"task": _SIMULATED, "method": list(GRIDDED)}),
    )
    clip: Clip = Field(
        "none",
        title="Clipping",
        description="Leave the largest weights of a group out of its range, so that the others get finer levels.",
        json_schema_extra=shown(
            "select", "compare", labels=list(CLIPS.values()), when={"task": _SIMULATED, "method": "nearest"}
        ),
    )
    clip_ratio: float = Field(
        0.9,
        title="Clip to",
        description="This part of a group's range is kept.",
        ge=0.3,
        le=1.0,
        allow_inf_nan=False,
        json_schema_extra=shown("slider", "compare", step=0.01, when={"clip": "ratio"}),
    )
    clip_percentile: float = Field(
        99.5,
        title="Percentile",
        description="So many per cent of a group's weights stay inside its range.",
        ge=80.0,
        le=100.0,
        allow_inf_nan=False,
        json_schema_extra=shown("slider", "compare", step=0.1, when={"clip": "percentile"}),
    )
    act_order: bool = Field(
        True,
        title="Activation order",
        description="GPTQ takes the columns with the largest inputs first.",
        json_schema_extra=shown("toggle", "compare", when={"task": _SIMULATED, "method": "gptq"}),
    )
    static_groups: bool = Field(
        True,
        title="Static groups",
        description="Scales are fixed before columns are reordered, so that groups stay neighbours.",
        json_schema_extra=shown("toggle", "compare", when={"task": _SIMULATED, "method": "gptq"}),
    )
    damping: float = Field(
        0.01,
        title="Damping",
        description="This part of the mean of the Hessian's diagonal is added to it.",
        gt=0.0,
        le=1.0,
        allow_inf_nan=False,
        json_schema_extra=shown("number", "compare", when={"task": _SIMULATED, "method": "gptq"}),
    )
    awq_clip: bool = Field(
        True,
        title="Search clipping too",
        description="After the scales AWQ looks for the clipping of the least output error; not for queries and keys.",
        json_schema_extra=shown("toggle", "compare", when={"task": _SIMULATED, "method": "awq"}),
    )
    double_quant: bool = Field(
        False,
        title="Double quantization",
        description="NF4's scales are quantized themselves, to 8 bits.",
        json_schema_extra=shown("toggle", "compare", when={"task": _SIMULATED, "method": "nf4"}),
    )
    threshold: float = Field(
        6.0,
        title="Outlier threshold",
        description="Input channels that reach it stay in floating point; 0 keeps none apart.",
        ge=0.0,
        le=100.0,
        allow_inf_nan=False,
        json_schema_extra=shown("slider", "compare", step=0.5, when={"task": _SIMULATED, "method": "llm_int8"}),
    )
    layer_bits: str = Field(
        "",
        title="Bits by layer",
        description="Mixed precision by hand, layers and their bits, as in '0:8, 10-19:3, 29:16'; 16 stays dense.",
        max_length=400,
        json_schema_extra=shown("text", "compare", when={"task": _MODEL, "method": list(GRIDDED)}),
    )
    methods: Methods = Field(
        "nearest",
        title="Compare",
        description="Settings of the plot: rounding to nearest alone, or GPTQ, AWQ and NF4 as well (minutes).",
        json_schema_extra=shown(
            "segmented", "compare", labels=["round to nearest", "all methods"], when={"task": "pareto"}
        ),
    )
    activations: Activations = Field(
        "none",
        title="Activations",
        description="Quantize the inputs of each projection too.",
        json_schema_extra=shown(
            "select", "compare", labels=list(ACTIVATIONS.values()), when={"task": ["layer", "words"]}
        ),
    )
    activation_bits: int = Field(
        8,
        title="Bits of an activation",
        description="Levels of a quantized input.",
        ge=2,
        le=8,
        json_schema_extra=shown("slider", "compare", unit="bits", when={"task": ["layer", "words"]}),
    )
    cache_bits: CacheBits = Field(
        "none",
        title="Key/value cache",
        description="Quantize keys per channel and values per token.",
        json_schema_extra=shown("segmented", "compare", labels=list(CACHE_BITS.values()), when={"task": "words"}),
    )
    residual: int = Field(
        0,
        title="Kept dense",
        description="So many newest positions of the cache are never codes; the others become codes in groups of 16.",
        ge=0,
        le=512,
        json_schema_extra=shown(
            "slider", "compare", unit="positions", when={"task": "words", "cache_bits": ["8", "4", "2"]}
        ),
    )
    calibration_tokens: int = compared.calibration_tokens(when={"task": _SIMULATED})
    heldout_tokens: int = compared.heldout_tokens(when={"task": _SIMULATED})
    text: str = compared.text(when={"task": _SIMULATED})
    seed: int = Field(
        0,
        title="Seed",
        description="Chooses the groups that the proof computes again.",
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

    _layers_in_order = field_validator("layers")(compared.layers_in_order)

    @field_validator("layer_bits")
    @classmethod
    def _layer_bits_can_be_read(cls, value: str) -> str:
        read_layer_bits(value)
        return value

    @property
    def bits_of_layer(self) -> dict[int, int]:
        """Bits of the layers that were given their own; 16: dense."""
        return read_layer_bits(self.layer_bits)

    @property
    def needs_calibration(self) -> bool:
        """Whether the method or something beside it learns from calibration text."""
        static = self.activations.startswith("static")
        return self.method in CALIBRATED or static or (self.method == "nearest" and self.clip == "least_output_error")

    @property
    def reads_text(self) -> bool:
        """Whether the task reads calibration or held-out text."""
        return self.task in ("layer", "map", "pareto") or (self.task == "words" and self.needs_calibration)

    def file_hashes(self) -> dict[str, str]:
        """Of the user's text, where the task reads it."""
        return compared.text_hashes(self.text) if self.reads_text else {}

    @classmethod
    def for_model(cls, facts: ModelFacts) -> dict[str, Any]:
        """Narrow layers, projections and group sizes to the model's own.

        `group_size` and `projection` have `disabled_options`: for each one that cannot be, the reason in words.
        """
        schema = super().for_model(facts)
        properties = schema["properties"]
        compared.narrow_layers(properties["layers"], facts)
        compared.narrow_projection(properties["projection"], facts)
        reasons = {size: why for size in GROUP_SIZES if (why := why_not(size, facts.hidden))}
        properties["group_size"]["disabled_options"] = reasons
        if "64" in reasons:
            properties["group_size"]["default"] = next((s for s in ("32", "16") if s not in reasons), "row")
        return schema


PRESETS: tuple[Preset, ...] = presets(
    "quantization",
    smaller_group={},
    no_error={"kind": "float_minimum", "group_size": "32"},
    repair={"method": "gptq", "bits": 3, "projection": "o_proj", "layers": (14,)},
    map={"task": "map", "bits": 3},
    words={
        "task": "words",
        "bits": 3,
        "group_size": "32",
        "prompt": "The largest planet is",
        "max_new_tokens": 32,
    },
    packed={"task": "packed", "prompt": "Once upon a time", "group_size": "32"},
)
