"""Parameters that several decoding experiments share. No torch here."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from lab.errors import BadInput
from lab.events import ModelFacts
from lab.experiments.base import ExperimentParams, Named

MAX_NEW_TOKENS = 512
MAX_PROMPT_CHARACTERS = 40_000


def shown(hint: str, group: str, **more: Any) -> dict[str, Any]:
    """How a field is shown: its hint, its group, and optionally `unit`, `labels`, `step` and `when`."""
    return {"hint": hint, "group": group, **more}


def names(kind: Named, *always: str) -> dict[str, Any]:
    """Says that a text names something on the machine that runs; `always`: values that name nothing there.

    For `json_schema_extra`, alone or with `shown`. A hosted lab refuses what its operator did not offer.
    """
    return {"names": kind, "always": list(always)}


def repetition_penalty(description: str) -> Any:
    """The field `repetition_penalty`; what it does to which numbers is the experiment's own to say."""
    return Field(
        1.0,
        title="Repetition penalty",
        description=description,
        ge=0.5,
        le=3.0,
        allow_inf_nan=False,
        json_schema_extra=shown("slider", "sampling", step=0.05),
    )


def no_repeat_ngram_size(description: str) -> Any:
    """The field `no_repeat_ngram_size`."""
    return Field(
        0,
        title="No repeated n-gram of",
        description=description,
        ge=0,
        le=16,
        json_schema_extra=shown("number", "sampling", unit="tokens"),
    )


def prompt(default: str, description: str = "Text that the model continues.", **more: Any) -> Any:
    """The field `prompt`; `more` is for `shown`, such as `when`."""
    return Field(
        default,
        title="Prompt",
        description=description,
        min_length=1,
        max_length=MAX_PROMPT_CHARACTERS,
        json_schema_extra=shown("text", "main", **more),
    )


def chat(**more: Any) -> Any:
    """The field `chat`; `more` is for `shown`."""
    return Field(
        False,
        title="Ask as a chat",
        description="Put the model's chat template around the prompt.",
        json_schema_extra=shown("toggle", "main", **more),
    )


def max_new_tokens(default: int, most: int = MAX_NEW_TOKENS, **more: Any) -> Any:
    """The field `max_new_tokens`; `more` is for `shown`."""
    return Field(
        default,
        title="New tokens",
        description="How many tokens to generate at most.",
        ge=1,
        le=most,
        json_schema_extra=shown("slider", "main", unit="tokens", **more),
    )


class PromptParams(ExperimentParams):
    """What to continue, and how far."""

    prompt: str = prompt("The cache remembers what the model has already read, so each")
    chat: bool = chat()
    max_new_tokens: int = max_new_tokens(48)

    @classmethod
    def for_model(cls, facts: ModelFacts) -> dict[str, Any]:
        """Narrow the tokens to the model's context, and chat to models that have a template."""
        schema = super().for_model(facts)
        fields = schema["properties"]
        if facts.context:
            fields["max_new_tokens"]["maximum"] = min(fields["max_new_tokens"]["maximum"], facts.context)
        if not facts.chat_template:
            fields["chat"]["disabled"] = f"{facts.name} has no chat template."
        return schema

    def check_prompt(self, facts: ModelFacts) -> None:
        """Refuse what this model cannot do with any prompt.

        Raises:
            BadInput: chat without a template, or more new tokens than its context holds.
        """
        if self.chat and not facts.chat_template:
            raise BadInput(
                f"{facts.name} has no chat template, so it cannot be asked as a chat.", remedy="Switch chat off."
            )
        if facts.context and self.max_new_tokens >= facts.context:
            raise BadInput(
                f"{self.max_new_tokens:,} new tokens and a prompt pass {facts.name}'s context of {facts.context:,}.",
                remedy=f"Ask for at most {facts.context - 1:,}.",
            )


class SamplingParams(PromptParams):
    """And how each token is chosen."""

    do_sample: bool = Field(
        False,
        title="Sampling",
        description="Draw each token from the distribution instead of taking the most probable.",
        json_schema_extra=shown("segmented", "main", labels=["greedy", "sample"]),
    )
    temperature: float = Field(
        1.0,
        title="Temperature",
        description="Logits are divided by it: below 1 sharper, above 1 flatter.",
        ge=0.05,
        le=5.0,
        allow_inf_nan=False,
        json_schema_extra=shown("slider", "sampling", step=0.05, when={"do_sample": True}),
    )
    top_k: int = Field(
        50,
        title="Top-k",
        description="Draw from the k most probable tokens only; 0 draws from all.",
        ge=0,
        le=1000,
        json_schema_extra=shown("number", "sampling", when={"do_sample": True}),
    )
    top_p: float = Field(
        1.0,
        title="Top-p",
        description="Draw from the fewest tokens whose probabilities sum to p; 1 draws from all.",
        gt=0.0,
        le=1.0,
        allow_inf_nan=False,
        json_schema_extra=shown("slider", "sampling", step=0.01, when={"do_sample": True}),
    )
    seed: int = Field(
        0,
        title="Seed",
        description="The same seed draws the same tokens.",
        ge=0,
        le=2**32 - 1,
        json_schema_extra=shown("number", "sampling", when={"do_sample": True}),
    )
