"""Which words change? The same prompt by the base and by a changed model, two rows on one axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import ipywidgets as ipw

from widgets.bar_table import BarTable, Column
from widgets.controls import Controls
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.figure import FigureRow
from widgets.section import Section, choose_children, heading, section, sections
from widgets.shown import show_if
from widgets.text import Words
from widgets.token_text import plain_text, quoted
from widgets.verdict import Verdict
from widgets.word_pairs import Pair, WordPairs
from widgets.words.naming import Naming
from widgets.words.rows import (
    MOST_CANDIDATES,
    P,
    Q,
    by_index,
    candidate_rows,
    different_rows,
    figures,
    pairs,
    variant_rows,
    verdict,
)
from widgets.words.state import WordsState

S = TypeVar("S", bound=WordsState)


class WordsSection(Section[S]):
    """Two rows, the most different words first, and one word explained. A page's own class sets `naming`.

    Attributes:
        naming: what the two models are called; that of the page's state.
        variant: whose row stands below the base's; "" takes the first.
        hover, locked: the place pointed at, and the one that a click holds.
    """

    naming: ClassVar[Naming]

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        naming = self.naming
        self.variant = ""
        self.hover: int | None = None
        self.locked: int | None = None
        self._verdict = Verdict()
        self._choice = Controls(schema={"properties": {}})
        self._choice.on_values(self._chosen)
        self._choice.add_class("lab-inline")
        self._pairs = self.make_pairs()
        self._pairs.on_hover(self._point)
        self._pairs.on_lock(self._hold)
        self._legend = Words(css_class="lab-caption")
        self._figures = FigureRow()
        self._texts = Words(css_class="lab-result")
        self._table = DataTable(summary="Table of both rows")
        self._all = BarTable(label="All variants", first="variant", picture="variants")
        self._different = BarTable(label="The most different words first", first="token", picture="different words")
        self._why = Words(css_class="lab-heading")
        self._candidates = BarTable(label="What could stand here", first="token", picture="candidates")
        self._caption = Words(css_class="lab-caption")
        self._compared = DataTable(summary="Table of all words")
        self._rows = section(
            self._verdict, self._choice, self._pairs, self._legend, self._texts, self._figures, self._table
        )
        self._beside = section(
            heading(
                "All variants beside one another",
                f"MEASURED: {naming.kl} on the {naming.base} text, which all of them read.",
            ),
            self._all,
        )
        self._most = section(
            heading(
                "Most different first",
                f"MEASURED. Both models read the {naming.base} text; at each place their next tokens are compared "
                f"over the whole vocabulary: {naming.kl}.",
            ),
            self._different,
            self._why,
            self._candidates,
            self._caption,
            self._compared,
        )
        self.widget = sections(self._rows)

    def reset(self) -> None:
        self.hover = self.locked = None

    def _chosen(self, values: dict[str, Any]) -> None:
        if isinstance(values.get("variant"), str):
            with self._desk.lock:
                self.variant = values["variant"]
            self._desk.touch()

    def _point(self, place: int | None) -> None:
        with self._desk.lock:
            self.hover = place
        self._desk.touch()

    def _hold(self, place: int | None) -> None:
        with self._desk.lock:
            self.locked = place
        self._desk.touch()

    def shown(self, state: S) -> str:
        """The variant on screen: the chosen one if the run has it, else the first."""
        names = [v.name for v in state.others]
        return self.variant if self.variant in names else names[0] if names else ""

    def place(self, state: S, upto: int) -> int | None:
        """The word that is explained: pointed at, locked, else the most different one up to `upto`."""
        found = state.compared.get(self.shown(state))
        there = by_index(found.words) if found else {}
        for place in (self.hover, self.locked):
            if place is not None and place in there and place <= upto:
                return place
        ranked = [found.words[i].index for i in found.order if 0 <= i < len(found.words)] if found else []
        return next((place for place in ranked if place <= upto), None)

    def render(self, state: S, upto: int, *, live: bool) -> None:
        name = self.shown(state)
        found = state.compared.get(name)
        place = self.place(state, upto)
        tone, text, notes = self.verdict_of(state, name, upto, live=live)
        self._verdict.show(tone, text, *notes)
        self._show_choice(state, name)
        self._pairs.show(self.pairs_of(state, name, upto), selected=place, locked=self.locked)
        self._legend.say(("p", self.legend_of(state, name)))
        self._texts.say(*texts(state, self.rows_of(state, name), upto))
        self._figures.show(figures(found, self.naming))
        self._all.show(variant_rows(state), (Column("KL, nats", Q), Column("words part at")))
        self._different.show(
            different_rows(found, self.naming),
            (
                Column(f"{self.naming.base} p", P),
                Column(f"{self.naming.changed} q", Q),
                Column("KL"),
                Column("top now"),
            ),
            most=1.0,
            empty="The comparison follows when both rows are written." if live else "Nothing was compared.",
        )
        self._explain(state, name, place)
        if not live:
            self._table.show(row_table(state, name))
            self._compared.show(compared_table(state, name))
        parts = [self._rows, self._most]
        parts += [self._beside] if len(state.others) > 1 else []
        choose_children(self.widget, [*parts, *self.more(state, name)])

    def make_pairs(self) -> WordPairs:
        """The rows' view; it and the four below are a page's own where it shows other rows."""
        naming = self.naming
        label = f"{naming.base.capitalize()} row above, {naming.changed} row below"
        return WordPairs(label=label, empty="No tokens yet. Press Run.")

    def verdict_of(self, state: S, name: str, upto: int, *, live: bool) -> tuple[str, str, list[str]]:
        """Tone, heading and notes of the variant on screen."""
        return verdict(state, name, upto, live=live)

    def pairs_of(self, state: S, name: str, upto: int) -> list[Pair]:
        """The rows, place by place."""
        return pairs(state, name, upto)

    def rows_of(self, state: S, name: str) -> Sequence[str]:
        """Variants whose rows are on screen."""
        return (state.naming.base, name)

    def legend_of(self, state: S, name: str) -> str:
        """What the rows are."""
        return _legend(state, name)

    def more(self, state: S, name: str) -> Sequence[ipw.Widget]:
        """Sections below these for the variant on screen, drawn now; a page's own class says which."""
        del state, name
        return ()

    def more_tables(self, state: S) -> Sequence[Table]:
        """The data behind them."""
        del state
        return ()

    def _show_choice(self, state: S, name: str) -> None:
        there = state.others
        show_if(len(there) > 1, self._choice)
        if len(there) < 2:
            return
        field = {
            "type": "string",
            "title": "Lower row",
            "enum": [v.name for v in there],
            "labels": [v.label for v in there],
            "default": there[0].name,
            "hint": "select" if len(there) > 3 or max(len(v.label) for v in there) > 26 else "segmented",
            "group": "main",
        }
        self._choice.update(schema={"properties": {"variant": field}}, values={"variant": name})

    def _explain(self, state: S, name: str, place: int | None) -> None:
        """What could stand at one place, by both models."""
        found = state.compared.get(name)
        other = by_index(found.words).get(place) if found and place is not None else None
        base = next((t for t in state.words.get(self.naming.base, []) if t.index == place), None)
        if other is None:
            self._why.say()
            self._caption.say()
        else:
            flipped = "a flip" if other.flipped else "no flip"
            self._why.say(
                ("h2", f"New token {other.index + 1}, {quoted(other.text)}: {flipped}"),
                ("p", f"{self.naming.kl} = {other.kl:.4f} nats here. Point at any pair above; a click keeps it."),
            )
            self._caption.say(
                ("p", "MEASURED, over the whole vocabulary. “–”: not among that model's most probable tokens.")
            )
        columns = (Column(f"{self.naming.base} p", P), Column(f"{self.naming.changed} q", Q))
        self._candidates.show(candidate_rows(base, other), columns, most=1.0, least=MOST_CANDIDATES)

    def tables(self, state: S) -> Sequence[Table]:
        made = []
        for variant in state.others:
            made += [row_table(state, variant.name), compared_table(state, variant.name)]
        return [*made, *self.more_tables(state)]

    def link(self) -> dict[str, Any]:
        return {"row": self.variant or None, "word": None if self.locked is None else self.locked + 1}

    def restore(self, settings: dict[str, Any]) -> None:
        row, word = settings.get("row"), settings.get("word")
        if isinstance(row, str) and len(row) < 60:
            self.variant = row
        if isinstance(word, int) and not isinstance(word, bool) and 0 < word < 10_000:
            self.locked = word - 1


