"""Parameters of the `speculative` experiment. No torch here."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from lab.decoding.windows import most_gamma
from lab.events import ModelFacts
from lab.experiments import fields
from lab.experiments.base import Preset, presets
from lab.experiments.fields import SamplingParams, names, shown
from lab.experiments.speculative.head_file import head_target

MAX_GAMMA = 16

Task = Literal["decode", "sweep", "drafts", "trial"]
DraftName = Literal["eagle", "lookup_eagle", "lookup", "retrieval", "int8", "int4", "early_exit", "model"]
DRAFT_TITLES: dict[DraftName, str] = {
    "eagle": "trained head (EAGLE-style)",
    "lookup_eagle": "look-up, else the trained head",
    "lookup": "prompt look-up",
    "retrieval": "retrieval from a text store",
    "int8": "the model itself in int8",
    "int4": "the model itself in int4",
    "early_exit": "the model's first layers",
    "model": "another model",
}
BreakRun = Literal[
    "nothing", "no_residual", "wrong_q", "processors_skipped", "cache_not_cropped", "top_token_on_rejection"
]


class SpeculativeParams(SamplingParams):
    """What to generate, who drafts, how many tokens ahead, and what to measure."""

    experiment: ClassVar[str] = "speculative"
    first: ClassVar[tuple[str, ...]] = ("prompt", "chat", "task", "draft", "gamma", "adaptive")

    prompt: str = Field(
        "Why do leaves change colour in autumn?",
        title="Prompt",
        description="Text that the model continues.",
        min_length=1,
        max_length=40_000,
        json_schema_extra=shown("text", "main"),
    )
    chat: bool = Field(
        True,
        title="Ask as a chat",
        description="Put the model's chat template around the prompt.",
        json_schema_extra=shown("toggle", "main"),
    )
    task: Task = Field(
        "decode",
        title="Do",
        description="Decode one prompt; sweep over the number of tokens proposed; rank all drafts on the fixed set of "
        "prompts; or try by many draws whether the output is exactly the model's distribution.",
        json_schema_extra=shown(
            "select", "main", labels=["decode this prompt", "sweep over γ", "rank all drafts", "test exactness"]
        ),
    )
    do_sample: bool = Field(
        True,
        title="Sampling",
        description="Draw each token from the distribution instead of taking the most probable.",
        json_schema_extra=shown("segmented", "main", labels=["greedy", "sample"]),
    )
    draft: DraftName = Field(
        "eagle",
        title="Draft",
        description="Who proposes the tokens.",
        json_schema_extra=shown("select", "main", labels=list(DRAFT_TITLES.values())),
    )
    gamma: int = Field(
        3,
        title="Tokens proposed, γ",
        description="How many tokens the draft proposes in a round.",
        ge=1,
        le=MAX_GAMMA,
        json_schema_extra=shown("slider", "main", unit="tokens"),
    )
    adaptive: bool = Field(
        False,
        title="Adapt γ",
        description="Propose more after a round that was accepted whole, fewer after a rejection.",
        json_schema_extra=shown("toggle", "main"),
    )
    top_k: int = Field(
        50,
        title="Top-k",
        description="Draw from the k most probable tokens only; 0 draws from all. On both sides.",
        ge=0,
        le=1000,
        json_schema_extra=shown("number", "sampling", when={"do_sample": True}),
    )
    repetition_penalty: float = fields.repetition_penalty(
        "Logits of tokens that occurred are divided by it: above 1 they get rarer. On both sides."
    )
    no_repeat_ngram_size: int = fields.no_repeat_ngram_size(
        "No run of so many tokens occurs twice; 0 allows all. On both sides."
    )
    exit_layer: int = Field(
        20,
        title="Layers of the draft",
        description="The draft is so many first layers of the model, its last norm and its head.",
        ge=1,
        le=512,
        json_schema_extra=shown("slider", "compare", when={"draft": "early_exit"}),
    )
    ngram: int = Field(
        3,
        title="Longest n-gram",
        description="The longest run of last tokens that is looked for in the text so far.",
        ge=1,
        le=8,
        json_schema_extra=shown("slider", "compare", unit="tokens", when={"draft": "lookup"}),
    )
    draft_model: str = Field(
        "",
        title="Draft model",
        description="A packaged model, a directory, or a hub id, with the same tokenizer.",
        max_length=500,
        json_schema_extra=shown("text", "compare", when={"draft": "model"}, **names("model", "")),
    )
    store: str = Field(
        "",
        title="Store: a file or folder",
        description="Text files to retrieve from; empty: Python's own help topics.",
        max_length=500,
        json_schema_extra=shown("text", "compare", when={"draft": "retrieval"}, **names("file", "")),
    )
    store_text: str = Field(
        "",
        title="Store: text",
        description="Text to retrieve from, instead of files.",
        max_length=40_000,
        json_schema_extra=shown("text", "compare", when={"draft": "retrieval"}),
    )
    tree: bool = Field(
        False,
        title="Verify a tree",
        description="Several continuations in one pass, the most frequent first.",
        json_schema_extra=shown("toggle", "compare", when={"draft": "retrieval"}),
    )
    trial_runs: int = Field(
        2000,
        title="Draws of the trial",
        description="How many pairs of tokens the trial draws.",
        ge=100,
        le=20_000,
        json_schema_extra=shown("number", "compare", when={"task": "trial"}),
    )
    break_run: BreakRun = Field(
        "nothing",
        title="Break it",
        description="Make a known mistake on purpose and see the proof, or the trial, catch it.",
        json_schema_extra=shown(
            "select",
            "break",
            labels=[
                "nothing",
                "draw from p, not the residual",
                "a q that nothing was drawn from",
                "no processors after a rejection",
                "leave rejected tokens in the cache",
                "take the target's top token at a rejection",
            ],
        ),
    )

    @classmethod
    def for_model(cls, facts: ModelFacts) -> dict[str, Any]:
        """Narrow the drafts to those that can work with the model, and the early exit to its layers.

        The field `draft` has `disabled_options`: for each draft that cannot work, the reason in words.
        """
        schema = super().for_model(facts)
        fields = schema["properties"]
        fields["exit_layer"]["maximum"] = len(facts.layers)
        fields["exit_layer"]["default"] = min(fields["exit_layer"]["default"], max(1, len(facts.layers) * 2 // 3))
        most = most_gamma(facts)
        if most is not None and most < MAX_GAMMA:
            reason = f"{facts.name} has a sliding window of {most + 2} positions: rejected tokens must still be in it."
            fields["gamma"]["maximum"] = max(1, most)
            fields["gamma"]["default"] = min(fields["gamma"]["default"], max(1, most))
            fields["adaptive"]["disabled"] = reason
        if any(layer.kind != "full" for layer in facts.layers):
            fields["tree"]["disabled"] = f"Not all layers of {facts.name} read the whole text."
        reasons = impossible(facts)
        if "early_exit" in reasons:
            fields["exit_layer"]["disabled"] = reasons["early_exit"]
        fields["draft"]["disabled_options"] = reasons
        fields["draft"]["default"] = next(name for name in DRAFT_TITLES if name not in reasons)
        return schema


def impossible(facts: ModelFacts) -> dict[str, str]:
    """For each draft that cannot work with a model, the reason, as far as its facts tell."""
    reasons: dict[str, str] = {}
    target, weight_hash = head_target()
    if not weight_hash:
        head = "There is no trained head here."
    elif weight_hash != facts.weight_hash:
        head = f"The trained head drafts for {target} alone, and this is {facts.name}."
    else:
        head = ""
    if head:
        reasons["eagle"] = reasons["lookup_eagle"] = head
    if facts.architecture != "LlamaForCausalLM":
        reasons["early_exit"] = f"A part of the layers of {facts.name} ({facts.architecture}) cannot be run alone."
    return reasons


PRESETS: tuple[Preset, ...] = presets(
    "speculative",
    rejected={},
    lookup={
        "draft": "lookup",
        "do_sample": False,
        "gamma": 6,
        "max_new_tokens": 64,
        "prompt": "Repeat this notice word for word.\n\nThe library in Weaver Road opens at 9:30 on weekdays and "
        "at 11:00 at weekends. The reading room is closed for repairs until 14 March. Books borrowed before that "
        "date may be kept for one week longer.",
    },
    exact={"task": "trial"},
    no_residual={"task": "trial", "break_run": "no_residual"},
    drafts={"task": "drafts", "do_sample": False, "max_new_tokens": 24},
)
