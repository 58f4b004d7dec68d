"""Questions to the `beam_search` experiment: the text of one path, and the lesson's example."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import BaseModel, Field

from lab.decoding.beam.search import Tree
from lab.decoding.beam.table import LESSON, NAMES, lesson_search
from lab.errors import BadInput, NotFound, Unavailable
from lab.experiments.base import Question, RunContext

KEPT_TREE = "tree"


class PathQuestion(Question):
    """The whole text from the prompt to one node."""

    node: int = Field(0, ge=0, description="Node of the tree, 0 is the first.")


class WorkedExampleQuestion(Question):
    """The lesson's two-step example, by the same search on its table. Nothing to choose."""


INSPECTIONS: Mapping[str, type[BaseModel]] = {"path": PathQuestion, "worked_example": WorkedExampleQuestion}


@dataclass(frozen=True)
class KeptTree:
    """All candidates of a finished run, losers included: at most 128 steps of 144 candidates."""

    tree: Tree
    texts: list[str]


def inspect(context: RunContext | None, name: str, params: BaseModel) -> dict[str, Any]:
    """Answer one question in at most 256 KiB and 100 ms.

    Args:
        context: the finished run, None where the question needs none.
        params: of the class that `INSPECTIONS` names.

    Raises:
        NotFound: no such question.
        BadInput: the run has no such node.
        Unavailable: the question needs a run.
    """
    if isinstance(params, PathQuestion) and name == "path":
        return _path(context, params)
    if isinstance(params, WorkedExampleQuestion) and name == "worked_example":
        return worked_example()
    raise NotFound(f"beam_search answers no question {name!r}.", remedy=f"Ask one of {', '.join(INSPECTIONS)}.")


def _path(context: RunContext | None, question: PathQuestion) -> dict[str, Any]:
    kept = context.kept.get(KEPT_TREE) if context is not None else None
    if not isinstance(kept, KeptTree):
        raise Unavailable("A path needs a run whose tree is still kept.", remedy="Run it again.")
    tree, node = kept.tree, question.node
    if node >= len(tree.parents):
        raise BadInput(f"There is no node {node}: the tree has {len(tree.parents)}.", remedy="Name one that is shown.")
    path = tree.path(node)
    log_probs = [tree.log_probs[i] for i in path]
    return {
        "node": node,
        "nodes": path,
        "token_ids": [tree.token_ids[i] for i in path],
        "texts": [kept.texts[i] for i in path],
        "text": "".join(kept.texts[i] for i in path),
        "log_probs": log_probs,
        "sum_log_prob": math.fsum(log_probs),
    }


def worked_example() -> dict[str, Any]:
    """The lesson's example: the table, and the search with one beam (greedy) and with two.

    `table`: for each text its next tokens' probabilities. For each width the steps with all candidates
    (probabilities of the whole path, fate and reason), the winner and its probability: 0.24 and 0.36.
    """
    searches = {}
    for label, width in (("greedy", 1), ("beam", 2)):
        steps, shelf, tree = lesson_search(width)
        best = shelf[0]
        searches[label] = {
            "width": width,
            "steps": [
                [{**asdict(c), "text": NAMES[c.token_id], "probability": math.exp(c.score)} for c in step.candidates]
                for step in steps
            ],
            "winner": [NAMES[token] for token in tree.tokens(best.node)],
            "probability": math.exp(best.score),
            "nodes": tree.path(best.node),
        }
    return {
        "table": [{"after": list(text), "next": dict(row)} for text, row in LESSON.items()],
        "end": "end",
        **searches,
    }
