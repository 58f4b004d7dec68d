"""How much can go? The whole model's loss against sparsity, a line a method, point by point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lab.events.pruning import CurvePoint
from widgets.controls import Controls
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.numbers import capital, number, percent
from widgets.pruning.curve_measures import BEARABLE, FLOOR, MEASURES, dense_points, kl, measured
from widgets.pruning.curve_plot import CurvePlot
from widgets.pruning.method_marks import title_of
from widgets.pruning.state import DENSE, PruningState
from widgets.section import Section, section
from widgets.shown import show_if
from widgets.text import Words
from widgets.verdict import Verdict

_FORM: dict[str, Any] = {
    "properties": {
        "measure": {
            "type": "string",
            "title": "Against sparsity",
            "enum": list(MEASURES),
            "labels": [measure.label for measure in MEASURES.values()],
            "default": "kl",
            "hint": "segmented",
            "group": "main",
        }
    }
}


class CurveSection(Section[PruningState]):
    """The verdict, the plot of one measure, what was skipped, the table.

    Attributes:
        measure: a name in `MEASURES`.
    """

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.measure = "kl"
        self._verdict = Verdict()
        self._controls = Controls(schema=_FORM, values={"measure": self.measure})
        self._controls.on_values(self._chosen)
        self._controls.add_class("lab-inline")
        self._plot = CurvePlot()
        self._caption = Words(css_class="lab-caption")
        self._skipped = Words(css_class="lab-caption")
        self._table = DataTable(summary="Table of all points")
        self.widget = section(self._verdict, self._controls, self._plot, self._caption, self._skipped, self._table)

    def _chosen(self, values: dict[str, Any]) -> None:
        if values.get("measure") in MEASURES:
            with self._desk.lock:
                self.measure = values["measure"]
            self._desk.touch()

    def render(self, state: PruningState, upto: int, *, live: bool) -> None:
        points = state.curve[: upto + 1]
        self._verdict.show(*curve_verdict(points, live=live, ended=state.end is not None))
        self._controls.set_values({"measure": self.measure})
        show_if(live or points, self._controls, self._plot, self._caption, self._table)
        self._plot.show(points, MEASURES[self.measure])
        self._caption.say(("p", _caption(points, self.measure, live=live)))
        skipped = [p for p in points if p.skipped]
        self._skipped.say(*(("p", f"Skipped: {p.setting.label}. {_sentence(p.skipped)}") for p in skipped))
        if not live:
            self._table.show(curve_table(points), caption="Points in the order in which they came")

    def tables(self, state: PruningState) -> Sequence[Table]:
        return (curve_table(state.curve),)

    def link(self) -> dict[str, Any]:
        return {"curve_measure": None if self.measure == "kl" else self.measure}

    def restore(self, settings: dict[str, Any]) -> None:
        wanted = settings.get("curve_measure")
        if isinstance(wanted, str) and wanted in MEASURES:
            self.measure = wanted


def curve_verdict(points: Sequence[CurvePoint], *, live: bool, ended: bool) -> tuple[str, str, str, str]:
    """Tone, heading and notes: what can go within `BEARABLE`, and which method loses least at the run's sparsity."""
    drawn = measured(points)
    total = max((p.total for p in points), default=0)
    part = (
        f"{'Stopped after' if ended else 'After'} {len(points):,} of {total:,} points." if len(points) < total else ""
    )
    if not drawn:
        return "pending" if live else "none", "No point was measured." if ended else "No point measured yet.", part, ""
    tone = "pending" if live else "none"
    within = [p for p in drawn if kl(p) <= BEARABLE]
    most = max(within, key=lambda p: p.sparsity, default=None)
    so_far = " so far" if live or part else ""
    if most is None:
        least = min(drawn, key=kl)
        text = f"Each point{so_far} loses over {BEARABLE:g} nats; least: {least.setting.label}, {number(kl(least))}"
    else:
        best = title_of(most.setting.method)
        text = f"Up to {percent(most.sparsity)} can go within {BEARABLE:g} nats{so_far}, by {best}"
    return tone, text, _duel(drawn), part


def _duel(drawn: Sequence[CurvePoint]) -> str:
    """The methods at one sparsity: the run's own, else the largest that two of them have."""
    own = next((p.sparsity for p in drawn if p.chosen), None)
    shares = sorted({p.sparsity for p in drawn}, key=lambda s: (own is not None and abs(s - own) < 1e-3, s))
    for share in reversed(shares):
        at = sorted((p for p in drawn if abs(p.sparsity - share) < 5e-3), key=kl)
        if len({p.setting.method for p in at}) > 1:
            listed = "; ".join(f"{title_of(p.setting.method)} {number(kl(p))}" for p in at)
            return f"At {percent(share)}, in nats: {listed}."
    return ""


def _caption(points: Sequence[CurvePoint], measure: str, *, live: bool) -> str:
    drawn = measured(points)
    if not drawn:
        stays = "Points appear as they are measured; what is there stays when the run is stopped."
        return stays if live else "Nothing was measured."
    first = drawn[0].divergence
    where = f" on {first.positions:,} positions of held-out text ({first.text_hash})" if first else ""
    ring = " The ring is this run's own setting." if any(p.chosen for p in drawn) else ""
    zeros = {"kl": f"a KL of 0, or of at most {number(FLOOR, 1)}: rounding", "flips": "no flip at all"}
    floor = f" On the lower edge stands {zeros[measure]}." if measure in zeros else ""
    start = " Each line begins with the dense model, at sparsity 0."
    truth = "zeros stand in dense tensors: losses are real, nothing is saved"
    return f"MEASURED{where}; {truth}. Lower is better.{start}{floor}{ring}"


def _sentence(words: str) -> str:
    return capital(words if words.endswith(".") else f"{words}.")


def curve_table(points: Sequence[CurvePoint]) -> Table:
    """One row a point; skipped ones with their reason."""
    head = ["setting", "method", "sparsity", "KL(dense ‖ pruned), nats", "worst KL", "flips", "positions", "perplexity"]
    head += ["dense perplexity", "bits per byte", "dense bits per byte", "own setting", "ms", "skipped"]
    rows = []
    dense = [(DENSE, p) for p in dense_points(points)[:1]]  # one for all methods: it is the same model
    for method, p in (*dense, *((p.setting.method, p) for p in points)):
        d = p.divergence
        measures = [d.kl, d.worst_kl, d.flips, d.positions, d.perplexity, d.dense_perplexity] if d else [None] * 6
        measures += [d.bits_per_byte, d.dense_bits_per_byte] if d else [None, None]
        cells = [value if isinstance(value, int) else _number(value) for value in measures]
        own = "yes" if p.chosen else ""
        rows.append([p.setting.label, method, _number(p.sparsity), *cells, own, _number(p.ms), p.skipped])
    return Table("sparsity_curve", head, rows)


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")
