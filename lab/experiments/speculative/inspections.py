"""Questions to the `speculative` experiment: more tokens of a judged position, and the worked example."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, Field

from lab.errors import NotFound, Unavailable
from lab.events import ModelFacts
from lab.experiments.base import Question, RunContext
from lab.experiments.speculative.positions import KEPT_POSITIONS, Positions
from lab.experiments.speculative.translate import shares_of
from lab.models.prompts import text_of

MOST_TOKENS = 96


class PositionQuestion(Question):
    """p, q and the residual at one judged position, more tokens of it than the event shows."""

    round: int = Field(0, ge=0, description="Round, 0 is the first.")
    row: int = Field(0, ge=0, description="Row of the round: a proposed token, or after them the target's own.")
    tokens: int = Field(32, ge=1, le=MOST_TOKENS, description="How many tokens at most.")


class WorkedExampleQuestion(Question):
    """The lesson's three-token example and its figures. Nothing to choose."""


INSPECTIONS: Mapping[str, type[BaseModel]] = {
    "position": PositionQuestion,
    "worked_example": WorkedExampleQuestion,
}


def inspect(context: RunContext | None, facts: ModelFacts, name: str, params: BaseModel) -> dict[str, Any]:
    """Answer one question in at most 256 KiB and 100 ms.

    Args:
        context: the finished run, None where the question needs none.
        params: of the class that `INSPECTIONS` names.

    Raises:
        NotFound: no such question.
        Unavailable: the run kept no such position.
    """
    del facts
    if isinstance(params, PositionQuestion) and name == "position":
        return _position(context, params)
    if isinstance(params, WorkedExampleQuestion) and name == "worked_example":
        from lab.decoding.speculative.example import worked_example

        return asdict(worked_example())
    raise NotFound(f"speculative answers no question {name!r}.", remedy=f"Ask one of {', '.join(INSPECTIONS)}.")


def _position(context: RunContext | None, question: PositionQuestion) -> dict[str, Any]:
    positions = context.kept.get(KEPT_POSITIONS) if context is not None else None
    if context is None or not isinstance(positions, Positions):
        raise Unavailable("This question needs a run that decodes, still kept.", remedy="Run it again.")
    kept = positions.kept.get((question.round, question.row))
    if kept is None:
        raise Unavailable(
            f"Row {question.row} of round {question.round} was not judged, or is not kept.",
            remedy="Ask for an accepted, rejected, resampled or bonus token.",
        )
    tokenizer = context.model.tokenizer
    shares = shares_of(kept.bars, lambda token: text_of(tokenizer, token), (kept.token_id,), question.tokens)
    return {
        **question.model_dump(),
        "position": kept.position,
        "token_id": kept.token_id,
        "kind": kept.kind,
        "accept": kept.accept,
        "u": kept.u,
        "alpha": kept.bars.alpha,
        "shares": [asdict(share) for share in shares],
        "listed_p": sum(share.p for share in shares),
    }
