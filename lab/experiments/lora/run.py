"""The `lora` experiment: an adapter trained, shown before and after, swapped and merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from lab.errors import BadInput, shown
from lab.events import ModelFacts
from lab.experiments.base import RunContext, RunGenerator
from lab.experiments.compared.progress import numbered
from lab.experiments.lora.adapters import check_name, find_adapter, fits_or_why
from lab.experiments.lora.compare import compare
from lab.experiments.lora.inspections import INSPECTIONS
from lab.experiments.lora.inspections import inspect as answer
from lab.experiments.lora.learn import settings_of, task_of, train
from lab.experiments.lora.lossy import merge
from lab.experiments.lora.merged import check_mistake
from lab.experiments.lora.merged_out import check_merged_out
from lab.experiments.lora.params import LoraParams
from lab.experiments.lora.picture import check_kept_rank
from lab.experiments.lora.room import check_places, check_room
from lab.experiments.lora.setup import Setup
from lab.experiments.lora.stages import stages_of
from lab.experiments.lora.swap import swap


class LoraRunner:
    """See `lab.experiments.base.Runner`."""

    inspections: Mapping[str, type[BaseModel]] = INSPECTIONS

    def prepare(self, facts: ModelFacts, params: Any) -> None:
        """Refuse what cannot be done with this model.

        Raises:
            BadInput: lines that are no examples (the line is named), a name that is taken, a folder that cannot be
                written to, chat without a template, a mistake that nothing could show.
            NotFound: no such adapter.
            ModelError: an adapter of another kind, damaged, or for another vocabulary.
        """
        _check(facts, params)

    def run(self, context: RunContext, params: Any) -> RunGenerator:
        """Yield the run's events; the outcome holds the base's words.

        Raises:
            BadInput, NotFound, ModelError: see `prepare`; or an adapter that does not fit the model's modules, or a
                disk too full for what is to be kept.
            LabError: what was to be kept could not be written.
        """
        _check(context.model.facts, params)
        check_room(context.model.model, params)
        return (yield from numbered(_TASKS[params.task](Setup(context, params)), stages_of(params)))

    def inspect(self, context: RunContext | None, facts: ModelFacts, name: str, params: Any) -> dict[str, Any]:
        """Answer one question, see `lab.experiments.lora.inspections`."""
        return answer(context, facts, name, params)


_TASKS: dict[str, Callable[[Setup], RunGenerator]] = {
    "train": train,
    "compare": compare,
    "swap": swap,
    "merge": merge,
}


def _check(facts: ModelFacts, params: LoraParams) -> None:
    params.check_prompt(facts)
    check_mistake(params.task, params.break_run)
    check_merged_out(params)
    if params.task == "train":
        task_of(params)
        settings_of(params)
        if params.save:
            check_name(params.save)
    check_places(params)
    if params.task == "train":
        return
    for name in (params.adapter, params.second) if params.task == "swap" else (params.adapter,):
        if not name:
            continue
        adapter = find_adapter(name)
        why = fits_or_why(adapter, facts)
        if why:
            raise BadInput(
                f"The adapter {shown(adapter.name)} does not fit: {why}.",
                remedy="Choose the model it was made for, another adapter, or train one.",
            )
        if params.task != "swap":
            check_kept_rank(adapter, params.keep_rank)


def make_runner() -> LoraRunner:
    """The runner; see `lab.experiments.registry`."""
    return LoraRunner()