def _legend(state: WordsState, name: str) -> str:
    if not state.words:
        return ""
    label = state.label(name) or state.naming.changed
    base = state.naming.base
    return (
        f"MEASURED, greedy. Above: {base}. Below: {label}; ≠ marks another token. Small figures: the token's own "
        f"probability. Green line: how far the models are apart at this place of the {base} text."
    )


def texts(state: WordsState, rows: Sequence[str], upto: int) -> list[tuple[str, str]]:
    """The rows of these variants as lines of text."""
    lines = []
    for row in rows:
        who = row if row == state.naming.base else state.label(row)
        text = "".join(t.text for t in state.words.get(row, [])[: upto + 1] if not t.is_end)
        if text:
            lines += [("p", f"{who}: {plain_text(text.strip(' '))}")]
    return [("p", "As text"), *lines] if lines else []


def _number(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


def row_table(state: WordsState, name: str) -> Table:
    """Both greedy rows, place by place."""
    base, other = state.words.get(state.naming.base, []), state.words.get(name, [])
    rows = []
    for place in range(max(len(base), len(other))):
        a = base[place] if place < len(base) else None
        b = other[place] if place < len(other) else None
        rows.append(
            [
                place + 1,
                a.text if a else None,
                a.token_id if a else None,
                _number(a.p) if a else None,
                b.text if b else None,
                b.token_id if b else None,
                _number(b.p) if b else None,
                ("yes" if a.token_id == b.token_id else "no") if a and b else None,
            ]
        )
    naming = state.naming
    return Table(f"words_{name}", ["new token", naming.base, "id", "p", naming.changed, "id", "p", "same"], rows)


def compared_table(state: WordsState, name: str) -> Table:
    """The base's text as both models see it, the most different place first."""
    found = state.compared.get(name)
    rows = []
    for index in found.order if found else ():
        if not 0 <= index < len(found.words if found else ()):
            continue
        w = found.words[index]  # type: ignore[union-attr]
        top = w.top[0].text if w.top else None
        rows.append([w.index + 1, w.text, w.token_id, _number(w.p), _number(w.q), _number(w.kl), top, w.flipped])
    naming = state.naming
    head = ["new token", "token", "id", f"{naming.base} p", f"{naming.changed} q", f"{naming.kl}, nats"]
    head += [f"{naming.changed} top", "flip"]
    return Table(f"compared_{name}", head, rows)
