"""Questions to the `lora` experiment: the scale of the update, fewer ranks, counts, the example, what can be learnt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from time import perf_counter
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from lab.errors import BadInput, NotFound, Unavailable
from lab.events import ModelFacts
from lab.experiments.base import Named, Question, RunContext
from lab.experiments.compared.ending import EnoughQuestion, enough
from lab.experiments.fields import names
from lab.experiments.lora.adapters import write_kept
from lab.experiments.lora.kept import adapter_of, kept_of, reader_of
from lab.experiments.lora.params import MAX_RANK, KeptName
from lab.experiments.lora.places import MAX_NAME, PACKAGED, kept_names
from lab.lora.adapter import lora_parameters
from lab.lora.example import ALPHA, lora_example
from lab.lora.tasks import NAMES, packaged_task
from lab.models.prompts import text_of
from lab.steps import finished

TOP = 5
MOST_POSITIONS = 192
"""That a question reads. Every layer's states change with the scale, so that each position takes a whole pass again:
2 x 106 million operations in the default model. One AVX-512 thread took 167 ms for 51 positions (nearly all of it in
matrix products, at 90 GFLOP/s) and 450 ms for 192; two threads took 105 ms for 51, and 120 to 200 beside other work.
So a page asks for the newest scale alone, and shows the time."""
SHOWN_EXAMPLES = 4


class ScaleQuestion(Question):
    """A row's tokens read again with more or less of the update."""

    factor: float = Field(1.0, ge=0.0, le=2.0, allow_inf_nan=False, description="0 is the base, 1 as trained.")
    row: str = Field("dense", pattern="^(dense|adapter|merged)$", description="Whose tokens.")


class TruncateQuestion(Question):
    """What is lost if only the largest singular values are kept."""

    rank: int = Field(1, ge=0, le=1024, description="How many of each update.")


class CountQuestion(Question):
    """Parameters of an update of one matrix."""

    rows: int = Field(4096, ge=1, le=1_000_000, description="Outputs of the matrix.")
    columns: int = Field(4096, ge=1, le=1_000_000, description="Its inputs.")
    rank: int = Field(8, ge=1, le=100_000, description="Of the update.")


class WorkedExampleQuestion(Question):
    """The lesson's 2 x 2 example."""

    alpha: float = Field(
        ALPHA, ge=-1024, le=1024, allow_inf_nan=False, description="The update's alpha; its rank is 1."
    )
    factor: float = Field(1.0, ge=0.0, le=2.0, allow_inf_nan=False, description="Times the scale.")


class TasksQuestion(Question):
    """The packaged tasks, and the adapters that are here. Nothing to choose."""

    lists: ClassVar[Mapping[str, Named]] = {"adapters": "adapter"}


class SaveQuestion(Question):
    """Write the run's adapter in PEFT's format."""

    name: KeptName = Field(
        min_length=1,
        max_length=MAX_NAME,
        description="For `adapter` of later runs.",
        json_schema_extra=names("kept"),
    )


INSPECTIONS: Mapping[str, type[BaseModel]] = {
    "scale": ScaleQuestion,
    "truncate": TruncateQuestion,
    "count": CountQuestion,
    "worked_example": WorkedExampleQuestion,
    "tasks": TasksQuestion,
    "enough": EnoughQuestion,
    "save": SaveQuestion,
}


def inspect(context: RunContext | None, facts: ModelFacts, name: str, params: BaseModel) -> dict[str, Any]:
    """Answer one question in at most 256 KiB and, where no pass is needed, 100 ms.

    Raises:
        NotFound: no such question.
        BadInput: a row that is too long to read again, or a name that is taken.
        Unavailable: the question needs a run, or a run that is further.
    """
    del facts
    match name, params:
        case "scale", ScaleQuestion():
            return _scale(context, params)
        case "truncate", TruncateQuestion():
            return _truncate(context, params)
        case "count", CountQuestion():
            return _count(params)
        case "worked_example", WorkedExampleQuestion():
            return asdict(lora_example(alpha=params.alpha, factor=params.factor))
        case "tasks", TasksQuestion():
            return _tasks()
        case "enough", EnoughQuestion():
            return enough(context)
        case "save", SaveQuestion():
            return _save(context, params)
    raise NotFound(f"lora answers no question {name!r}.", remedy=f"Ask one of {', '.join(INSPECTIONS)}.")


