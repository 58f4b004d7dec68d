"""Parameters of the `beam_search` experiment. No torch here."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from lab.experiments import fields
from lab.experiments.base import Preset, presets
from lab.experiments.fields import PromptParams, shown

MAX_BEAMS = 16


class BeamSearchParams(PromptParams):
    """How wide to search, how finished hypotheses are scored, and when to stop. Names are transformers'.

    Diverse beam groups (`num_beam_groups`) are not offered: transformers 5.24 has moved them to code that it fetches
    from a hub and runs, which this project never does, so there is nothing to compare with.
    """

    experiment: ClassVar[str] = "beam_search"

    prompt: str = Field(
        "The three primary colours are",
        title="Prompt",
        description="Text that the model continues.",
        min_length=1,
        max_length=40_000,
        json_schema_extra=shown("text", "main"),
    )
    max_new_tokens: int = Field(
        24,
        title="New tokens",
        description="How many tokens a hypothesis has at most.",
        ge=1,
        le=128,
        json_schema_extra=shown("slider", "main", unit="tokens"),
    )
    num_beams: int = Field(
        4,
        title="Beams",
        description="Partial texts kept after each step. 1 is greedy.",
        ge=1,
        le=MAX_BEAMS,
        json_schema_extra=shown("slider", "main"),
    )
    length_penalty: float = Field(
        1.0,
        title="Length penalty",
        description="A finished text scores its summed log-probability over its length to this power: above 0 longer "
        "texts win more often, below 0 shorter ones, 0 compares the sums.",
        ge=-2.0,
        le=2.0,
        allow_inf_nan=False,
        json_schema_extra=shown("slider", "main", step=0.1),
    )
    early_stopping: Literal["true", "false", "never"] = Field(
        "false",
        title="Stop when",
        description="Pool is full (true): as soon as there are as many finished texts as beams. Unlikely better "
        "(false): they are as many, and no running text would beat the worst of them if it ended as long as it is. "
        "Never better (never): they are as many, and no running text can beat it at any length up to the limit.",
        json_schema_extra=shown("segmented", "main", labels=["pool is full", "unlikely better", "never better"]),
    )
    end_token_ids: tuple[int, ...] = Field(
        (),
        title="End tokens",
        description="Token ids that end a text; none named: the model's own.",
        max_length=8,
        json_schema_extra=shown("layers", "sampling"),
    )
    min_new_tokens: int = Field(
        0,
        title="At least",
        description="No text ends before so many new tokens.",
        ge=0,
        le=128,
        json_schema_extra=shown("number", "sampling", unit="tokens"),
    )
    repetition_penalty: float = fields.repetition_penalty(
        "Log-probabilities of tokens that occurred are multiplied by it: above 1 they get rarer."
    )
    no_repeat_ngram_size: int = fields.no_repeat_ngram_size("No run of so many tokens occurs twice; 0 allows all.")
    sampled_path: bool = Field(
        True,
        title="One sampled path",
        description="Also draw one text from the same distributions, to lay over the tree.",
        json_schema_extra=shown("toggle", "compare"),
    )
    temperature: float = Field(
        1.0,
        title="Temperature",
        description="Of the sampled path: below 1 sharper, above 1 flatter.",
        ge=0.05,
        le=5.0,
        allow_inf_nan=False,
        json_schema_extra=shown("slider", "compare", step=0.05, when={"sampled_path": True}),
    )
    seed: int = Field(
        0,
        title="Seed",
        description="Of the sampled path.",
        ge=0,
        le=2**32 - 1,
        json_schema_extra=shown("number", "compare", when={"sampled_path": True}),
    )
    break_run: Literal["nothing", "cache_not_reordered", "count_prompt_in_length", "drop_end_token"] = Field(
        "nothing",
        title="Break it",
        description="Make a known mistake on purpose and see the proof catch it.",
        json_schema_extra=shown(
            "select",
            "break",
            labels=[
                "nothing",
                "leave the cache's rows as they were",
                "count the prompt in the length",
                "leave the end token out of the score",
            ],
        ),
    )


FULL_STOP_OR_LINE = (2, 30, 198)
"""SmolLM2's end token, full stop and line break. Other models have other numbers for them."""

# Each was chosen by running SmolLM2-135M-Instruct in fp32; figures are scores (the mean log-probability of a token).
PRESETS: tuple[Preset, ...] = presets(
    "beam_search",
    # 4 beams: " red, orange, and yellow." -0.78 (sum -5.5); greedy: a longer text of -0.88 (sum -13.2).
    beats_greedy={"end_token_ids": FULL_STOP_OR_LINE},
    # "She's the best." over and over, -0.52, against greedy's -0.78: likelier, and worse.
    duller={"prompt": "I love", "num_beams": 8, "max_new_tokens": 40},
    no_repeat={"prompt": "I love", "num_beams": 8, "max_new_tokens": 40, "no_repeat_ngram_size": 3},
    # With 1 the answer is "The capital of France is Paris."; with 2 it is a lecture that does not end.
    length={
        "prompt": "What is the capital of France?",
        "chat": True,
        "max_new_tokens": 32,
        "length_penalty": 2.0,
    },
    # "pool is full" stops after 4 steps, "unlikely better" after 5, "never better" goes to the end and finds another.
    stopping={
        "prompt": "My favourite animal is",
        "end_token_ids": (2, 28, 30, 198),
        "early_stopping": "true",
    },
)
