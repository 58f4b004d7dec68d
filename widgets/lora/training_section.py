"""The training as it goes: loss, held-out loss, the best so far, and a way to end it with that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lab.events.lora import Trained, TrainStep
from widgets.data_table import DataTable
from widgets.enough import Enough
from widgets.experiment import Desk, Table
from widgets.figure import FigureRow
from widgets.format import format_number
from widgets.lora.state import LoraState
from widgets.loss_plot import LEGEND, LossPlot
from widgets.section import Section, section
from widgets.text import Words
from widgets.training_steps import best_of, ended_early, so_far, step_figure, step_table
from widgets.verdict import Verdict

NAME, TOKENS, KEPT = "training_steps", "answer tokens", "that adapter is kept"


class TrainingSection(Section[LoraState]):
    """The verdict, figures, the curve, the table of all steps."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._verdict = Verdict()
        self._enough = Enough(desk, "The run goes on with the adapter of the ring: words, merge, proof.")
        self._figures = FigureRow()
        self._plot = LossPlot("Loss of the training")
        self._legend = Words(css_class="lab-caption")
        self._legend.legend(LEGEND)
        self._table = DataTable(summary="Table of all steps")
        self.widget = section(self._verdict, self._enough.widget, self._figures, self._plot, self._legend, self._table)

    def reset(self) -> None:
        self._enough.reset()

    def render(self, state: LoraState, upto: int, *, live: bool) -> None:
        steps, done = state.training[: upto + 1], state.trained
        going = live and state.end is None and done is None
        tone, text, *notes = training_verdict(state, steps, live=live)
        self._verdict.show(tone, text, *notes, self._enough.told if going else "")
        self._enough.offer(going=going and any(s.step > 0 for s in state.training))
        self._figures.show(training_figures(done, steps))
        planned = int(state.param("steps", 1)) if state.end is None and done is None else 1
        self._plot.show(steps, max(planned, steps[-1].steps if steps and going else 1))
        self._legend.say(("p", f"MEASURED. {so_far(steps, TOKENS, KEPT)}" if steps else "No step yet."))
        if not live:
            self._table.show(step_table(NAME, state.training, TOKENS))

    def tables(self, state: LoraState) -> Sequence[Table]:
        return (step_table(NAME, state.training, TOKENS),)


def training_verdict(state: LoraState, steps: Sequence[TrainStep], *, live: bool) -> tuple[str, ...]:
    """Tone, heading and notes: what became of the held-out loss, and why the training ended."""
    done = state.trained
    if done is None:
        if live and state.end is None:
            text = "Training: the base is frozen, only A and B move" if steps else "Can a small file teach it?"
            return "pending", text, "" if steps else "The base's own words come first."
        return "none", "The run ended before the training did", _kept_words(steps)
    note = ended_early(done.stopped)
    before, after = done.heldout_before, done.heldout_after
    if not (math.isfinite(before) and math.isfinite(after)):
        ends = f"{format_number(done.loss_before)} to {format_number(done.loss_after)} nats"
        return "none", f"Loss of a batch: {ends}", "Nothing was held out.", note
    ends = f"from {_nats(before)} to {_nats(after)} nats a token"
    if done.best_step == 0:
        return "bad", "No step was better than none", f"Held-out loss before: {format_number(before)} nats.", note
    kept = f"Kept: the adapter after step {done.best_step} of {done.steps}."
    last = next((s.heldout_loss for s in reversed(state.training) if s.heldout_loss is not None), None)
    if last is not None and math.isfinite(last) and last > after * 1.02:
        kept += f" Afterwards the held-out loss rose again, to {_nats(last)}: the lines were learnt by heart."
    return "good" if after < before else "bad", f"Held-out loss {ends}", kept, note


def _kept_words(steps: Sequence[TrainStep]) -> str:
    best = best_of(steps)
    if best is None or best.heldout_loss is None:
        return ""
    return f"Least held-out loss: {format_number(best.heldout_loss)} nats at step {best.step}."


def training_figures(done: Trained | None, steps: Sequence[TrainStep]) -> list[dict[str, Any]]:
    """Held-out loss, the batch's loss, the time of a step."""
    best = best_of(steps)
    first = next((s.heldout_loss for s in steps if s.heldout_loss is not None), None)
    last = next((s for s in reversed(steps) if math.isfinite(s.loss)), None)
    held = best.heldout_loss if best else None
    return [
        {
            "id": "heldout",
            "value": _nats(held) if held is not None else "",
            "unit": "nats, held out",
            "badge": "MEASURED",
            "note": f"the best so far; {_nats(first)} before" if first is not None else "",
            "title": "Mean of −log p of the held-out answers' tokens, with the adapter that is kept.",
        },
        {
            "id": "loss",
            "value": _nats(last.loss) if last else "",
            "unit": "nats, batch",
            "badge": "MEASURED",
            "note": f"step {last.step} of {last.steps}" if last else "",
            "title": "Mean over the batch's answer tokens, before the step.",
        },
        step_figure(steps, done.seconds * 1000 if done else None),
    ]


def _nats(value: float | None) -> str:
    """A loss: three digits, two where it is small."""
    return format_number(value, 2 if value is not None and abs(value) < 0.1 else 3)