def _scale(context: RunContext | None, question: ScaleQuestion) -> dict[str, Any]:
    """`tokens`: for each of the row its `index`, `token_id`, `text`, `p` here, and the `top` next tokens there with
    `token_id`, `text` and `p`; `left_out`: tokens beyond what a question reads; `ms`: what the pass took."""
    kept = kept_of(context)
    assert context is not None  # noqa: S101 - it has something kept
    row = kept.rows.get(question.row)
    if not row or not kept.prompt:
        raise Unavailable(f"The run has no row {question.row!r} (yet).", remedy="Ask when its words are there.")
    room = MOST_POSITIONS - len(kept.prompt)
    if room < 1:
        raise BadInput(
            f"The prompt has {len(kept.prompt):,} tokens; a question reads at most {MOST_POSITIONS}.",
            remedy="Shorten the prompt.",
        )
    read = row[: room + 1]
    reader = reader_of(context, kept, MOST_POSITIONS)
    runner, attached = reader.runner, reader.attached
    began = perf_counter()
    with attached.using(attached.active, question.factor):
        runner.forget()
        # One pass over all of it, and the head over the row alone: a pass for each part would read the weights again.
        logits = finished(runner.sliced_rows([*kept.prompt, *read[:-1]], 0, last=len(read))).logits.float().cpu()
    ms = (perf_counter() - began) * 1e3
    runner.forget()
    chances = logits.softmax(-1)
    top = chances.topk(min(TOP, chances.shape[1]))
    tokenizer = context.model.tokenizer
    tokens = [
        {
            "index": index,
            "token_id": token,
            "text": text_of(tokenizer, token),
            "p": float(chances[index, token]),
            "top": [
                {"token_id": other, "text": text_of(tokenizer, other), "p": p} for other, p in zip(ids, ps, strict=True)
            ],
        }
        for index, (token, ids, ps) in enumerate(zip(read, top.indices.tolist(), top.values.tolist(), strict=True))
    ]
    return {
        "factor": question.factor,
        "row": question.row,
        "tokens": tokens,
        "left_out": len(row) - len(read),
        "ms": ms,
    }


def _truncate(context: RunContext | None, question: TruncateQuestion) -> dict[str, Any]:
    """`modules`: (layer, projection) with `error` = |dW - dW_k| / |dW|; `error` of all together; `parameters`, `bytes`
    and `share` of the whole adapter's parameters that so few ranks take; `highest`: its own rank."""
    kept = kept_of(context)
    adapter = kept.whole or adapter_of(kept)
    if not kept.spectrum:
        raise Unavailable(
            "The singular values of the run's adapter are not computed yet: in a training that is done at its end.",
            remedy="Ask again when they are shown.",
        )
    modules = []
    lost = whole = 0.0
    for layer, projection, values in kept.spectrum:
        energy = sum(value * value for value in values)
        gone = sum(value * value for value in values[question.rank :])
        lost, whole = lost + gone, whole + energy
        error = (gone / energy) ** 0.5 if energy else 0.0
        modules.append({"layer": layer, "projection": projection, "error": error})
    taken = sum(min(question.rank, a.shape[0]) * (a.shape[1] + b.shape[0]) for a, b in adapter.tensors.values())
    return {
        "rank": question.rank,
        "highest": max(a.shape[0] for a, _ in adapter.tensors.values()),
        "error": (lost / whole) ** 0.5 if whole else 0.0,
        "modules": modules,
        "parameters": taken,
        "bytes": 4 * taken,
        "share": taken / adapter.parameters,
    }


def _count(question: CountQuestion) -> dict[str, Any]:
    """`parameters` = r (in + out), `of` = in x out, `share`, and `words`."""
    parameters, of = lora_parameters(question.rows, question.columns, question.rank)
    words = f"{question.rank} x ({question.columns:,} + {question.rows:,}) = {parameters:,} of {of:,}: "
    words += f"{parameters / of:.1%}"
    if parameters >= of:
        words += ", no fewer than the matrix itself has"
    return {**question.model_dump(), "parameters": parameters, "of": of, "share": parameters / of, "words": words}


def _tasks() -> dict[str, Any]:
    """`tasks`: each with `name`, `label`, `about`, `train` and `heldout` sizes, `examples` (prompt, answer) and
    `probes`; `adapters`: names that `adapter` takes."""
    found = []
    for name in NAMES:
        task = packaged_task(name)
        found.append(
            {
                "name": name,
                "label": task.label,
                "about": task.about,
                "train": len(task.train),
                "heldout": len(task.held_out),
                "examples": [{"prompt": e.prompt, "answer": e.answer} for e in task.train[:SHOWN_EXAMPLES]],
                "probes": list(task.probes),
            }
        )
    return {"tasks": found, "adapters": [PACKAGED, *kept_names()], "most_rank": MAX_RANK}


def _save(context: RunContext | None, question: SaveQuestion) -> dict[str, Any]:
    """`name`, `parameters`, and `words`: after which step it stood, and how to use it. While a training goes on it is
    the best so far."""
    kept = kept_of(context)
    adapter = adapter_of(kept)
    write_kept(adapter, question.name)
    name = question.name
    words = f"Kept as {name}{kept.about}: choose it as the adapter, or `lab run lora --adapter {name}`."
    return {"name": name, "parameters": adapter.parameters, "words": words}
