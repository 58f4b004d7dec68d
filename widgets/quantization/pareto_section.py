"""How many bits are enough? Settings of the whole model by what they cost and what they lose."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lab.events.quantization import ParetoPoint
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.format import format_bytes, format_number, typeset_share
from widgets.quantization.pareto_plot import ParetoPlot, better_than, frontier, kl, measured
from widgets.quantization.state import QuantizationState
from widgets.section import Section, section
from widgets.text import Words
from widgets.verdict import Verdict


class ParetoSection(Section[QuantizationState]):
    """The verdict on the run's own setting, the plot, what was skipped, the table."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._verdict = Verdict()
        self._plot = ParetoPlot()
        self._caption = Words(css_class="lab-caption")
        self._skipped = Words(css_class="lab-caption")
        self._table = DataTable(summary="Table of all settings")
        self.widget = section(
            self._verdict,
            self._plot,
            self._caption,
            self._skipped,
            self._table,
        )

    def render(self, state: QuantizationState, upto: int, *, live: bool) -> None:
        points = state.pareto[: upto + 1]
        self._verdict.show(*pareto_verdict(points, live=live, ended=state.end is not None))
        self._plot.show(points)
        self._caption.say(("p", _caption(state, points, live=live)))
        skipped = [p for p in points if p.skipped]
        self._skipped.say(*(("p", f"Skipped: {p.setting.label}. {_sentence(p.skipped)}") for p in skipped))
        if not live:
            self._table.show(pareto_table(points), caption="Settings, the fewest bits first")

    def tables(self, state: QuantizationState) -> Sequence[Table]:
        return (pareto_table(state.pareto),)


def pareto_verdict(points: Sequence[ParetoPoint], *, live: bool, ended: bool) -> tuple[str, str, str, str]:
    """Tone, heading and notes: whether another setting beats the chosen one."""
    drawn = measured(points)
    total = max((p.total for p in points), default=0)
    part = (
        f"{'Stopped after' if ended else 'After'} {len(points):,} of {total:,} settings." if len(points) < total else ""
    )
    if not drawn:
        text = "No setting was measured." if ended and not live else "No setting measured yet."
        return "pending", text, part, ""
    best = frontier(drawn)
    so_far = " so far" if live or part else ""
    edge = f"{len(best)} of {len(drawn)} settings stand on the frontier: nothing else loses less at so few bits."
    chosen = next((p for p in drawn if p.chosen), None)
    if chosen is None:
        least = best[-1]
        lost = f"{format_number(kl(least))} nats at {least.bits_per_weight:.2f} bits"
        text = f"Least lost{so_far}: {least.setting.label}, {lost}"
        return "pending" if live else "none", text, edge, part
    rival = better_than(chosen, drawn)
    if rival is None:
        text = f"Nothing beats {chosen.setting.label}{so_far} at {chosen.bits_per_weight:.2f} bits per weight"
        note = f"It loses {_loss(chosen)}."
        return "pending" if live else "good", text, f"{note} {edge}", part
    text = f"{rival.setting.label} loses less than {chosen.setting.label}{so_far}, at no more bits"
    note = (
        f"{_loss(rival)} at {rival.bits_per_weight:.2f} bits against {_loss(chosen)} at {chosen.bits_per_weight:.2f}."
    )
    return "pending" if live else "even", text, f"{note} {edge}", part


def _loss(point: ParetoPoint) -> str:
    found = point.divergence
    if found is None:
        return "nothing measured"
    share = found.flips / found.positions if found.positions else math.nan
    return f"{format_number(found.kl)} nats ({typeset_share(share)} flips)"


def _caption(state: QuantizationState, points: Sequence[ParetoPoint], *, live: bool) -> str:
    drawn = measured(points)
    if not drawn:
        stays = "Points appear as they are measured; what is there stays when the run is stopped."
        return stays if live else "Nothing was measured."
    first = drawn[0].divergence
    where = f" on {first.positions:,} positions of held-out text ({first.text_hash})" if first else ""
    words = (
        f"Down and to the left is better. MEASURED{where}: dequantized weights run, so losses are real and sizes "
        "SIMULATED. The dashed line is the frontier"
    )
    words += ", the ring is this run's own setting." if any(p.chosen for p in drawn) else "."
    if state.grid is not None and state.grid.words:
        words += " These weights lie on a 4-bit grid of their own: with float minimum and groups of 32 nothing is lost."
    return words


def _sentence(words: str) -> str:
    return words if words.endswith(".") else f"{words}."


def pareto_table(points: Sequence[ParetoPoint]) -> Table:
    """One row a setting, the fewest bits first; skipped ones with their reason."""
    head = [
        "setting",
        "method",
        "bits per weight",
        "KL(dense ‖ quantized), nats",
        "worst KL, nats",
        "flips",
        "positions",
        "perplexity",
    ]
    head += ["dense perplexity", "bits per byte", "model bytes", "model size", "frontier", "chosen", "ms", "skipped"]
    best = {id(p) for p in frontier(measured(points))}
    rows = []
    for p in sorted(points, key=lambda p: (bool(p.skipped), p.bits_per_weight)):
        d = p.divergence
        rows.append(
            [
                p.setting.label,
                p.setting.method,
                _number(p.bits_per_weight),
                _number(d.kl) if d else None,
                _number(d.worst_kl) if d else None,
                d.flips if d else None,
                d.positions if d else None,
                _number(d.perplexity) if d else None,
                _number(d.dense_perplexity) if d else None,
                _number(d.bits_per_byte) if d else None,
                p.model_bytes or None,
                format_bytes(p.model_bytes) if p.model_bytes else None,
                "yes" if id(p) in best else "",
                "yes" if p.chosen else "",
                _number(p.ms),
                p.skipped,
            ]
        )
    return Table("settings", head, rows)


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")
