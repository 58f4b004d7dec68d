"""Parameters of the `kv_cache` experiment. No torch here."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from lab.events import ModelFacts
from lab.experiments.base import Preset, presets
from lab.experiments.fields import MAX_NEW_TOKENS, SamplingParams, shown

BreakRun = Literal["nothing", "repeat_last_prompt_token", "shift_positions", "drop_layer_cache"]


class KVCacheParams(SamplingParams):
    """What to generate, how to choose tokens, what to compare and what to break."""

    experiment: ClassVar[str] = "kv_cache"

    without_cache_tokens: int = Field(
        64,
        title="Also without the cache",
        description="How many of the new tokens to make a second time with nothing remembered; 0 for none.",
        ge=0,
        le=MAX_NEW_TOKENS,
        json_schema_extra=shown("slider", "compare", unit="tokens"),
    )
    trace_layers: tuple[int, ...] = Field(
        (),
        title="Attention of layers",
        description="Layers whose attention is recorded, 0 is the first; none named: four spread over the model. "
        "Others can be asked for afterwards.",
        max_length=8,
        json_schema_extra=shown("layers", "compare"),
    )
    break_run: BreakRun = Field(
        "nothing",
        title="Break it",
        description="Make a known mistake on purpose and see the proof catch it.",
        json_schema_extra=shown(
            "select",
            "break",
            labels=[
                "nothing",
                "feed the last prompt token twice",
                "shift the positions by one",
                "drop one layer's cache",
            ],
        ),
    )

    @field_validator("trace_layers")
    @classmethod
    def _layers_in_order(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(layer < 0 for layer in value):
            raise ValueError("layers are counted from 0")
        return tuple(sorted(set(value)))

    @classmethod
    def for_model(cls, facts: ModelFacts) -> dict[str, Any]:
        """Narrow layers to the model's own, the tokens to its context, and chat to models that have a template."""
        schema = super().for_model(facts)
        fields = schema["properties"]
        fields["trace_layers"]["items"]["minimum"] = 0
        fields["trace_layers"]["items"]["maximum"] = len(facts.layers) - 1
        fields["without_cache_tokens"]["maximum"] = min(MAX_NEW_TOKENS, facts.context or MAX_NEW_TOKENS)
        return schema


def default_layers(layers: int) -> tuple[int, ...]:
    """Up to four layers spread over the model: the first, the last and two between."""
    return tuple(sorted({round(i * (layers - 1) / 3) for i in range(4)}))


PRESETS: tuple[Preset, ...] = presets(
    "kv_cache",
    first_token={
        "prompt": "Once upon a time, in a small harbour town, there lived a keeper of the lighthouse who wrote "
        "down every ship that passed. The first ship of the year was",
        "max_new_tokens": 40,
    },
    chat={"prompt": "Explain in two sentences why the sky is blue.", "chat": True, "max_new_tokens": 48},
    sampling={"do_sample": True, "temperature": 0.8, "top_p": 0.95, "seed": 7},
    characters={"prompt": "日本語 and 🙂 are", "max_new_tokens": 32},
    forgets={"break_run": "drop_layer_cache", "max_new_tokens": 32},
)
