"""A `Comparison` drawn: what differs, figures, pictures on shared axes, words, and a table behind each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import ipywidgets as ipw

from widgets.bar_table import Bar, BarRow, BarTable, Column
from widgets.comparison.data import Comparison, FigurePair, SharedPlot, SharedText, Side
from widgets.comparison.plot import COLOURS, TwoRunsPlot
from widgets.comparison.told import Token
from widgets.data_table import DataTable
from widgets.experiment import Table
from widgets.format import NOTHING, format_number
from widgets.numbers import capital
from widgets.section import choose_children, heading, section
from widgets.side_by_side import SideBySide, SideRow
from widgets.text import Words
from widgets.token_text import plain_text, quoted
from widgets.verdict import Verdict
from widgets.word_pairs import LIMIT, Pair, Word, WordPairs

MOST_BARS = 40
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
BEFORE = 20
"""Tokens shown before the first difference of long texts."""


class ComparisonView:
    """All of two runs side by side; `show` may come often while one of them goes on.

    Attributes:
        widget: nothing is in it before the first `show`.
    """

    def __init__(self) -> None:
        self._verdict = Verdict()
        self._legend = Words(css_class="lab-caption")
        self._settings = SideBySide(label="Settings that differ", first="setting")
        self._figures = SideBySide(label="Figures of both runs", first="figure", against="B against A")
        self._caption = Words(css_class="lab-caption")
        self._table = DataTable(summary="Table of the figures")
        self._plots: dict[str, _Plot | _Bars] = {}
        self._texts: dict[str, _Text] = {}
        self.widget = section()

    def show(self, found: Comparison, *, live: bool = False) -> None:
        """Draw it; tables behind the pictures wait for the end of a living run."""
        self._verdict.show(*verdict(found))
        self._legend.legend(
            [
                (f"A  ● {side_words(found.a)}", COLOURS["a"], False),
                (f"B  ■ {side_words(found.b)}", COLOURS["b"], True),
            ]
        )
        self._settings.show(setting_rows(found))
        marks = foot_marks(found)
        self._figures.show([figure_row(f, marks.get(f.note, "")) for f in found.figures])
        self._caption.say(*(("p", text) for text in captions(found)))
        parts: list[ipw.Widget] = [self._verdict, self._legend, self._settings, self._figures, self._caption]
        parts += [self._table] if found.figures else []
        for plot in found.plots:
            kind = _Bars if plot.named else _Plot
            key = f"{plot.id} {kind.__name__}"
            if key not in self._plots:
                self._plots[key] = kind(plot)
            self._plots[key].show(plot, live=live)
            parts += self._plots[key].parts
        for text in found.texts:
            if text.id not in self._texts:
                self._texts[text.id] = _Text(text)
            self._texts[text.id].show(text, live=live)
            parts += self._texts[text.id].parts
        if not live and found.figures:
            self._table.show(figure_table(found))
        choose_children(self.widget, parts)


class _Plot:
    """A picture with its heading and its table."""

    def __init__(self, shared: SharedPlot) -> None:
        self._heading = heading(shared.title)
        self._plot = TwoRunsPlot(shared.x, shared.y)
        self._table = DataTable(summary=f"Table: {shared.title}")
        self.parts: list[ipw.Widget] = [self._heading, self._plot, self._table]

    def show(self, shared: SharedPlot, *, live: bool) -> None:
        self._heading.say(("h2", shared.title), ("p", plot_words(shared)))
        self._plot.show(shared)
        if not live:
            self._table.show(plot_table(shared))


class _Bars:
    """The same for places that are names."""

    def __init__(self, shared: SharedPlot) -> None:
        self._heading = heading(shared.title)
        self._bars = BarTable(label=shared.title, first=shared.x, picture=shared.title)
        self._table = DataTable(summary=f"Table: {shared.title}")
        self.parts: list[ipw.Widget] = [self._heading, self._bars, self._table]

    def show(self, shared: SharedPlot, *, live: bool) -> None:
        rows = joined(shared)
        more = f" The first {MOST_BARS} of {len(rows)}; the table has all." if len(rows) > MOST_BARS else ""
        self._heading.say(("h2", shared.title), ("p", f"{plot_words(shared)}{more}"))
        self._bars.show(
            [
                BarRow(
                    label=plain_text(str(place)),
                    bars=[Bar(a or 0.0, 1), Bar(b or 0.0, 2)],
                    cells=[format_number(a), format_number(b)],
                )
                for place, a, b in rows[:MOST_BARS]
            ],
            (Column("A", 1), Column("B", 2)),
        )
        if not live:
            self._table.show(plot_table(shared))


class _Text:
    """Both texts, token above token."""

    def __init__(self, shared: SharedText) -> None:
        self._heading = heading(shared.title)
        self._pairs = WordPairs(label=f"{shared.title}: A above, B below")
        self._texts = Words(css_class="lab-result")
        self._table = DataTable(summary=f"Table: {shared.title}")
        self.parts: list[ipw.Widget] = []

    def show(self, shared: SharedText, *, live: bool) -> None:
        one = shared.first is None  # a text that both wrote stands there once
        self.parts = [self._heading, *([] if one else [self._pairs]), self._texts, self._table]
        self._heading.say(("h2", shared.title), ("p", text_words(shared)))
        start, pairs = text_pairs(shared)
        self._pairs.show(pairs, selected=None if shared.first is None else shared.first - start)
        self._texts.say(*text_lines(shared))
        if not live:
            self._table.show(text_table(shared))


def side_words(side: Side) -> str:
    """Who this is, in a few words."""
    when = "live" if side.live else f"recorded {side.recorded[:16].replace('T', ' ')}".rstrip()
    return plain_text(f"{side.model}, {when}, {side.end}")


def verdict(found: Comparison) -> tuple[str, ...]:
    """Tone, heading and notes: how many settings differ, and what cannot be compared."""
    notes = [plain_text(text) for text in found.cannot]
    names = [d.title for d in found.differences]
    if found.cannot and not found.shared:
        return "none", "These two cannot be compared", *notes
    if not names:
        return "even", "The same settings: what differs is chance and what ran beside", *notes
    some = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    count = "One setting differs" if len(names) == 1 else f"{len(names)} settings differ"
    return "none", plain_text(f"{count}: {some}"), *notes


def setting_rows(found: Comparison) -> list[SideRow]:
    """The settings that differ."""
    return [SideRow(d.name, plain_text(d.title), plain_text(d.a), plain_text(d.b)) for d in found.differences]


def foot_marks(found: Comparison) -> dict[str, str]:
    """A mark for each note of figures: the note stands once, below the table."""
    notes = dict.fromkeys(f.note for f in found.figures if f.note)
    return {note: str(i).translate(_RAISED) for i, note in enumerate(notes, 1)}


def figure_row(pair: FigurePair, mark: str = "") -> SideRow:
    """A figure: bars as long as the values, the larger one of full length; none where one is below 0 or
    they are not set against each other.

    Args:
        mark: of its note.
    """
    values = [v for v in (pair.a, pair.b) if v is not None]
    top = max(values, default=0.0)
    drawn = top > 0 and min(values) >= 0 and pair.against_text != NOTHING
    shares = tuple(None if v is None or not drawn else v / top for v in (pair.a, pair.b))
    against = f"{pair.against_text} {mark}".rstrip()
    return SideRow(pair.id, pair.name, pair.a_text, pair.b_text, against, badge(pair), (shares[0], shares[1]))


def badge(pair: FigurePair) -> str:
    """Where the figure comes from; both where that differs."""
    kinds = dict.fromkeys(b for b in (pair.a_badge, pair.b_badge) if b)
    return " / ".join(kinds)


def captions(found: Comparison) -> list[str]:
    """What must be known of the figures."""
    if not found.figures:
        return [plain_text(note) for note in found.notes]
    words = "B against A: times, rates, sizes and errors as B / A, counts, shares and scores as B\u00a0−\u00a0A."
    marked = [f"{mark} {note[:1].upper()}{note[1:]}." for note, mark in foot_marks(found).items()]
    return [words, *(plain_text(note) for note in (*marked, *found.notes))]


def plot_words(shared: SharedPlot) -> str:
    """Where the picture comes from, and what must be known of its times."""
    badges = " / ".join(dict.fromkeys(shared.badges))
    unit = f", {shared.y}" if shared.named else ""
    note = f" {shared.note[:1].upper()}{shared.note[1:]}." if shared.note else ""
    return f"{badges}{unit}.{note}"


def joined(shared: SharedPlot) -> list[tuple[float | str, float | None, float | None]]:
    """Places of both with both values, numbers in their order, names as they came."""
    a, b = dict(shared.a), dict(shared.b)
    places = list(dict.fromkeys((*a, *b)))
    if not shared.named:
        places.sort(key=float)
    return [(place, a.get(place), b.get(place)) for place in places]


def plot_table(shared: SharedPlot) -> Table:
    """The data behind a picture."""
    if not shared.joined and not shared.named:  # several marks may have one place
        rows = [[x, y, "A"] for x, y in shared.a] + [[x, y, "B"] for x, y in shared.b]
        return Table(f"compare_{shared.id}", [shared.x, shared.y, "run"], rows)
    head = [shared.x, f"A: {shared.y}", f"B: {shared.y}"]
    return Table(f"compare_{shared.id}", head, [list(row) for row in joined(shared)])


def figure_table(found: Comparison) -> Table:
    """The figures unrounded."""
    rows = [[f.name, f.a, f.b, f.against, "B / A" if f.ratio else "B − A", badge(f), f.note] for f in found.figures]
    return Table("compare_figures", ["figure", "A", "B", "B against A", "as", "from", "note"], rows)


def text_words(shared: SharedText) -> str:
    """Where both part."""
    i = shared.first
    if i is None or i >= min(len(shared.a), len(shared.b)):
        return f"{capital(shared.said)}."
    a, b = (quoted(row[i].text, 24) for row in (shared.a, shared.b))
    return f"First difference at token {i + 1}: A {a}, B {b}. From there on the texts before them differ too."


def text_pairs(shared: SharedText) -> tuple[int, list[Pair]]:
    """The place of the first pair, and the pairs; of long texts those around the first difference."""
    both = list(zip_longest(shared.a, shared.b))
    start = max(0, min((shared.first or 0) - BEFORE, len(both) - LIMIT)) if len(both) > LIMIT else 0
    return start, [_pair(i, a, b) for i, (a, b) in enumerate(both[start : start + LIMIT], start)]


def _pair(i: int, a: Token | None, b: Token | None) -> Pair:
    same = (a.id, a.text) == (b.id, b.text) if a and b else None
    sides = [f"{who} {quoted(t.text)}" for who, t in (("A", a), ("B", b)) if t]
    said = {True: "the same token", False: "another token", None: f"only {'A' if a else 'B'}"}[same]
    return Pair(
        Word(a.text, "") if a else None,
        Word(b.text, "") if b else None,
        same,
        None,
        f"new token {i + 1}, {', '.join(sides)}, {said}",
    )


def text_lines(shared: SharedText) -> Sequence[tuple[str, str]]:
    """Both as text."""
    sides = (("A", shared.a), ("B", shared.b)) if shared.first is not None else (("Both", shared.a),)
    lines = [(who, "".join(t.text for t in row)) for who, row in sides]
    return [("p", "As text"), *(("p", f"{who}: {plain_text(text.strip(' ')) or NOTHING}") for who, text in lines)]


def text_table(shared: SharedText) -> Table:
    """Both texts, place by place."""
    rows = [
        [i, *(cell for t in (a, b) for cell in ((t.text, t.id) if t else (None, None)))]
        for i, (a, b) in enumerate(zip_longest(shared.a, shared.b), 1)
    ]
    return Table(f"compare_{shared.id}", ["token", "A", "id", "B", "id"], rows)
