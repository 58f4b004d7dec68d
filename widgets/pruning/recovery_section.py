"""Can training repair it? The fine-tune with the mask held: loss, before and after, zeros that stayed zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lab.events.evaluation import Divergence
from lab.events.pruning import Recovered, RecoveryStep
from widgets.bar_table import Bar, BarRow, BarTable, Column, Line
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.figure import FigureRow
from widgets.format import format_ms, format_number
from widgets.loss_plot import LEGEND, LossPlot
from widgets.numbers import number, percent
from widgets.pruning.state import PruningState
from widgets.section import Section, heading, section, sections
from widgets.shown import show_if
from widgets.text import Words
from widgets.verdict import Verdict


class RecoverySection(Section[PruningState]):
    """The verdict, figures, the curve, dense against pruned against recovered, the table."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._verdict = Verdict()
        self._figures = FigureRow()
        self._plot = LossPlot("Loss of the fine-tune")
        self._legend = Words(css_class="lab-caption")
        self._legend.legend(LEGEND)
        self._bars = BarTable(label="Perplexity of dense, pruned and recovered", first="model", picture="recovered")
        self._caption = Words(css_class="lab-caption")
        self._table = DataTable(summary="Table of all steps")
        self._after = section(
            heading("Before and after", "On the same held-out text, which the training never saw."),
            self._bars,
            self._caption,
        )
        self.widget = sections(
            section(self._verdict, self._figures, self._plot, self._legend, self._table), self._after
        )

    def render(self, state: PruningState, upto: int, *, live: bool) -> None:
        steps, done = state.recovery[: upto + 1], state.recovered
        self._verdict.show(*recovery_verdict(state, live=live))
        self._figures.show(recovery_figures(done))
        planned = int(state.param("steps", 1)) if state.end is None else 1
        self._plot.show(steps, max(planned, steps[-1].steps if steps and live else 1))
        took = sum(s.ms for s in state.recovery if math.isfinite(s.ms))
        self._legend.say(
            ("p", f"MEASURED. {_so_far(steps)} {format_ms(took)} of computing." if steps else "No step yet.")
        )
        show_if(done, self._after)
        if done:
            dense = done.pruned.dense_perplexity
            self._bars.show(
                after_rows(done),
                (Column("perplexity"), Column("KL, nats"), Column("flips")),
                line=Line(dense, "dense") if dense is not None and math.isfinite(dense) else None,
            )
            self._caption.say(("p", _caption(done)))
        if not live:
            self._table.show(recovery_table(state.recovery))

    def tables(self, state: PruningState) -> Sequence[Table]:
        return (recovery_table(state.recovery), after_table(state.recovered))


def recovery_verdict(state: PruningState, *, live: bool) -> tuple[str, str, str, str]:
    """Tone, heading and notes: how much of the loss came back, and whether zeros stayed zero."""
    done = state.recovered
    revived = done.revived if done else 0
    zeros = f"{revived:,} pruned weights are no longer 0." if revived else ""
    if done is None:
        if live and state.end is None:
            return "pending", "Can training repair it? The mask is held, the kept weights move.", zeros, ""
        return "none", "The run ended before it was measured.", zeros, ""
    if revived:
        return "bad", f"The mask did not hold: {zeros}", "", ""
    stopped = "Stopped: the best so far is kept." if done.stopped else ""
    held = f"All pruned weights are still 0: sparsity {percent(done.sparsity_after)} before and after."
    back = regained(done)
    if back is None:
        return "none", "The fine-tune is done", held, stopped
    if back > 0.02:
        return "good", f"Training won back {percent(back)} of the loss", held, stopped
    return "even" if back > -0.02 else "bad", "Training won nothing back", held, stopped


def regained(done: Recovered) -> float | None:
    """Share of KL(dense ‖ pruned) that the training took away."""
    before, after = done.pruned.kl, done.recovered.kl
    return 1 - after / before if before > 0 and math.isfinite(before) and math.isfinite(after) else None


