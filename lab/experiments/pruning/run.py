"""The `pruning` experiment: which weights go, what that does to a layer, the model and its words, and what it saves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from lab.errors import BadInput
from lab.events import ModelFacts
from lab.experiments.base import RunContext, RunGenerator
from lab.experiments.compared.fields import check_layers
from lab.experiments.compared.progress import numbered
from lab.experiments.pruning.choices import ONE_MATRIX
from lab.experiments.pruning.curve import draw_curve, schemes_of
from lab.experiments.pruning.inspections import INSPECTIONS, READS_WEIGHTS
from lab.experiments.pruning.inspections import inspect as answer
from lab.experiments.pruning.masks import schemes_beside, study_masks
from lab.experiments.pruning.params import PruningParams
from lab.experiments.pruning.recover import recover
from lab.experiments.pruning.savings import measure_savings
from lab.experiments.pruning.settings import Scheme
from lab.experiments.pruning.setup import Setup
from lab.experiments.pruning.stages import stages_of
from lab.experiments.pruning.words import compare_words


class PruningRunner:
    """See `lab.experiments.base.Runner`."""

    inspections: Mapping[str, type[BaseModel]] = INSPECTIONS
    reads_weights = READS_WEIGHTS

    def prepare(self, facts: ModelFacts, params: Any) -> None:
        """Refuse what this model cannot do.

        Raises:
            BadInput: layers that do not exist, a method that the task cannot use, a mistake that nothing could show.
        """
        _check(facts, params)

    def run(self, context: RunContext, params: Any) -> RunGenerator:
        """Yield the run's events; the outcome holds the dense model's words where the task makes some.

        Raises:
            BadInput: see `prepare`; or a text that cannot be read.
        """
        _check(context.model.facts, params)
        setup = Setup(context, params)
        return (yield from numbered(_TASKS[params.task](setup), _stages(setup)))

    def inspect(self, context: RunContext | None, facts: ModelFacts, name: str, params: Any) -> dict[str, Any]:
        """Answer one question, see `lab.experiments.pruning.inspections`."""
        return answer(context, facts, name, params)


_TASKS: dict[str, Callable[[Setup], RunGenerator]] = {
    "masks": study_masks,
    "curve": draw_curve,
    "words": compare_words,
    "savings": measure_savings,
    "recover": recover,
}


def _stages(setup: Setup) -> list[str]:
    schemes = {"masks": lambda: schemes_beside(setup.scheme), "curve": lambda: schemes_of(setup)}
    return stages_of(setup.params, schemes.get(setup.params.task, list[Scheme])())


def _check(facts: ModelFacts, params: PruningParams) -> None:
    check_layers(facts, params.layers if params.task == "masks" else ())
    if params.task in ("words", "savings"):
        params.check_prompt(facts)
    if params.method == "rows":
        if params.task in ("masks", "recover"):
            raise BadInput(
                "Heads and channels leave no mask of single weights to study or to hold.",
                remedy="Choose another method, or the tasks words, curve or savings.",
            )
        if params.sparsity >= 1:
            raise BadInput("All rows cannot be removed.", remedy="Choose a sparsity below 1.")
    if params.task == "recover" and params.sparsity >= 1:
        raise BadInput("No weight is left to train at a sparsity of 1.", remedy="Choose a sparsity below 1.")
    _check_mistake(params)


def _check_mistake(params: PruningParams) -> None:
    mistake, patterned = params.break_run, params.pattern != "none" and params.method in ONE_MATRIX
    if mistake == "nothing":
        return
    if params.method == "rows" and mistake != "mask_of_neighbour":
        raise BadInput("This mistake needs a mask of single weights.", remedy="Choose another method or mistake.")
    if mistake == "wrong_axis" and not patterned:
        raise BadInput("Only N:M has an axis that can be wrong.", remedy="Choose a pattern such as 2:4.")
    share = params.sparsity if not patterned else 0.5
    if mistake in ("revived", "mask_of_neighbour") and share == 0:
        raise BadInput("Nothing is pruned, so that no mistake could show.", remedy="Choose a sparsity above 0.")
    if mistake in ("one_too_many", "mask_of_neighbour") and share == 1:
        raise BadInput("Everything is pruned, so that no mistake could show.", remedy="Choose a sparsity below 1.")


def make_runner() -> PruningRunner:
    """The runner; see `lab.experiments.registry`."""
    return PruningRunner()
