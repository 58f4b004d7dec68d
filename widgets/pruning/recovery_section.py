"""Can training repair it? The fine-tune with the mask held: loss, before and after, zeros that stayed zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lab.events.evaluation import Divergence
from lab.events.pruning import Recovered, RecoveryStep
from widgets.bar_table import Bar, BarRow, BarTable, Column, Line, Series
from widgets.data_table import DataTable
from widgets.enough import Enough
from widgets.experiment import Desk, Table
from widgets.figure import FigureRow
from widgets.format import format_number
from widgets.loss_plot import LEGEND, LossPlot
from widgets.numbers import number, percent
from widgets.pruning.method_marks import DENSE, mark_of
from widgets.pruning.state import PruningState
from widgets.section import Section, heading, section, sections
from widgets.shown import show_if
from widgets.text import Words
from widgets.training_steps import best_of, ended_early, rounded, so_far, step_figure, step_table
from widgets.verdict import Verdict

NAME, TOKENS, KEPT = "recovery_steps", "tokens", "those weights are kept"


class RecoverySection(Section[PruningState]):
    """The verdict, figures, the curve, dense against pruned against recovered, the table."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._verdict = Verdict()
        self._enough = Enough(desk, "The run goes on with the weights of the ring: before and after, proof.")
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
            section(self._verdict, self._enough.widget, self._figures, self._plot, self._legend, self._table),
            self._after,
        )

    def reset(self) -> None:
        self._enough.reset()

    def render(self, state: PruningState, upto: int, *, live: bool) -> None:
        steps, done = state.recovery[: upto + 1], state.recovered
        going = live and state.end is None and done is None
        tone, text, *notes = recovery_verdict(state, live=live)
        self._verdict.show(tone, text, *notes, self._enough.told if going else "")
        self._enough.offer(going=going and any(s.step > 0 for s in state.recovery))
        self._figures.show(recovery_figures(done, steps))
        planned = int(state.param("steps", 1)) if state.end is None and done is None else 1
        self._plot.show(steps, max(planned, steps[-1].steps if steps and going else 1))
        self._legend.say(("p", f"MEASURED. {so_far(steps, TOKENS, KEPT)}" if steps else "No step yet."))
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
            self._table.show(step_table(NAME, state.recovery, TOKENS))

    def tables(self, state: PruningState) -> Sequence[Table]:
        return (step_table(NAME, state.recovery, TOKENS), after_table(state.recovered))


def recovery_verdict(state: PruningState, *, live: bool) -> tuple[str, str, str, str]:
    """Tone, heading and notes: how much of the loss came back, and whether zeros stayed zero."""
    done = state.recovered
    if done is None:
        if live and state.end is None:
            return "pending", "Can training repair it? The mask is held, the kept weights move.", "", ""
        return "none", "The run ended before the training did", best_words(state.recovery), ""
    if done.revived:
        return "bad", f"The mask did not hold: {done.revived:,} pruned weights are no longer 0.", "", ""
    stopped = ended_early(done.stopped)
    held = f"All pruned weights are still 0: sparsity {percent(done.sparsity_after)} before and after."
    back = regained(done)
    if back is None:
        return "none", "The fine-tune is done", held, stopped
    if back > 0.02:
        return "good", f"Training won back {percent(back)} of the loss", held, stopped
    return "even" if back > -0.02 else "bad", "Training won nothing back", held, stopped


def best_words(steps: Sequence[RecoveryStep]) -> str:
    """What a training that never came to its end had reached; "" where nothing was measured."""
    best, first = best_of(steps), next((s.heldout_loss for s in steps if s.heldout_loss is not None), None)
    if best is None or best.heldout_loss is None:
        return ""
    if best.step == 0:
        return f"No step was better than none so far: held-out perplexity {_ppl(_perplexity(first))}."
    return (
        f"The best so far, after step {best.step}: {format_number(best.heldout_loss)} nats a held-out token, "
        f"perplexity {_ppl(_perplexity(best.heldout_loss))}; {_ppl(_perplexity(first))} before the fine-tune."
    )


