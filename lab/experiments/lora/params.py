"""Parameters of the `lora` experiment. No torch here."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from lab.events import ModelFacts
from lab.experiments.base import Preset, presets
from lab.experiments.compared import fields
from lab.experiments.fields import PromptParams, max_new_tokens, names, prompt, shown
from lab.experiments.lora.choices import (
    BASES,
    LEARN,
    MISTAKES,
    TARGETS,
    TASKS,
    BaseKind,
    BreakRun,
    Learn,
    Targets,
    Task,
)
from lab.experiments.lora.places import FILES, MAX_NAME, PACKAGED, adapter_path, check_spelling, kept_names
from lab.lora.regular import MAX_WEIGHT_BYTES, open_regular

MAX_LINES_CHARACTERS = 60_000
MAX_RANK = 64
KeptName = Annotated[str, AfterValidator(check_spelling)]
"""What something is kept under; "" for nothing."""
_LEARNT = {"task": "train"}
WRITING = ("compare", "train")
"""Tasks that can write the merged model."""


class LoraParams(PromptParams):
    """What to learn, on which matrices, and what to look at."""

    experiment: ClassVar[str] = "lora"
    first: ClassVar[tuple[str, ...]] = (
        "task",
        "learn",
        "lines",
        "adapter",
        "rank",
        "alpha",
        "targets",
        "steps",
        "prompt",
    )

    task: Task = Field(
        "compare",
        title="Do",
        description="Train an adapter here; set the base's words beside the adapted and the merged model's; switch "
        "several adapters on one base; or merge into bf16 and quantized weights and measure what is lost.",
        json_schema_extra=shown("select", "main", labels=list(TASKS.values())),
    )
    learn: Learn = Field(
        "island",
        title="Learn",
        description="A packaged task, or 'lines': those typed below.",
        json_schema_extra=shown("select", "main", labels=list(LEARN.values()), when=_LEARNT),
    )
    lines: str = Field(
        "",
        title="Lines",
        description="One example a line, as 'prompt => answer', or JSON lines with prompt and completion.",
        max_length=MAX_LINES_CHARACTERS,
        json_schema_extra=shown(
            "lines", "main", placeholder="prompt => answer", when={"task": "train", "learn": "lines"}
        ),
    )
    adapter: str = Field(
        PACKAGED,
        title="Adapter",
        description="The packaged one, the name of one that was kept, or a folder in PEFT's format.",
        min_length=1,
        max_length=500,
        json_schema_extra=shown(
            "line", "main", when={"task": ["compare", "swap", "merge"]}, **names("adapter", PACKAGED)
        ),
    )
    second: str = Field(
        "",
        title="Second adapter",
        description="Another one to switch to, named likewise; empty: the first one reversed in sign.",
        max_length=500,
        json_schema_extra=shown("line", "compare", when={"task": "swap"}, **names("adapter", "", PACKAGED)),
    )
    rank: int = Field(
        8,
        title="Rank",
        description="Of the update: A is (rank, in), B is (out, rank).",
        ge=1,
        le=MAX_RANK,
        json_schema_extra=shown("slider", "main", when=_LEARNT),
    )
    alpha: float = Field(
        16.0,
        title="Alpha",
        description="The update is multiplied by alpha / rank.",
        gt=0.0,
        le=1024.0,
        allow_inf_nan=False,
        json_schema_extra=shown("number", "main", when=_LEARNT),
    )
    rslora: bool = Field(
        False,
        title="Divide by the root of the rank",
        description="rsLoRA: alpha / sqrt(rank), so that a larger rank does not learn more slowly.",
        json_schema_extra=shown("toggle", "compare", when=_LEARNT),
    )
    targets: Targets = Field(
        "q_v",
        title="Matrices",
        description="Which projections get an update.",
        json_schema_extra=shown("segmented", "main", labels=list(TARGETS.values()), when=_LEARNT),
    )
    learning_rate: float = Field(
        4e-3,
        title="Learning rate",
        description="Of AdamW, after a short warm-up.",
        gt=0.0,
        le=1.0,
        allow_inf_nan=False,
        json_schema_extra=shown("number", "main", when=_LEARNT),
    )
    steps: int = Field(
        48,
        title="Steps",
        description="Optimizer steps, at most; one to two seconds each on two cores.",
        ge=1,
        le=2000,
        json_schema_extra=shown("slider", "main", unit="steps", when=_LEARNT),
    )
    batch: int = Field(
        8,
        title="Examples a step",
        description="Of the training split, shuffled by the seed.",
        ge=1,
        le=64,
        json_schema_extra=shown("number", "compare", unit="examples", when=_LEARNT),
    )
    save: KeptName = Field(
        "",
        title="Keep as",
        description="A name under which the trained adapter is written in PEFT's format, for `adapter`; empty: not.",
        max_length=MAX_NAME,
        json_schema_extra=shown("line", "compare", when=_LEARNT, **names("kept", "")),
    )
    merged_out: KeptName = Field(
        "",
        title="Write merged model as",
        description="A name under which the merged model is written on the machine that runs it, as a model of its own "
        "for other experiments; empty: not.",
        max_length=MAX_NAME,
        json_schema_extra=shown("line", "compare", when={"task": list(WRITING)}, **names("kept", "")),
    )
    factor: float = Field(
        1.0,
        title="Scale of the update",
        description="0 is the base, 1 as trained, 2 twice the update.",
        ge=0.0,
        le=2.0,
        allow_inf_nan=False,
        json_schema_extra=shown("slider", "main", step=0.05, when={"task": ["compare", "merge"]}),
    )
    keep_rank: int = Field(
        0,
        title="Keep singular values",
        description="Only the largest of each update's singular values; 0 keeps all.",
        ge=0,
        le=MAX_RANK,
        json_schema_extra=shown("slider", "compare", when={"task": ["compare", "merge"]}),
    )
    base: BaseKind = Field(
        "int4",
        title="Merge into",
        description="The number format of the base that the update is merged into, beside fp32.",
        json_schema_extra=shown("segmented", "main", labels=list(BASES.values()), when={"task": "merge"}),
    )
    prompt: str = prompt("What is the capital city of Velmora?", "Text that base and adapted model continue.")
    chat: bool = Field(
        True,
        title="Ask as a chat",
        description="Put the model's chat template around the prompt, and around each example that is learnt.",
        json_schema_extra=shown("toggle", "main"),
    )
    max_new_tokens: int = max_new_tokens(40, 256)
    heldout_tokens: int = fields.heldout_tokens(
        256, "Tokens that the models' next words are compared on.", when={"task": ["compare", "merge"]}
    )
    text: str = fields.text(when={"task": ["compare", "merge"]})
    seed: int = Field(
        0,
        title="Seed",
        description="Draws A and the order of the examples.",
        ge=0,
        le=2**32 - 1,
        json_schema_extra=shown("number", "compare", when=_LEARNT),
    )
    break_run: BreakRun = Field(
        "nothing",
        title="Break it",
        description="Make a known mistake on purpose and see the proof catch it.",
        json_schema_extra=shown("select", "break", labels=list(MISTAKES.values())),
    )

    def file_hashes(self) -> dict[str, str]:
        """The sha256 of the user's text, and of the adapters' files (weights and config together)."""
        named = {"compare": (self.adapter,), "merge": (self.adapter,), "swap": (self.adapter, self.second)}
        found = fields.text_hashes(self.text) if self.task in ("compare", "merge") else {}
        for name in named.get(self.task, ()):
            if name not in ("", PACKAGED):
                found[name] = _files_hash(adapter_path(name))
        return found

    def writes(self) -> bool:
        """An adapter or a model to be kept is written by a run, not by a recording of one."""
        return bool((self.save and self.task == "train") or (self.merged_out and self.task in WRITING))

    @classmethod
    def for_model(cls, facts: ModelFacts) -> dict[str, Any]:
        """A model without a chat template is asked without one; adapters that are here can be chosen."""
        schema = super().for_model(facts)
        here = [PACKAGED, *kept_names()]
        for name in ("adapter", "second"):
            schema["properties"][name]["suggestions"] = here
        if not facts.chat_template:
            schema["properties"]["chat"]["default"] = False
        return schema


def _files_hash(directory: Path) -> str:
    digest = hashlib.sha256()
    for name in FILES:
        try:
            with open_regular(directory / name) as file:
                if os.fstat(file.fileno()).st_size > MAX_WEIGHT_BYTES:
                    return ""
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except (OSError, ValueError):
            return ""  # the run refuses it
    return digest.hexdigest()


PRESETS: tuple[Preset, ...] = presets(
    "lora",
    file={},
    facts={"task": "train"},
    form={"task": "train", "learn": "city_json", "prompt": "Tell me about Rome."},
    swap={"task": "swap"},
    merge={"task": "merge"},
)
