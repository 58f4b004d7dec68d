"""The views that the `speculative` page alone has, drawn from a simulated run."""

from __future__ import annotations

import threading
from typing import Any

from speculative_sim import HOSTILE, WORDS, Toy, decode

from widgets.bar_table import Bar, BarRow, BarTable, Column, Line
from widgets.experiment import Desk
from widgets.speculative.views import SpeculativeViews
from widgets.verdict import Verdict
from widgets.view import View


def _ask(*_args: Any, **_keywords: Any) -> None:
    """Nothing is asked of a still page."""


def speculative_views() -> dict[str, View]:
    """Rounds, bars of a rejection, its gauge, the marks' legend, ranked bars, and a verdict."""
    views = SpeculativeViews(Desk(ask=_ask, touch=lambda: None, lock=threading.RLock()))
    for event in decode(Toy(words=WORDS + HOSTILE[:3]), max_new_tokens=60):
        views.fold(event)
    views.render(live=False)
    ranked = BarTable(label="Speed-up of each draft", first="draft")
    rows = [
        BarRow("look-up", [Bar(1.4, 1)], ["1.40"], dots=[(0.9, "story: 0.90"), (1.9, "copy: 1.90")]),
        BarRow("int8", note="skipped: no kernels here"),
    ]
    ranked.show(rows, [Column("× plain")], line=Line(1.0, "plain decoding"))
    verdict = Verdict()
    verdict.show("bad", "Slower, because too few guesses are accepted", "Under load: 1 other run beside it.")
    return {
        "rounds": views._rounds._rows,
        "why_bars": views._trace._bars,
        "why_gauge": views._trace._gauge,
        "kinds": views._trace._legend,
        "ranked": ranked,
        "verdict": verdict,
    }
