"""What the events of a `kv_cache` run say so far. Live, replay and scrubbing read the same state."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from lab.events import Event
from lab.events.decoding import PrefillChunk
from lab.events.kv_cache import AttentionRead, CacheLedger, TokenDecoded, UncachedToken
from widgets.run_state import RunState

SPEEDUP_STEPS = 5
"""Steps whose medians are compared: one slow step then says nothing."""


@dataclass(frozen=True)
class Speedup:
    """Median milliseconds a token over the last `steps` tokens up to `index`, with and without the cache."""

    index: int
    steps: int
    with_ms: float
    without_ms: float

    @property
    def ratio(self) -> float:
        """Above 1 the cache is faster."""
        return self.without_ms / self.with_ms


@dataclass
class KVCacheState(RunState):
    """The run, indexed for the pictures. Everything here comes from an event."""

    chunks: list[PrefillChunk] = field(default_factory=list)
    tokens: list[TokenDecoded] = field(default_factory=list)
    prefill_ledgers: list[CacheLedger] = field(default_factory=list)
    ledgers: dict[int, CacheLedger] = field(default_factory=dict)
    uncached: dict[int, UncachedToken] = field(default_factory=dict)
    reads: dict[int, AttentionRead] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        """Take in an event of this experiment."""
        match event:
            case PrefillChunk():
                self.chunks.append(event)
            case TokenDecoded():
                self.tokens.append(event)
            case CacheLedger(index=-1):
                self.prefill_ledgers.append(event)
            case CacheLedger():
                self.ledgers[event.index] = event
            case UncachedToken():
                self.uncached[event.index] = event
            case AttentionRead():
                self.reads[event.index] = event
            case _:
                pass

    @property
    def steps(self) -> int:
        """New tokens so far."""
        return len(self.tokens)

    @property
    def compares(self) -> bool:
        """Whether new tokens are also made without the cache."""
        return self.started is None or self.started.card.params.get("without_cache_tokens", 1) > 0

    def ledger_at(self, index: int) -> CacheLedger | None:
        """The newest ledger at or before new token `index`."""
        for i in range(index, -1, -1):
            if i in self.ledgers:
                return self.ledgers[i]
        return self.prefill_ledgers[-1] if self.prefill_ledgers else None

    def speedup_at(self, index: int) -> Speedup | None:
        """With against without over the last decode steps up to `index` for which both were really run."""
        both = [i for i in sorted(self.uncached) if 0 < i <= min(index, self.steps - 1)][-SPEEDUP_STEPS:]
        if not both:
            return None
        with_ms = median(self.tokens[i].ms for i in both)
        without_ms = median(self.uncached[i].ms for i in both)
        return Speedup(both[-1], len(both), with_ms, without_ms) if with_ms > 0 else None

    def decode_times(self, upto: int) -> list[float]:
        """Milliseconds of the decode steps up to new token `upto`, the shortest first."""
        return sorted(t.ms for t in self.tokens[: upto + 1] if t.phase == "decode")

    def decode_ms(self, upto: int) -> float | None:
        """Their median, the upper one of two; None before the first."""
        times = self.decode_times(upto)
        return times[len(times) // 2] if times else None

    def prefill_ms(self) -> float:
        """The whole prefill, milliseconds."""
        return sum(chunk.ms for chunk in self.chunks)
