"""Runs of `kv_cache` made by hand, for tests of the comparison: figures that can be checked in one's head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from samples import sample_facts

from lab.events import Event, RunCancelled, RunCard, RunFailed, RunFinished, RunStarted
from lab.events.decoding import PrefillChunk, PromptEncoded
from lab.events.kv_cache import CacheLedger, TokenDecoded, UncachedToken

FACTS = sample_facts()
CARD = RunCard(
    experiment="kv_cache",
    model=FACTS.id,
    weight_hash=FACTS.weight_hash,
    dtype="float32",
    device="cpu",
    attention="sdpa",
    threads=2,
    versions={"torch": "2.13.0"},
    params={"prompt": "One two", "max_new_tokens": 4, "do_sample": False, "seed": 0},
)
FINISHED = RunFinished(token_ids=(), text="")


def card(**changed: Any) -> RunCard:
    """The card with some things changed; a name that it does not have is a parameter's."""
    own = {name: value for name, value in changed.items() if name in CARD.__dataclass_fields__}
    params = {name: value for name, value in changed.items() if name not in own}
    return replace(CARD, **own, params={**CARD.params, **params})


def kv_run(
    ms: Sequence[float] = (1.0, 10.0, 10.0, 10.0),
    *,
    run_id: str = "a",
    of: RunCard = CARD,
    tokens: Sequence[tuple[int, str]] = ((5, " a"), (6, " b"), (7, " c"), (8, " d")),
    without: Sequence[float] = (),
    end: RunFinished | RunCancelled | RunFailed | None = FINISHED,
    recorded: str = "",
) -> list[Event]:
    """A run of two prompt tokens: `ms` of each new token, the first from the prefill of 20 ms; 100 bytes a token."""
    events: list[Event] = [
        RunStarted(run_id=run_id, card=of, facts=FACTS, recorded=recorded),
        PromptEncoded(token_ids=(1, 2), texts=("One", " two"), chat=False),
        PrefillChunk(start=0, stop=2, ms=20.0),
        _ledger(-1, 2),
    ]
    for i, step in enumerate(ms):
        token, text = tokens[i % len(tokens)]
        events.append(
            TokenDecoded(
                index=i,
                token_id=token,
                text=text,
                log_prob=-1.0,
                ms=step,
                phase="decode" if i else "prefill",
                top=(),
                gap=1.0,
                computed=1,
                is_end=False,
            )
        )
        events.append(_ledger(i, 2 + i))
        if i < len(without):
            events.append(UncachedToken(index=i, token_id=token, ms=without[i], computed=2 + i))
    return [*events, end] if end is not None else events


def _ledger(index: int, length: int) -> CacheLedger:
    return CacheLedger(
        index=index,
        phase="prefill" if index < 0 else "decode",
        cache_length=length,
        layer_bytes=(100 * length,),
        layer_positions=(length,),
        formula_bytes=(100 * length,),
        reserved_bytes=100 * length,
    )
