"""Colours and rows that all sections of the page use."""

from __future__ import annotations

from collections.abc import Sequence

from lab.events.speculative import Share
from widgets.bar_table import Bar, BarRow, Column, Series
from widgets.speculative.sentences import share
from widgets.token_text import visible

P: Series = 1
Q: Series = 2
RESIDUAL: Series = 5
"""Series of the model's p, the draft's q, and the residual: the same colours all over the page."""
SHARE_COLUMNS = (Column("model p", P), Column("draft q", Q), Column("residual", RESIDUAL))


def share_rows(shares: Sequence[Share], kinds: dict[int, str], *, only_p: bool = False) -> list[BarRow]:
    """Bars of p, q and the residual.

    Args:
        kinds: what became of a token, by its id.
        only_p: where no draft spoke.
    """
    rows = []
    for item in sorted(shares, key=lambda s: -max(s.p, 0 if only_p else s.q)):
        values = (item.p,) if only_p else (item.p, item.q, item.residual)
        rows.append(
            BarRow(
                label=visible(item.text),
                mono=True,
                bars=[Bar(v, s) for v, s in zip(values, (P, Q, RESIDUAL), strict=False)],
                cells=[share(v) if v == 0 or v >= 0.001 else "<0.001" for v in values],
                kind=kinds.get(item.token_id, ""),
                title=f"token {item.token_id}",
            )
        )
    return rows
