"""The data behind the pictures of `kv_cache`, as rows."""

from __future__ import annotations

import math

from widgets.experiment import Table
from widgets.kv_cache.state import KVCacheState


def token_table(state: KVCacheState) -> Table:
    """Every token, its probability, its time and how near the call was."""
    rows = [
        [t.index, t.token_id, t.text, round(t.log_prob, 4), round(t.gap, 4), t.phase, round(t.ms, 2)]
        for t in state.tokens
    ]
    return Table("tokens", ["index", "token_id", "text", "log_prob", "gap", "phase", "ms"], rows)


def candidate_table(state: KVCacheState, at: int) -> Table:
    """The most probable tokens where new token `at` was chosen; probabilities over the whole vocabulary."""
    token = state.tokens[at] if 0 <= at < state.steps else None
    rows = (
        [
            [
                rank,
                c.text,
                c.token_id,
                f"{100 * math.exp(c.log_prob):.2f}%",
                "chosen" if c.token_id == token.token_id else "",
            ]
            for rank, c in enumerate(token.top, start=1)
        ]
        if token
        else []
    )
    return Table("candidates", ["rank", "token", "id", "probability", ""], rows)


def ledger_table(state: KVCacheState, upto: int) -> Table:
    """Counted and computed bytes after each step."""
    ledgers = [*state.prefill_ledgers, *(state.ledgers[i] for i in sorted(state.ledgers) if i <= upto)]
    if len(state.prefill_ledgers) and len(ledgers) > len(state.prefill_ledgers):
        last, first = state.prefill_ledgers[-1], ledgers[len(state.prefill_ledgers)]
        if first.cache_length == last.cache_length and first.layer_bytes == last.layer_bytes:
            del ledgers[len(state.prefill_ledgers)]  # the first new token adds nothing: it comes out of the prefill
    rows = [
        [
            ledger.cache_length,
            ledger.phase,
            sum(ledger.layer_bytes),
            sum(ledger.formula_bytes),
            sum(ledger.layer_bytes) - sum(ledger.formula_bytes),
            ledger.reserved_bytes,
        ]
        for ledger in ledgers
    ]
    return Table(
        "ledger", ["cache length", "phase", "counted bytes", "formula bytes", "difference", "reserved bytes"], rows
    )


def race_table(state: KVCacheState, upto: int) -> Table:
    """Milliseconds and computations of each token (from 1), with and without the cache; the first has the prefill."""
    rows = []
    for token in state.tokens[: upto + 1]:
        without = state.uncached.get(token.index)
        rows.append(
            [
                token.index + 1,
                state.prompt_length + token.index,
                round(token.ms + (state.prefill_ms() if token.index == 0 else 0.0), 2),
                token.computed,
                round(without.ms, 2) if without else None,
                without.computed if without else None,
                (without.token_id == token.token_id) if without else None,
            ]
        )
    head = ["new token", "text length", "ms with", "computed with", "ms without", "computed without", "same token"]
    return Table("with_and_without", head, rows)


def attention_table(state: KVCacheState) -> Table:
    """The recorded attention: one row a step, layer and head, the strongest bin in it."""
    rows = []
    for index, read in sorted(state.reads.items()):
        weights = read.weights.numpy()
        for i, layer in enumerate(read.layers):
            for head in range(weights.shape[1]):
                best = int(weights[i, head].argmax())
                start = read.first_position + best * read.bin_size
                rows.append([index + 1, layer, head, start, round(float(weights[i, head, best]), 4)])
    return Table("attention", ["new token", "layer", "head", "strongest position", "weight"], rows)
