"""The `quantization` experiment: what happens to a layer, to its output and to the model's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from lab.errors import BadInput
from lab.evaluation.texts import check_texts
from lab.events import ModelFacts
from lab.experiments.base import RunContext, RunGenerator
from lab.experiments.compared.fields import check_layers
from lab.experiments.quantization.choices import GRIDDED, why_not
from lab.experiments.quantization.inspections import INSPECTIONS, READS_WEIGHTS
from lab.experiments.quantization.inspections import inspect as answer
from lab.experiments.quantization.layer import study_layer
from lab.experiments.quantization.map import map_model
from lab.experiments.quantization.packed import run_packed
from lab.experiments.quantization.params import QuantizationParams
from lab.experiments.quantization.pareto import pareto
from lab.experiments.quantization.setup import Setup
from lab.experiments.quantization.words import compare_words


class QuantizationRunner:
    """See `lab.experiments.base.Runner`."""

    inspections: Mapping[str, type[BaseModel]] = INSPECTIONS
    reads_weights = READS_WEIGHTS

    def prepare(self, facts: ModelFacts, params: Any) -> None:
        """Refuse what this model cannot do.

        Raises:
            BadInput: layers or group sizes that do not fit, a mistake that nothing could show, chat without a
                template, a text that is missing, empty, too long, too short or its own repetition.
        """
        _check(facts, params)
        if params.reads_text:
            check_texts(params.text)

    def run(self, context: RunContext, params: Any) -> RunGenerator:
        """Yield the run's events; the outcome holds the dense model's words where the task makes some.

        Raises:
            BadInput: see `prepare`; or a text of too few tokens, or none that can be read any more.
        """
        _check(context.model.facts, params)
        return (yield from _TASKS[params.task](Setup(context, params)))

    def inspect(self, context: RunContext | None, facts: ModelFacts, name: str, params: Any) -> dict[str, Any]:
        """Answer one question, see `lab.experiments.quantization.inspections`."""
        return answer(context, facts, name, params)


_TASKS: dict[str, Callable[[Setup], RunGenerator]] = {
    "layer": study_layer,
    "map": map_model,
    "pareto": pareto,
    "words": compare_words,
    "packed": run_packed,
}


_OF_OTHER_WIDTH = ("o_proj", "down_proj", "attn.c_proj", "mlp.c_proj")
"""Projections whose inputs are not the hidden state: the run itself sees how wide they are."""


def _check(facts: ModelFacts, params: QuantizationParams) -> None:
    check_layers(facts, params.layers if params.task == "layer" else params.bits_of_layer)
    if params.task in ("words", "packed"):
        params.check_prompt(facts)
    reads_hidden = params.task in ("map", "pareto", "words") or params.projection not in _OF_OTHER_WIDTH
    if params.task != "packed" and reads_hidden and params.method in GRIDDED:
        why = why_not(params.group_size, facts.hidden)
        if why:
            raise BadInput(
                f"Groups of {params.group_size} do not fit rows of {facts.hidden}: {why}", remedy=_fit(facts)
            )
    _check_mistake(params)


def _fit(facts: ModelFacts) -> str:
    sizes = [size for size in ("16", "32", "64", "96", "128", "192", "256") if not why_not(size, facts.hidden)]
    return f"Choose {', '.join(sizes)} or row." if sizes else "Choose row."


def _check_mistake(params: QuantizationParams) -> None:
    mistake, method = params.break_run, params.method
    if mistake == "nothing":
        return
    if params.task == "packed":
        if mistake == "missing_abs":
            raise BadInput("Packed kernels take scales of |w| or of both ends.", remedy="Choose another mistake.")
        return
    if method not in GRIDDED:
        raise BadInput(f"This mistake needs codes on a grid; {method} has none.", remedy="Choose nearest, gptq or awq.")
    if mistake == "missing_abs" and (
        method != "nearest" or params.kind not in ("absmax", "full_range") or params.clip != "none"
    ):
        raise BadInput(
            "The sign can only be forgotten where a scale comes from max |w|.",
            remedy="Choose round to nearest with symmetric levels and no clipping.",
        )


def make_runner() -> QuantizationRunner:
    """The runner; see `lab.experiments.registry`."""
    return QuantizationRunner()
