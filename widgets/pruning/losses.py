"""What was lost for a saving: of that very mask or variant, where the run measured it."""

from __future__ import annotations

import math

from lab.events.evaluation import Divergence
from lab.events.pruning import PruneSetting, StoredBytes
from widgets.format import NOTHING, format_number
from widgets.numbers import number, percent
from widgets.pruning.curve_measures import BEARABLE
from widgets.pruning.state import Matrix, PruningState

NOT_MEASURED = "loss not measured"


def divergence_of(state: PruningState, setting: PruneSetting) -> Divergence | None:
    """The whole model by one setting beside the dense one; None where this run did not measure it."""
    point = next((p.divergence for p in state.curve if p.setting == setting and p.divergence), None)
    timed = next((loss.divergence for loss in state.losses.values() if loss.setting == setting), None)
    done = state.recovered
    return point or timed or (done.pruned if done is not None and done.setting == setting else None)


def variant_loss(state: PruningState, variant: str) -> Divergence | None:
    """The same of a variant that was timed."""
    found = state.losses.get(variant)
    return found.divergence if found is not None else None


def loss_words(found: Divergence | None) -> str:
    """A loss beside a saving: "KL 0.32 nats, perplexity 31.2 against 23.1"."""
    if found is None or math.isnan(found.kl):
        return NOT_MEASURED
    words = f"KL {number(found.kl)} nats"
    if found.perplexity is None:
        return words
    return f"{words}, perplexity {format_number(found.perplexity)} against {format_number(found.dense_perplexity)}"


def loss_cell(found: Divergence | None, *, dense: bool = False) -> str:
    """The same in a column; the dense model loses nothing."""
    return "0" if dense else NOTHING if found is None else number(found.kl)


def saving_tone(found: Divergence | None) -> str:
    """Of a verdict that something is saved: good where little is lost for it, bad where much is."""
    if found is None or math.isnan(found.kl):
        return "none"
    return "good" if found.kl <= BEARABLE else "bad"


def judged(found: Divergence | None) -> str:
    """The loss as a sentence of its own."""
    words = loss_words(found)
    if found is None or math.isnan(found.kl):
        return "What is lost for it was not measured in this run."
    line = f"{BEARABLE:g} nats, which we call bearable"
    return f"Lost for it: {words}; {'within' if found.kl <= BEARABLE else 'more than'} {line}."


def stored_loss(state: PruningState, stored: StoredBytes) -> tuple[str, str]:
    """Tone and sentence of what was lost: of one matrix its output’s error, of all of them the model’s loss."""
    one = [
        e for e in state.errors if e.setting == stored.setting and Matrix(e.layer, e.projection).title == stored.scope
    ]
    if one:
        held_out = math.isfinite(one[0].heldout_error)
        error = one[0].heldout_error if held_out else one[0].calibration_error
        text = "held-out" if held_out else "calibration"
        if math.isfinite(error):
            return "good", f"Lost for it: {percent(error)} of the layer’s output on {text} text."
    found = divergence_of(state, stored.setting)
    return saving_tone(found), judged(found)
