"""The data behind the pictures of `beam_search`, as rows."""

from __future__ import annotations

import math

from widgets.beam_search.state import BeamState
from widgets.beam_search.words import sentence
from widgets.experiment import Table


def candidate_table(state: BeamState, upto: int, start: int = 0) -> Table:
    """Every candidate of steps `start` to `upto`: its edge, its score, its rank, what became of it and why."""
    rows = [
        [
            state.step_of[n.id] + 1,
            n.rank + 1,
            n.text,
            n.token_id,
            _percent(n.log_prob),
            round(n.score, 4),
            n.fate,
            n.reason,
            sentence(state, n.id),
            n.id,
            n.parent,
        ]
        for step in state.steps[start : upto + 1]
        for n in step.nodes
    ]
    head = ["new token", "rank", "text", "id", "probability", "sum S", "fate", "reason", "in words", "node", "parent"]
    return Table("candidates", head, rows)


def hypothesis_table(state: BeamState, step: int) -> Table:
    """The shelf after `step`, best first."""
    shelf = state.steps[step].shelf if 0 <= step < len(state.steps) else ()
    rows = [
        [
            place,
            round(h.score, 5),
            round(h.sum_log_prob, 4),
            h.length,
            state.length_penalty,
            "end token" if h.is_end else "length limit",
            "".join(n.text for n in state.path(h.node)),
        ]
        for place, h in enumerate(shelf, start=1)
    ]
    return Table("finished_texts", ["place", "score", "sum", "tokens", "length penalty", "ended by", "text"], rows)


def step_table(state: BeamState, upto: int) -> Table:
    """One row a step: times, cache, the best and the worst running score, the bound."""
    rows = []
    for i, step in enumerate(state.steps[: upto + 1]):
        running = [state.nodes[n].score for n in step.running if n in state.nodes]
        bound = round(step.best_possible, 4) if math.isfinite(step.best_possible) else None
        rows.append(
            [
                i + 1,
                round(step.ms, 2),
                round(step.reorder_ms, 2),
                step.cache_length,
                step.cache_bytes,
                step.formula_bytes,
                round(max(running), 4) if running else None,
                round(min(running), 4) if running else None,
                len(step.shelf),
                bound,
                step.stop,
            ]
        )
    head = ["new token", "ms", "ms reordering", "cache length", "cache bytes", "formula bytes", "best running"]
    return Table("steps", [*head, "worst running", "on the shelf", "best possible", "stop"], rows)


def path_table(state: BeamState) -> Table:
    """Greedy's and the sampled text, token by token, and whether the beams had it."""
    rows = []
    for kind, path in state.paths.items():
        total = 0.0
        for i, (token, text, log_prob, node) in enumerate(
            zip(path.token_ids, path.texts, path.log_probs, path.nodes, strict=True)
        ):
            total += log_prob
            fate = state.nodes[node].fate if node in state.nodes else "not in the tree"
            rows.append([kind, i + 1, text, token, _percent(log_prob), round(total, 4), fate])
    return Table("other_paths", ["path", "new token", "text", "id", "probability", "sum", "in the tree"], rows)


def _percent(log_prob: float) -> str:
    return f"{100 * math.exp(min(log_prob, 0.0)):.3g}%" if not math.isnan(log_prob) else "?"
