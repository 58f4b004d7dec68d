"""The `speculative` experiment: a draft proposes, the model verifies; figures, comparisons, and the proof."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from lab.decoding.drafts.choose import check
from lab.decoding.windows import most_gamma
from lab.errors import BadInput
from lab.events import ModelFacts
from lab.experiments.base import RunContext, RunGenerator
from lab.experiments.speculative.decode import Decode
from lab.experiments.speculative.drafts import rank_drafts
from lab.experiments.speculative.inspections import INSPECTIONS
from lab.experiments.speculative.inspections import inspect as answer
from lab.experiments.speculative.params import SpeculativeParams
from lab.experiments.speculative.setup import Setup, check_gamma, wish_of
from lab.experiments.speculative.sweep import sweep
from lab.experiments.speculative.trial import run_trial


class SpeculativeRunner:
    """See `lab.experiments.base.Runner`."""

    inspections: Mapping[str, type[BaseModel]] = INSPECTIONS

    def prepare(self, facts: ModelFacts, params: Any) -> None:
        """Refuse what this model cannot do.

        Raises:
            BadInput: a draft that does not fit, a mistake that nothing could show, chat without a template, more new
                tokens than the context holds.
        """
        _check(facts, params)

    def run(self, context: RunContext, params: Any) -> RunGenerator:
        """Yield the run's events; the outcome holds the new tokens and their text, where the task makes one.

        Raises:
            BadInput: see `prepare`; or the prompt and the new tokens pass the model's context.
            ModelError: the draft's files are missing or do not fit, or the model has no attention key/value cache.
        """
        _check(context.model.facts, params)
        return (yield from _TASKS[params.task](Setup(context, params)))

    def inspect(self, context: RunContext | None, facts: ModelFacts, name: str, params: Any) -> dict[str, Any]:
        """Answer one question, see `lab.experiments.speculative.inspections`."""
        return answer(context, facts, name, params)


def _decode(setup: Setup) -> RunGenerator:
    return (yield from Decode(setup).events())


_TASKS: dict[str, Callable[[Setup], RunGenerator]] = {
    "decode": _decode,
    "sweep": sweep,
    "drafts": rank_drafts,
    "trial": run_trial,
}


def _check(facts: ModelFacts, params: SpeculativeParams) -> None:
    params.check_prompt(facts)
    check_gamma(params, most_gamma(facts), facts.name)
    if params.task in ("sweep", "drafts") and params.max_new_tokens < 2:
        raise BadInput(
            f"The task {params.task!r} measures rounds, and the first new token comes without one.",
            remedy="Ask for at least 2 new tokens.",
        )
    if params.task != "drafts":
        check(facts, wish_of(params))
    _check_mistake(params)


def _check_mistake(params: SpeculativeParams) -> None:
    """A mistake that cannot show would be called equal, and rightly: better say so before."""
    mistake, greedy = params.break_run, not params.do_sample and params.task != "trial"
    if mistake != "nothing" and params.task in ("sweep", "drafts"):
        raise BadInput(
            f"The task {params.task!r} measures speed and does not look for mistakes.",
            remedy="Break a run of the task decode, or the trial.",
        )
    if params.task == "trial" and not params.do_sample:
        raise BadInput("Greedy decoding draws nothing, so there is nothing to try.", remedy="Switch sampling on.")
    if mistake in ("no_residual", "wrong_q", "top_token_on_rejection") and greedy:
        raise BadInput(
            "Greedy, the target's own token is the residual and p at once: this mistake changes nothing.",
            remedy="Switch sampling on.",
        )
    if mistake == "processors_skipped" and not _has_rules(params):
        raise BadInput(
            "There are no processors to skip: no temperature, top-k, top-p or repetition control is set.",
            remedy="Set a repetition penalty." if greedy else "Set top-k to 50, say.",
        )


def _has_rules(params: SpeculativeParams) -> bool:
    if params.repetition_penalty != 1.0 or params.no_repeat_ngram_size:
        return True
    return params.do_sample and (params.temperature != 1.0 or params.top_k > 0 or params.top_p < 1.0)


def make_runner() -> SpeculativeRunner:
    """The runner; see `lab.experiments.registry`."""
    return SpeculativeRunner()
