"""Events that every run has: its start, its place in the queue, its progress, its proof, its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from lab.events.base import Event
from lab.events.card import RunCard
from lab.events.facts import ModelFacts


@dataclass(frozen=True, kw_only=True)
class RunStarted(Event):
    """The first event of every run.

    Attributes:
        run_id: names the run for `inspect`.
        recorded: "" for a live run, else when it was recorded (ISO 8601, UTC).
    """

    run_id: str
    card: RunCard
    facts: ModelFacts
    recorded: str = ""


@dataclass(frozen=True, kw_only=True)
class Queued(Event):
    """The run waits. `position` counts the runs before it: 0 means that it is next."""

    position: int


@dataclass(frozen=True, kw_only=True)
class Loading(Event):
    """The model is being loaded (or fetched, or converted). `fraction` in 0..1, None if unknown."""

    stage: str
    fraction: float | None = None


@dataclass(frozen=True, kw_only=True)
class Progress(Event):
    """How far the run is, as steps done of all steps, with a word for the bar.

    Attributes:
        done, total: of this stage.
        number, stages: the how-manyth stage of how many, 1 is the first; 0 where the run does not count them. A run
            that is one stage in all (1 of 1) may change its word on the way.
    """

    stage: str
    done: int
    total: int
    number: int = 0
    stages: int = 0


@dataclass(frozen=True, kw_only=True)
class Proof(Event):
    """The run compared with its reference.

    Attributes:
        verdict: "equal"; "tie" (they differ where the reference's top two are nearer than the stated
            gap); "different"; "unproven" (stopped, or no reference exists).
        claim: what was to be shown, in words: "identical to generate()".
        compared: how many items were compared.
        matched: how many of them were equal before the first difference.
        unit: what the items are, in the plural: "tokens".
        explanation: why they differ or why there is no proof, in words; "" when equal.
        detail: figures behind the verdict (first difference, both tokens, logit gap, tolerance).
    """

    verdict: Literal["equal", "tie", "different", "unproven"]
    claim: str
    compared: int
    matched: int
    explanation: str = ""
    detail: dict[str, Any] = field(default_factory=dict)
    unit: str = "tokens"


@dataclass(frozen=True, kw_only=True)
class RunFinished(Event):
    """The run ended by itself.

    Attributes:
        token_ids: what a decoding run generated, without the prompt.
        compute_ms: time in this run's own slices.
        longest_slice_ms: the longest of them: how long a Stop can take.
        ran_beside: how many other runs had slices while this one lived; 0 means that it was alone.
        peak_bytes: the process's peak resident memory, bytes.
    """

    token_ids: tuple[int, ...] = ()
    text: str = ""
    compute_ms: float = 0.0
    slices: int = 0
    longest_slice_ms: float = 0.0
    ran_beside: int = 0
    peak_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class RunCancelled(Event):
    """The run was stopped. What came before stays true, and unproven."""

    reason: str = "stopped"


@dataclass(frozen=True, kw_only=True)
class RunFailed(Event):
    """The run ended with an error: a code of `lab.errors`, words, and what to do."""

    code: str
    message: str
    remedy: str = ""


def is_final(event: Event) -> bool:
    """Whether `event` ends its run."""
    return isinstance(event, RunFinished | RunCancelled | RunFailed)
