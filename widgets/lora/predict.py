"""What a visitor guesses before the `lora` page: how much of the model an adapter is."""

from __future__ import annotations

from lab.events import Recording
from lab.events.lora import AdapterFacts
from lab.strings import Strings
from widgets.format import format_bytes, format_count
from widgets.front.prediction import Prediction
from widgets.numbers import percent


def prediction(recording: Recording, words: Strings) -> Prediction | None:
    """The question, from the adapter's facts; None where the run read none."""
    facts = next((e for e in recording.events if isinstance(e, AdapterFacts)), None)
    if facts is None or not facts.parameters:
        return None
    share = facts.parameters / facts.base_parameters
    shares = (share, 10 * share, 50 * share)
    key = "lora.prediction"
    targets = f" {words(f'{key}.and')} ".join(f"`{t}`" for t in facts.targets)
    return Prediction(
        text=words(f"{key}.text", rank=facts.rank, targets=targets, modules=facts.modules),
        options=tuple(percent(s) for s in shares),
        answer=0,
        figure=percent(share),
        why=words(
            f"{key}.why",
            own=format_count(facts.parameters),
            base=format_count(facts.base_parameters),
            bytes=format_bytes(facts.bytes),
            rank=facts.rank,
        ),
        badge="DERIVED",
    )
