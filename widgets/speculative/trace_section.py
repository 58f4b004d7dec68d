"""The text as it came about, and why each token stands or not."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import ipywidgets as ipw

from lab.events.speculative import Judged, Share
from widgets.bar_table import BarTable
from widgets.data_table import DataTable
from widgets.experiment import Desk
from widgets.figure import FigureRow
from widgets.gauge import Gauge
from widgets.kind_legend import KindLegend
from widgets.section import section
from widgets.speculative import sentences
from widgets.speculative.figures import headline
from widgets.speculative.sections import SHARE_COLUMNS, share_rows
from widgets.speculative.state import FIRST, SpeculativeState, Spot, reading_order
from widgets.speculative.tables import share_table, token_table
from widgets.text import Words
from widgets.token_strip import TokenStrip

Chip = dict[str, Any]


class TraceSection:
    """Strip, headline figures, and the explanation of one token.

    Attributes:
        hover, locked: the token pointed at, and the one that a click holds; for all sections.
        dropped: whether tokens that do not stand are in the strip. Part of the link.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.hover: Spot | None = None
        self.locked: Spot | None = None
        self.dropped = True
        self._spots: list[Spot] = []
        self._chips: dict[int, tuple[list[int], list[Chip], list[int]]] = {}
        self._strip = TokenStrip(empty="No tokens yet. Press Run.")
        self._strip.on_hover(lambda index: self.point(self._at(index)))
        self._strip.on_lock(lambda index: self.hold(self._at(index)))
        self._legend = KindLegend()
        self._legend.on_dropped(self._show_dropped)
        self._figures = FigureRow()
        self._tokens = DataTable(summary="All tokens")
        self._why = Words(css_class="lab-heading")
        self._answer = Words(css_class="lab-answer")
        self._gauge = Gauge()
        self._bars = BarTable(first="token", picture="why")
        self._caption = Words(css_class="lab-caption")
        self._shares = DataTable()
        self._read = Words(css_class="lab-result")
        self.text = section(self._strip, self._legend, self._read, self._figures, self._tokens)
        self.why = section(self._why, self._answer, self._gauge, self._bars, self._caption, self._shares)
        self.widgets: list[ipw.Widget] = [self.text, self.why]

    def reset(self, *, keep_lock: bool = False) -> None:
        """Another run begins."""
        self.hover = None
        self.locked = self.locked if keep_lock else None
        self._chips.clear()

    def point(self, spot: Spot | None) -> None:
        """The pointer or the focus moved."""
        with self._desk.lock:
            self.hover = spot
        self._desk.touch()

    def hold(self, spot: Spot | None) -> None:
        """A click locks a token, or takes the lock off."""
        with self._desk.lock:
            self.locked = spot
        self._desk.touch()

    def _show_dropped(self, dropped: bool) -> None:
        with self._desk.lock:
            self.dropped = dropped
        self._desk.touch()

    def _at(self, index: int | None) -> Spot | None:
        """The spot of a chip; None for a chip of the prompt."""
        at = -1 if index is None else index - (len(self._strip_prompt))
        return self._spots[at] if 0 <= at < len(self._spots) else None

    _strip_prompt: tuple[str, ...] = ()

    def spot(self, state: SpeculativeState, upto: int) -> Spot | None:
        """What is explained: the token pointed at, else the locked one, else the newest rejection."""
        for spot in (self.hover, self.locked):
            if spot is not None and spot.round <= upto and (state.token(spot) or (spot.round == FIRST and state.first)):
                return spot
        return state.default_spot(upto)

    def render(self, state: SpeculativeState, upto: int, *, live: bool) -> Spot | None:
        """Draw the run up to round `upto`; gives back what is explained."""
        spot = self.spot(state, upto)
        self._render_strip(state, upto, spot, follow=live or self._desk.cursor.step is not None)
        text = state.text(upto)
        self._read.say(*((("p", "The text that stands"), ("p", text)) if text else ()))
        self._figures.show(headline(state, upto))
        self._render_why(state, spot)
        if not live:
            self._tokens.show(token_table(state, upto), caption="All tokens of all rounds")
        return spot

    def _render_strip(self, state: SpeculativeState, upto: int, spot: Spot | None, *, follow: bool) -> None:
        prompt = state.prompt
        texts = prompt.texts if prompt else ()
        self._strip_prompt = texts
        chips: list[Chip] = [
            {"text": text, "kind": "prompt", "title": f"prompt position {i}, token {token}"}
            for i, (text, token) in enumerate(zip(texts, prompt.token_ids if prompt else (), strict=False))
        ]
        spots: list[Spot] = []
        if state.first is not None:
            spots.append(Spot(FIRST, 0))
            chips.append(
                {"text": state.first.text, "kind": "new", "title": sentences.short(state, spots[0])},
            )
        counts: Counter[str] = Counter()
        for index in range(min(upto + 1, len(state.rounds))):
            order, made, standing = self._round(state, index)
            counts.update(t.kind for t in state.rounds[index].tokens)
            for row in order if self.dropped else standing:
                spots.append(Spot(index, row))
                chips.append(made[row])
        self._spots = spots
        places = {s: i + len(texts) for i, s in enumerate(spots)}
        self._strip.show(
            chips,
            selected=places.get(spot) if spot else None,
            locked=places.get(self.locked or Spot(-9, 0)),
            follow=follow,
        )
        self._legend.show(counts, dropped=self.dropped)

    def _round(self, state: SpeculativeState, index: int) -> tuple[list[int], list[Chip], list[int]]:
        """Reading order, chips by row, and the order of those that stand; made once a round."""
        if index not in self._chips:
            chips = [
                {"text": t.text, "kind": t.kind, "title": sentences.short(state, Spot(index, row))}
                for row, t in enumerate(state.rounds[index].tokens)
            ]
            full, standing = (reading_order(state.rounds[index], dropped=d) for d in (True, False))
            self._chips[index] = (full, chips, standing)
        return self._chips[index]

    def _render_why(self, state: SpeculativeState, spot: Spot | None) -> None:
        token = state.token(spot)
        where = ""
        if token is not None and spot is not None:
            where = f"New token {token.position + 1}, round {spot.round + 1}, place {token.depth + 1}."
        hint = (
            "Point at any token to ask about it; a click keeps it."
            if spot and self.hover is None and self.locked is None
            else ""
        )
        self._why.say(("h2", sentences.heading(state, spot)), ("p", f"{where} {hint}".strip()))
        self._answer.say(*(("p", text) for text in sentences.sentences(state, spot)))
        if token is not None and math.isfinite(token.u) and math.isfinite(token.accept):
            self._gauge.show(token.accept, token.u, *sentences.pair(token.accept, token.u))
        else:
            self._gauge.hide()
        shares, kinds = _shares(state, spot, token)
        only_p = token is not None and token.kind in ("bonus", "plain")
        self._bars.show(
            share_rows(shares, kinds, only_p=only_p),
            SHARE_COLUMNS[:1] if only_p else SHARE_COLUMNS,
            label="p, q and the residual at this position",
        )
        self._caption.say(*(("p", text) for text in [_caption(shares, token, state)] if text))
        self._shares.show(share_table(tuple(shares), "distributions at this position"))


