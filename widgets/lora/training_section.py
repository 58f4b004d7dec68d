"""The training as it goes: loss, held-out loss, the best so far, and a way to end it with that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

from lab.events.lora import Trained, TrainStep
from widgets.action_row import Action, ActionRow
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.figure import FigureRow
from widgets.format import format_ms, format_number, split_ms
from widgets.lora.state import LoraState
from widgets.loss_plot import LEGEND, LossPlot
from widgets.numbers import number
from widgets.section import Section, section
from widgets.text import Words
from widgets.verdict import Verdict

ENOUGH = Action(
    "enough",
    "Stop training, go on with the best so far",
    "The run goes on with the adapter of the ring: words, merge, proof.",
)


class TrainingSection(Section[LoraState]):
    """The verdict, figures, the curve, the table of all steps."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._told = ""
        self._verdict = Verdict()
        self._actions = ActionRow(label="The training")
        self._actions.on_action(self._enough)
        self._figures = FigureRow()
        self._plot = LossPlot("Loss of the training")
        self._legend = Words(css_class="lab-caption")
        self._legend.legend(LEGEND)
        self._table = DataTable(summary="Table of all steps")
        self.widget = section(self._verdict, self._actions, self._figures, self._plot, self._legend, self._table)

    def reset(self) -> None:
        self._told = ""

    def _enough(self, name: str) -> None:
        if name != ENOUGH.id:
            return

        def reply(answer: dict[str, Any] | None, why: str) -> None:
            with self._desk.lock:
                going = answer is not None and answer.get("training") is True
                self._told = "The training ends after this step." if going else why or "No training is going on."
            self._desk.touch()

        self._desk.ask(ENOUGH.id, {}, reply, of_run=True)

    def render(self, state: LoraState, upto: int, *, live: bool) -> None:
        steps, done = state.training[: upto + 1], state.trained
        going = live and state.end is None and done is None
        tone, text, *notes = training_verdict(state, steps, live=live)
        self._verdict.show(tone, text, *notes, self._told if going else "")
        self._actions.show([ENOUGH] if going and any(s.step > 0 for s in state.training) else [])
        self._figures.show(training_figures(done, steps))
        planned = int(state.param("steps", 1)) if state.end is None and done is None else 1
        self._plot.show(steps, max(planned, steps[-1].steps if steps and going else 1))
        self._legend.say(("p", f"MEASURED. {so_far(steps)}" if steps else "No step yet."))
        if not live:
            self._table.show(step_table(state.training))

    def tables(self, state: LoraState) -> Sequence[Table]:
        return (step_table(state.training),)


def best_of(steps: Sequence[TrainStep]) -> TrainStep | None:
    """The step whose adapter is kept so far."""
    return next((s for s in reversed(steps) if s.best), None)


def training_verdict(state: LoraState, steps: Sequence[TrainStep], *, live: bool) -> tuple[str, ...]:
    """Tone, heading and notes: what became of the held-out loss, and why the training ended."""
    done = state.trained
    if done is None:
        if live and state.end is None:
            text = "Training: the base is frozen, only A and B move" if steps else "Can a small file teach it?"
            return "pending", text, "" if steps else "The base's own words come first."
        return "none", "The run ended before the training did", _kept_words(steps)
    note = f"Ended early: {done.stopped}. The best so far was kept." if done.stopped else ""
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
    taken = [s.ms for s in steps if s.step > 0 and math.isfinite(s.ms)]
    value, unit = split_ms(median(taken)) if taken else ("", "")
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
        {
            "id": "step_ms",
            "value": value,
            "unit": f"{unit} a step" if unit else "a step",
            "badge": "MEASURED",
            "note": f"{format_ms(done.seconds * 1000)} of training" if done else f"{len(taken):,} steps so far",
            "title": "Median over the steps: forward, backward and the optimizer.",
        },
    ]


def _nats(value: float | None) -> str:
    """A loss: three digits, two where it is small."""
    return format_number(value, 2 if value is not None and abs(value) < 0.1 else 3)


def so_far(steps: Sequence[TrainStep]) -> str:
    """Where the training is."""
    last, best = steps[-1], best_of(steps)
    at = f" The ring: least held-out loss, after step {best.step}; that adapter is kept." if best else ""
    if last.step == 0:
        return f"Before training.{at}"
    rate = number(last.learning_rate, 2)
    return f"{last.step} of {last.steps} steps, {last.tokens:,} answer tokens in the last, learning rate {rate}.{at}"


def step_table(steps: Sequence[TrainStep]) -> Table:
    """One row a step."""
    head = ["step", "loss, nats", "held-out loss, nats", "learning rate", "answer tokens", "best so far", "ms"]
    rows = [
        [
            s.step,
            _number(s.loss),
            _number(s.heldout_loss),
            _number(s.learning_rate),
            s.tokens,
            "yes" if s.best else "",
            _number(s.ms),
        ]
        for s in steps
    ]
    return Table("training_steps", head, rows)


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")