def regained(done: Recovered) -> float | None:
    """Share of KL(dense ‖ pruned) that the training took away."""
    before, after = done.pruned.kl, done.recovered.kl
    return 1 - after / before if before > 0 and math.isfinite(before) and math.isfinite(after) else None


def recovery_figures(done: Recovered | None, steps: Sequence[RecoveryStep]) -> list[dict[str, Any]]:
    """Perplexity, divergence, zeros and the time of a step; before the end, the best step's perplexity."""
    before, after = (done.pruned, done.recovered) if done else (None, None)
    revived = done.revived if done else 0
    return [
        _perplexity_after(done) if done else _perplexity_so_far(steps),
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
        step_figure(steps, sum(s.ms for s in steps if math.isfinite(s.ms)) if done else None),
    ]


def _perplexity_after(done: Recovered) -> dict[str, Any]:
    before, after = done.pruned, done.recovered
    return {
        "id": "perplexity",
        "value": format_number(after.perplexity) if after.perplexity is not None else "",
        "unit": "perplexity after",
        "badge": "MEASURED",
        "note": f"{_ppl(before.perplexity)} before, {_ppl(before.dense_perplexity)} dense",
        "title": "exp of the mean of −log p of the held-out text's own tokens.",
    }


def _perplexity_so_far(steps: Sequence[RecoveryStep]) -> dict[str, Any]:
    best, first = best_of(steps), next((s.heldout_loss for s in steps if s.heldout_loss is not None), None)
    found = _perplexity(best.heldout_loss) if best else None
    return {
        "id": "perplexity",
        "value": "" if found is None else format_number(found),
        "unit": "perplexity, best so far",
        "badge": "MEASURED",
        "note": f"after step {best.step}; {_ppl(_perplexity(first))} before" if best else "",
        "title": "exp of the best step's held-out loss, which reads its text in windows of up to 256 tokens.",
    }


def _perplexity(loss: float | None) -> float | None:
    """exp of a mean loss, None where that is no number that a page can write."""
    return math.exp(loss) if loss is not None and math.isfinite(loss) and loss < 700 else None


def _ppl(value: float | None) -> str:
    return "n/a" if value is None else format_number(value)


def after_rows(done: Recovered) -> list[BarRow]:
    """Dense, pruned and recovered on one scale."""
    dense = done.pruned.dense_perplexity
    own = mark_of(done.setting.method).series
    rows = [_row("dense", dense, None, DENSE)] if dense is not None else []
    return [
        *rows,
        _row("pruned", done.pruned.perplexity, done.pruned, own),
        _row("recovered", done.recovered.perplexity, done.recovered, own),
    ]


def _row(name: str, perplexity: float | None, found: Divergence | None, series: Series) -> BarRow:
    share = found.flips / found.positions if found and found.positions else None
    cells = [_ppl(perplexity), number(found.kl) if found else "0", percent(share) if share is not None else "0 %"]
    if perplexity is None or not math.isfinite(perplexity):
        return BarRow(name, note="n/a", cells=cells)
    return BarRow(name, [Bar(perplexity, series)], cells)


def _caption(done: Recovered) -> str:
    d = done.pruned
    return (
        f"MEASURED for {done.setting.label} on {d.positions:,} positions of held-out text ({d.text_hash}). Sparsity "
        f"{percent(done.sparsity_before)} before, {percent(done.sparsity_after)} after; best at step {done.best_step}."
    )


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
            rounded(d.kl),
            rounded(d.worst_kl),
            d.flips,
            d.positions,
            rounded(d.perplexity),
            rounded(d.dense_perplexity),
        ]
        rows.append([name, *cells, rounded(gone)])
    return Table("recovered", head, rows)
