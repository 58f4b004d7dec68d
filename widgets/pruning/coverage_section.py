"""How much of the model is really pruned, what was left alone and why."""

from __future__ import annotations

from typing import Any

from lab.events.pruning import PrunedCoverage, PrunedRow
from widgets.coverage_bar import CoverageBar, Part
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.figure import FigureRow
from widgets.format import format_count
from widgets.numbers import capital, percent
from widgets.pruning.state import PruningState
from widgets.section import Section, heading, section
from widgets.text import Words

_TRUTHS = {
    "simulated": ("SIMULATED", "zeros in dense tensors: no memory is saved"),
    "dense, smaller": ("MEASURED", "rows and columns are gone: the model is smaller"),
}


class CoverageSection(Section[PruningState]):
    """One bar of all parameters, two figures, and why something was left alone."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._bar = CoverageBar(word="pruned")
        self._figures = FigureRow()
        self._why = Words(css_class="lab-caption")
        self._table = DataTable(summary="Table of the coverage")
        self.widget = section(
            heading(
                "How much of the model is that?",
                "All parameters of the model, each tensor once: which are gone, which are left.",
            ),
            self._bar,
            self._figures,
            self._why,
            self._table,
        )

    @classmethod
    def present(cls, state: PruningState) -> bool:
        """Once it was counted."""
        return state.coverage is not None

    def render(self, state: PruningState, upto: int, *, live: bool) -> None:
        del upto
        coverage = state.coverage
        if coverage is None:
            return
        self._bar.show(parts(coverage), coverage.truth)
        self._figures.show(coverage_figures(coverage))
        self._why.say(("p", f"Counted for {coverage.setting.label}."), *(("p", words) for words in reasons(coverage)))
        if not live:
            self._table.show(coverage_table(coverage))

    def tables(self, state: PruningState) -> list[Table]:
        return [coverage_table(state.coverage)] if state.coverage else []


def parts(coverage: PrunedCoverage) -> list[Part]:
    """What is gone of each kind, then what is left of it; kinds left alone last."""
    whole = coverage.parameters or 1
    found = []
    for row in coverage.rows:
        gone = row.parameters - row.kept
        if gone > 0:
            share = gone / whole
            found.append(
                Part(row.name, share, True, f"{row.name}: {gone:,} pruned, {percent(share)} of the parameters")
            )
    for row in coverage.rows:
        if row.kept > 0:
            why = f"left alone: {row.reason}" if row.reason else "kept"
            found.append(Part(row.name, row.kept / whole, False, f"{row.name}: {row.kept:,} {why}"))
    return found


def coverage_figures(coverage: PrunedCoverage) -> list[dict[str, Any]]:
    """The share of all parameters that is gone, and of the pruned matrices."""
    badge, note = _TRUTHS.get(coverage.truth, ("SIMULATED", coverage.truth))
    touched = sum(row.parameters for row in coverage.rows if not row.reason)
    return [
        {
            "id": "gone",
            "value": percent(coverage.pruned / coverage.parameters) if coverage.parameters else "",
            "unit": "of all parameters pruned",
            "badge": badge,
            "note": note,
            "title": "Weights that are gone, of all parameters; tied ones once.",
        },
        {
            "id": "touched",
            "value": percent(coverage.pruned / touched) if touched else "",
            "unit": "of the pruned matrices",
            "badge": "MEASURED",
            "note": f"{coverage.pruned:,} of {touched:,} weights",
            "title": "Weights that are gone, of the matrices that were pruned.",
        },
    ]


def reasons(coverage: PrunedCoverage) -> list[str]:
    """Why something was left alone, what has the same reason together."""
    grouped: dict[str, list[PrunedRow]] = {}
    for row in coverage.rows:
        if row.reason:
            grouped.setdefault(row.reason, []).append(row)
    return [
        f"Left alone: {', '.join(r.name for r in rows)} ({format_count(sum(r.parameters for r in rows))} parameters). "
        f"{capital(reason).rstrip('.')}."
        for reason, rows in grouped.items()
    ]


def coverage_table(coverage: PrunedCoverage) -> Table:
    """Every kind of matrix."""
    rows = [
        [r.name, r.modules, r.parameters, r.kept, 1 - r.kept / r.parameters if r.parameters else None, r.reason]
        for r in coverage.rows
    ]
    return Table("pruned_coverage", ["what", "modules", "parameters", "kept", "pruned share", "why left alone"], rows)
