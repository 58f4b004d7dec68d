"""The tables behind what pruning saves, and the order and names of its variants."""

from __future__ import annotations

import math
from typing import Any

from widgets.experiment import Table
from widgets.pruning.losses import variant_loss
from widgets.pruning.method_marks import tight
from widgets.pruning.state import DENSE, PruningState


def order(state: PruningState) -> list[str]:
    """Dense first, then as they were told."""
    names = list(dict.fromkeys([*state.variants, *state.timed, *state.timed_figures]))
    return sorted(names, key=lambda name: name != DENSE)


def label_of(state: PruningState, name: str) -> str:
    """A variant's name for a person, its percentage unbroken."""
    return tight(state.label(name) or name)


def figure_table(state: PruningState) -> Table:
    """One row a variant."""
    head = [
        "variant",
        "parameters",
        "bytes in memory",
        "ms a step",
        "tokens/s",
        "× dense",
        "prefill ms",
        "prompt tokens",
    ]
    head += ["prefill × dense", "steps", "KL(dense ‖ it), nats", "perplexity", "dense perplexity", "words"]
    rows = []
    for name in order(state):
        f = state.timed_figures.get(name)
        if f is None:
            continue
        cells = [
            _number(f.decode_ms),
            _number(f.tokens_per_s),
            _number(f.speedup),
            _number(f.prefill_ms),
            f.prompt_tokens,
        ]
        lost = variant_loss(state, name)
        losses = [_number(v) for v in ((lost.kl, lost.perplexity, lost.dense_perplexity) if lost else (None,) * 3)]
        sizes = [label_of(state, name), f.parameters, f.resident_bytes]
        rows.append([*sizes, *cells, _number(f.prefill_speedup), f.steps, *losses, f.words])
    return Table("savings", head, rows)


def step_table(state: PruningState) -> Table:
    """One row a token: the milliseconds of every variant."""
    names = [name for name in order(state) if name in state.timed]
    longest = max((len(state.timed[name]) for name in names), default=0)
    rows: list[list[Any]] = []
    for index in range(longest):
        rows.append([index + 1])
        for name in names:
            token = state.timed[name][index] if index < len(state.timed[name]) else None
            rows[-1] += [token.text, _number(token.ms)] if token else [None, None]
    return Table("savings_steps", ["new token", *(c for n in names for c in (f"{n} token", f"{n} ms"))], rows)


def _number(value: float | None) -> float | None:
    return float(f"{value:.5g}") if value is not None and math.isfinite(value) else None
