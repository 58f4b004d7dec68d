"""The data behind the pictures of `speculative`, as rows."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from lab.events.speculative import Share, SpeculativeFigures
from widgets.experiment import Table
from widgets.speculative.state import SpeculativeState


def number(value: float | None, digits: int = 4) -> float | None:
    """A finite number, rounded; None otherwise."""
    return None if value is None or not math.isfinite(value) else round(value, digits)


def token_table(state: SpeculativeState, upto: int | None = None) -> Table:
    """Every token of every round up to `upto`: what was proposed, and what came of it."""
    head = ["round", "place", "new token", "id", "token", "kind", "p", "q", "min(1, p/q)", "u", "sum min(p, q)"]
    rows: list[list[Any]] = []
    if state.first:
        rows.append(
            [0, None, 1, state.first.token_id, state.first.text, "first", number(state.first.p), None, None, None, None]
        )
    rows += [
        [
            r.index + 1,
            t.depth + 1,
            t.position + 1,
            t.token_id,
            t.text,
            t.kind,
            number(t.p, 6),
            number(t.q, 6),
            number(t.accept),
            number(t.u),
            number(t.alpha),
        ]
        for r in state.rounds[: None if upto is None else upto + 1]
        for t in r.tokens
    ]
    return Table("tokens", head, rows)


def round_table(state: SpeculativeState, upto: int | None = None) -> Table:
    """Every round: its proposals, its time, its caches."""
    head = ["round", "γ", "proposed", "accepted", "emitted", "draft ms", "verify ms", "judge ms"]
    head += ["model cache before", "with proposals", "after", "draft cache before", "with proposals", "after"]
    head += ["model cache bytes", "draft cache bytes", "source"]
    rows = [
        [
            r.index + 1,
            r.gamma,
            sum(t.kind in ("accepted", "rejected", "unjudged") for t in r.tokens),
            sum(t.kind == "accepted" for t in r.tokens),
            r.emitted,
            number(r.draft_ms, 2),
            number(r.verify_ms, 2),
            number(r.judge_ms, 2),
            *r.target_positions,
            *r.draft_positions,
            r.target_bytes,
            r.draft_bytes,
            r.source,
        ]
        for r in state.rounds[: None if upto is None else upto + 1]
    ]
    return Table("rounds", head, rows)


def distribution_table(state: SpeculativeState) -> Table:
    """p, q and the residual of the tokens worth showing, wherever one was judged."""
    rows = [
        [r.index + 1, t.depth + 1, t.text, s.text, s.token_id, number(s.p, 6), number(s.q, 6), number(s.residual, 6)]
        for r in state.rounds
        for t in r.tokens
        for s in t.shares
    ]
    return Table("distributions", ["round", "place", "judged", "token", "id", "p", "q", "residual"], rows)


def share_table(shares: tuple[Share, ...], name: str) -> Table:
    """p, q and the residual at one position."""
    rows = [[s.text, s.token_id, number(s.p, 6), number(s.q, 6), number(s.residual, 6)] for s in shares]
    return Table(name, ["token", "id", "p", "q", "residual"], rows)


def plain_table(state: SpeculativeState) -> Table:
    """The plain run, token by token."""
    rows = [[t.index + 1, t.token_id, t.text, number(t.ms, 2)] for t in state.plain]
    return Table("plain_run", ["new token", "id", "token", "ms"], rows)


def figure_table(state: SpeculativeState) -> Table:
    """All figures of the run, by their names in the events."""
    rows: list[list[Any]] = []
    if state.figures is not None:
        for name, value in asdict(state.figures).items():
            if name == "by_depth":
                rows += [[f"place {i + 1}: judged, accepted", f"{a}, {b}"] for i, (a, b) in enumerate(value)]
            else:
                rows.append([name.replace("_", " "), number(value, 6) if isinstance(value, float) else value])
    return Table("figures", ["figure", "value"], rows)


def sweep_table(state: SpeculativeState) -> Table:
    """One row a γ."""
    head = ["γ", "measured", "predicted", "tokens a pass", "expected tokens", *_HEAD]
    rows = [
        [
            p.gamma,
            number(p.figures.measured, 3),
            number(p.figures.predicted, 3),
            number(p.figures.tokens_per_pass, 3),
            number(p.figures.expected_tokens, 3),
            *_figures(p.figures),
        ]
        for p in sorted(state.sweep, key=lambda p: p.gamma)
    ]
    return Table("sweep", head, rows)


def draft_table(state: SpeculativeState) -> Table:
    """One row a draft, the fastest first, with the kinds of prompts."""
    kinds = sorted({kind for d in state.drafts for kind, _, _ in d.by_kind})
    head = ["draft", "measured", *_HEAD, "bytes"]
    for kind in kinds:
        head += [f"{kind}: measured", f"{kind}: accepted"]
    head.append("skipped")
    rows: list[list[Any]] = []
    for draft in state.ranked():
        by_kind = {kind: (number(speed, 3), number(accepted, 3)) for kind, speed, accepted in draft.by_kind}
        f = draft.figures
        row: list[Any] = [draft.title, number(f.measured, 3) if f else None]
        row += _figures(f) if f else [None] * len(_HEAD)
        row.append(draft.bytes)
        for kind in kinds:
            row += by_kind.get(kind, (None, None))
        rows.append([*row, draft.skipped])
    return Table("drafts", head, rows)


_HEAD = ("accepted of judged", "accepted of drafted", "α", "c", "v", "plain ms", "speculative ms")


def _figures(f: SpeculativeFigures) -> list[float | None]:
    return [
        number(f.accept_judged),
        number(f.accept_drafted),
        number(f.alpha),
        number(f.c),
        number(f.v),
        number(f.plain_ms, 2),
        number(f.speculative_ms, 2),
    ]


def trial_table(state: SpeculativeState) -> Table:
    """The trial as it went."""
    head = ["pairs", "chi-square", "degrees", "p", "total variation", "by sampling alone", "power"]
    rows = [
        [
            p.runs,
            number(p.statistic, 2),
            p.degrees,
            p.p_value,
            number(p.total_variation),
            number(p.expected_variation),
            number(p.power),
        ]
        for p in state.trial
    ]
    return Table("trial", head, rows)


def pair_table(state: SpeculativeState, upto: int | None = None) -> Table:
    """Expected and observed counts of the most probable pairs; the last row stands for all others."""
    point = state.trial[-1 if upto is None else min(upto, len(state.trial) - 1)] if state.trial else None
    rows = [[a, b, number(expected, 2), observed] for a, b, expected, observed in (point.pairs if point else ())]
    return Table("pairs", ["first", "second", "expected", "observed"], rows)