def recovery_figures(done: Recovered | None) -> list[dict[str, Any]]:
    """Perplexity, divergence and zeros."""
    before, after = (done.pruned, done.recovered) if done else (None, None)
    revived = done.revived if done else 0
    return [
        {
            "id": "perplexity",
            "value": format_number(after.perplexity) if after and after.perplexity is not None else "",
            "unit": "perplexity after",
            "badge": "MEASURED",
            "note": f"{_ppl(before.perplexity)} before, {_ppl(before.dense_perplexity)} dense" if before else "",
            "title": "exp of the mean of −log p of the held-out text's own tokens.",
        },
        {
            "id": "kl",
            "value": format_number(after.kl) if after else "",
            "unit": "nats, KL(dense ‖ recovered)",
            "badge": "MEASURED",
            "note": f"{number(before.kl)} before" if before else "",
            "title": "Mean over the positions of the held-out text.",
        },
        {
            "id": "revived",
            "value": f"{revived:,}" if done else "",
            "unit": "zeros revived",
            "badge": "MEASURED",
            "note": "counted at the end; it must be 0",
            "title": "Pruned weights that are no longer exactly 0.",
        },
    ]


def _ppl(value: float | None) -> str:
    return "n/a" if value is None else format_number(value)


def _so_far(steps: Sequence[RecoveryStep]) -> str:
    last = steps[-1]
    best = [s for s in steps if s.best]
    at = f" The ring: least held-out loss, at step {best[-1].step}; that one is kept." if best else ""
    rate = number(last.learning_rate, 2)
    return f"{last.step} of {last.steps} steps of {last.tokens:,} tokens, learning rate {rate}.{at}"


def after_rows(done: Recovered) -> list[BarRow]:
    """Dense, pruned and recovered on one scale."""
    dense = done.pruned.dense_perplexity
    rows = [_row("dense", dense, None)] if dense is not None else []
    return [
        *rows,
        _row("pruned", done.pruned.perplexity, done.pruned),
        _row("recovered", done.recovered.perplexity, done.recovered),
    ]


def _row(name: str, perplexity: float | None, found: Divergence | None) -> BarRow:
    share = found.flips / found.positions if found and found.positions else None
    cells = [_ppl(perplexity), number(found.kl) if found else "0", percent(share) if share is not None else "0 %"]
    if perplexity is None or not math.isfinite(perplexity):
        return BarRow(name, note="n/a", cells=cells)
    return BarRow(name, [Bar(perplexity, {"dense": 4, "pruned": 2}.get(name, 3))], cells)  # type: ignore[arg-type]


def _caption(done: Recovered) -> str:
    d = done.pruned
    return (
        f"MEASURED for {done.setting.label} on {d.positions:,} positions of held-out text ({d.text_hash}). Sparsity "
        f"{percent(done.sparsity_before)} before, {percent(done.sparsity_after)} after; best at step {done.best_step}."
    )


def recovery_table(steps: Sequence[RecoveryStep]) -> Table:
    """One row a step."""
    head = [
        "step",
        "loss, nats",
        "held-out loss, nats",
        "learning rate",
        "tokens",
        "best so far",
        "ms",
    ]
    rows = [
        [
            s.step,
            _number(s.loss),
            _number(s.heldout_loss),
            s.learning_rate,
            s.tokens,
            "yes" if s.best else "",
            _number(s.ms),
        ]
        for s in steps
    ]
    return Table("recovery_steps", head, rows)


def after_table(done: Recovered | None) -> Table:
    """Pruned and recovered."""
    head = [
        "model",
        "KL(dense ‖ it), nats",
        "worst KL",
        "flips",
        "positions",
        "perplexity",
        "dense perplexity",
        "sparsity",
    ]
    rows = []
    for name, d, gone in (
        (("pruned", done.pruned, done.sparsity_before), ("recovered", done.recovered, done.sparsity_after))
        if done
        else ()
    ):
        cells = [
            _number(d.kl),
            _number(d.worst_kl),
            d.flips,
            d.positions,
            _number(d.perplexity),
            _number(d.dense_perplexity),
        ]
        rows.append([name, *cells, _number(gone)])
    return Table("recovered", head, rows)


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")