def _shares(state: SpeculativeState, spot: Spot | None, token: Judged | None) -> tuple[list[Share], dict[int, str]]:
    """The distributions where `token` was judged or put in, and what became of which token."""
    if spot is None or token is None or token.kind == "unjudged":
        return [], {}
    here = [t for t in state.rounds[spot.round].tokens if t.position == token.position and t.kind != "unjudged"]
    shares = token.shares or next((t.shares for t in here if t.shares), ())
    kinds: dict[int, str] = {t.token_id: t.kind for t in here}
    kinds[token.token_id] = token.kind
    if state.greedy:
        shares = tuple(s for s in shares if s.token_id in kinds or s.p > 0 or s.q > 0)
    return list(shares), kinds


def _caption(shares: list[Share], token: Judged | None, state: SpeculativeState) -> str:
    if not shares or token is None:
        return ""
    if state.greedy:
        return "MEASURED. Without sampling all of p lies on the model's top token, and all of q on the proposed one."
    if token.kind in ("bonus", "plain"):
        return "MEASURED: the model's distribution p, from which the token was drawn."
    rule = "" if state.param("break_run", "nothing") != "nothing" else "; a replacement is drawn from it"
    return (
        "MEASURED: p and q after temperature, top-k and top-p: what tokens are really drawn from. Residual: what p has "
        f"more than q, scaled to sum to 1{rule}."
    )
