"""What a visitor guesses before the `lora` page: how much of the model an adapter is."""

from __future__ import annotations

from lab.events import Recording
from lab.events.lora import AdapterFacts
from widgets.format import format_bytes, format_count
from widgets.front.prediction import Prediction
from widgets.numbers import percent


def prediction(recording: Recording) -> Prediction | None:
    """The question, from the adapter's facts; None where the run read none."""
    facts = next((e for e in recording.events if isinstance(e, AdapterFacts)), None)
    if facts is None or not facts.parameters:
        return None
    share = facts.parameters / facts.base_parameters
    shares = (share, 10 * share, 50 * share)
    targets = " and ".join(f"`{t}`" for t in facts.targets)
    return Prediction(
        text=f"An adapter of rank {facts.rank} stands beside {targets} in every layer, {facts.modules} matrices in "
        "all. What share of the model’s parameters is that?",
        options=tuple(percent(s) for s in shares),
        answer=0,
        figure=percent(share),
        why=f"{format_count(facts.parameters)} beside {format_count(facts.base_parameters)}; "
        f"{format_bytes(facts.bytes)} in its file. A matrix of m × n needs {facts.rank} · (m + n) numbers "
        "instead of m · n.",
        badge="DERIVED",
    )
