"""What did it do to the rest? The adapted model beside the base on text that it was not trained for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lab.events.evaluation import Divergence
from widgets.bar_table import Bar, BarRow, BarTable, Column
from widgets.experiment import Desk, Table
from widgets.figure import FigureRow
from widgets.format import format_number, typeset_share
from widgets.lora.state import ADAPTER, BASE, SERIES, LoraState
from widgets.section import Section, heading, section
from widgets.text import Words


class OtherSection(Section[LoraState]):
    """Divergence, flips and perplexity on held-out text of another kind."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._figures = FigureRow()
        self._bars = BarTable(label="Perplexity on other text", first="", picture="other text")
        self._caption = Words(css_class="lab-caption")
        self.widget = section(
            heading(
                "What did it do to the rest?",
                "An adapter is trained for one thing. On other text it should change little; often it does not.",
            ),
            self._figures,
            self._bars,
            self._caption,
        )

    @classmethod
    def present(cls, state: LoraState) -> bool:
        return state.other_text is not None

    def render(self, state: LoraState, upto: int, *, live: bool) -> None:
        del upto, live
        if state.other_text is None:
            return
        d = state.other_text.divergence
        self._figures.show(other_figures(d))
        self._bars.show(perplexity_rows(d), (Column("perplexity"), Column("bits a byte")), empty="n/a: too few tokens")
        self._caption.say(("p", f"MEASURED on {d.positions:,} positions of held-out text ({d.text_hash})."))

    def tables(self, state: LoraState) -> Sequence[Table]:
        return (other_table(state),)


def other_figures(d: Divergence) -> list[dict[str, Any]]:
    """Divergence, its worst place, flips."""
    return [
        {
            "id": "other_kl",
            "value": format_number(d.kl),
            "unit": "nats, KL(base ‖ adapted)",
            "badge": "MEASURED",
            "note": f"worst position {format_number(d.worst_kl)}",
            "title": "Mean over the positions of the held-out text.",
        },
        {
            "id": "other_flips",
            "value": f"{d.flips:,}",
            "unit": f"flips of {d.positions:,}",
            "badge": "MEASURED",
            "note": typeset_share(d.flips / d.positions) if d.positions else "",
            "title": "Positions whose most probable next token is another one.",
        },
        {
            "id": "other_perplexity",
            "value": format_number(d.perplexity) if d.perplexity is not None else "n/a",
            "unit": "perplexity, adapted",
            "badge": "MEASURED",
            "note": f"base {format_number(d.dense_perplexity)}" if d.dense_perplexity is not None else "",
            "title": "exp of the mean of −log p of the text's own tokens.",
        },
    ]


def perplexity_rows(d: Divergence) -> list[BarRow]:
    """Base and adapted."""
    rows: list[BarRow] = []
    both = (
        ("base", d.dense_perplexity, d.dense_bits_per_byte, SERIES[BASE]),
        ("adapted", d.perplexity, d.bits_per_byte, SERIES[ADAPTER]),
    )
    for name, value, bits, series in both:
        if value is not None and math.isfinite(value):
            rows.append(BarRow(name, [Bar(value, series)], [format_number(value), format_number(bits)]))
    return rows


def other_table(state: LoraState) -> Table:
    """One row."""
    head = ["adapter", "KL, nats", "worst KL", "flips", "positions", "perplexity", "base perplexity"]
    found = state.other_text
    if found is None:
        return Table("other_text", head, [])
    d = found.divergence
    numbers = [_number(d.kl), _number(d.worst_kl), d.flips, d.positions, _number(d.perplexity)]
    return Table("other_text", head, [[found.adapter, *numbers, _number(d.dense_perplexity)]])


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")
