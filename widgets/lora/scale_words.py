"""A row read at one scale of the update: what was answered, its figures, its rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from widgets.asked import Answer
from widgets.bar_table import Bar, BarRow, Series
from widgets.experiment import Table
from widgets.format import split_ms, typeset_share
from widgets.token_text import visible
from widgets.words.rows import probability

NOW: Series = 2
RUN: Series = 1
MOST_SHOWN = 48
MOST_LABEL = 16
"""Characters of a token: at 800 px there is no room for more beside bars and figures."""


@dataclass(frozen=True)
class Token:
    """One token of the row: its probability at this scale, and the most probable one there."""

    index: int
    token_id: int
    text: str
    p: float
    best_id: int
    best: str
    best_p: float


@dataclass(frozen=True)
class Reading:
    """A row at one scale. `left_out`: tokens that were not read; `ms`: what the pass took."""

    factor: float
    row: str
    tokens: tuple[Token, ...]
    left_out: int
    ms: float

    @property
    def mean(self) -> float:
        """Geometric mean of the tokens' probabilities."""
        if not self.tokens:
            return math.nan
        return math.exp(sum(math.log(max(t.p, 1e-30)) for t in self.tokens) / len(self.tokens))

    @property
    def own(self) -> int:
        """Tokens that are the most probable ones here: what greedy decoding would take."""
        return sum(t.best_id == t.token_id for t in self.tokens)


def read(answer: Answer) -> Reading:
    """The answer as it is drawn.

    Raises:
        KeyError, TypeError, ValueError, IndexError: it cannot be.
    """
    tokens = []
    for token in answer["tokens"]:
        best = token["top"][0]
        p, best_p = float(token["p"]), float(best["p"])
        if not (0 <= p <= 1.0001 and 0 <= best_p <= 1.0001):
            raise ValueError("a probability is not between 0 and 1")
        index, own, other = int(token["index"]), int(token["token_id"]), int(best["token_id"])
        tokens.append(Token(index, own, str(token["text"]), p, other, str(best["text"]), best_p))
    left_out, ms = int(answer.get("left_out", 0)), float(answer.get("ms") or math.nan)
    return Reading(round(float(answer["factor"]), 4), str(answer["row"]), tuple(tokens), left_out, ms)


def scale_figures(said: Reading) -> list[dict[str, Any]]:
    """How well the row is predicted at this scale."""
    count = len(said.tokens)
    value, unit = split_ms(said.ms)
    return [
        {
            "id": "scale_mean",
            "value": probability(said.mean),
            "unit": f"p of a token at {said.factor:g}",
            "badge": "MEASURED",
            "note": "geometric mean over the row",
            "title": "How probable the row's own words are with so much of the update.",
        },
        {
            "id": "scale_own",
            "value": f"{said.own:,}",
            "unit": f"of {count:,} are its first choice",
            "badge": "MEASURED",
            "note": typeset_share(said.own / count) if count else "",
            "title": "Places at which greedy decoding would take the row's own token.",
        },
        {
            "id": "scale_ms",
            "value": value,
            "unit": f"{unit} to read the row" if unit else "to read the row",
            "badge": "MEASURED",
            "note": "one pass, nothing is loaded",
            "title": "The update is beside the weights, so another scale is one multiplication.",
        },
    ]


def token_rows(said: Reading, own: Mapping[int, float], what: str) -> list[BarRow]:
    """A bar for each token; a ring where the run itself had it."""
    rows = []
    for token in said.tokens[:MOST_SHOWN]:
        before = own.get(token.index)
        same = token.best_id == token.token_id
        known = before is not None and math.isfinite(before)
        rows.append(
            BarRow(
                label=_short(visible(token.text), MOST_LABEL),
                mono=True,
                bars=[Bar(token.p, NOW)],
                cells=[
                    probability(token.p),
                    probability(before) if before is not None else "–",
                    "the same" if same else _short(visible(token.best), 12),
                ],
                dots=[(before, what)] if before is not None and known else [],
                title=f"new token {token.index + 1}, id {token.token_id}; most probable: {visible(token.best)[:28]} "
                f"{probability(token.best_p)}",
            )
        )
    return rows


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def quality_rows(at: Mapping[float, Reading], factor: float) -> list[BarRow]:
    """The row at each scale that was read."""
    return [
        BarRow(
            label=f"{scale:g}",
            bars=[Bar(said.mean, NOW if math.isclose(scale, factor) else RUN)],
            cells=[probability(said.mean), f"{said.own:,} of {len(said.tokens):,}"],
            title=f"scale {scale:g}",
        )
        for scale, said in sorted(at.items())
        if math.isfinite(said.mean)
    ]


def scale_table(said: Reading | None) -> Table:
    """Every token that was read."""
    head = ["scale", "new token", "token", "id", "p", "most probable", "its p"]
    tokens: Sequence[Token] = said.tokens if said else ()
    rows = [[said.factor if said else 0, t.index + 1, t.text, t.token_id, t.p, t.best, t.best_p] for t in tokens]
    return Table("scale", head, rows)
