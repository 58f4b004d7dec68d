"""Small experiments and models that show the structure of a backend without torch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from lab.backend.local import LocalBackend
from lab.backend.source import Placement, ProgressCallback
from lab.errors import BadInput, ModelError
from lab.events import Event, LayerFacts, ModelFacts, Progress, Proof, is_final
from lab.experiments.base import Experiment, ExperimentParams, Outcome, RunContext, RunGenerator

FACTS = ModelFacts(
    id="toy",
    name="Toy",
    source="directory",
    architecture="ToyForCausalLM",
    present=True,
    layers=(LayerFacts(kind="full", window=None, kv_heads=1, head_dim=2),),
    hidden=2,
    query_heads=1,
    kv_heads=1,
    head_dim=2,
    vocab=3,
    context=16,
    tied=True,
    parameters=10,
    dtype="float32",
    weight_bytes=40,
    weight_hash="ab" * 32,
    grid=None,
    chat_template=False,
    license="Apache-2.0",
)


class Clock:
    """A clock that goes on only when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class ToySource:
    """Models by name. `gate`, when given, holds a load until it is set."""

    facts_by_id: dict[str, ModelFacts] = field(
        default_factory=lambda: {"toy": FACTS, "other": replace(FACTS, id="other")}
    )
    gate: threading.Event | None = None
    loads: list[str] = field(default_factory=list)
    hash_after_load: str | None = None
    error: Exception | None = None

    def list(self) -> list[ModelFacts]:
        return list(self.facts_by_id.values())

    def facts(self, model: str) -> ModelFacts:
        if model not in self.facts_by_id:
            raise ModelError(f"There is no model {model!r}.", remedy="See `lab models`.")
        return self.facts_by_id[model]

    def placement(self, facts: ModelFacts, dtype: str, device: str) -> Placement:
        del facts
        if dtype not in ("auto", "float32", "bfloat16"):
            raise ModelError(f"The dtype {dtype!r} is not offered.", remedy="Choose auto, float32 or bfloat16.")
        return Placement(
            dtype="float32" if dtype == "auto" else dtype,
            device="cpu" if device == "auto" else device,
            attention="none",
            threads=1,
        )

    def load(self, model: str, placement: Placement, progress: ProgressCallback) -> Any:
        del placement
        progress("loading", 0.0)
        while self.gate is not None and not self.gate.wait(0.01):
            progress("loading", 0.5)
        if self.error is not None:
            raise self.error
        self.loads.append(model)
        facts = self.facts(model)
        facts = replace(facts, present=True, weight_hash=self.hash_after_load or facts.weight_hash or "cd" * 32)
        return SimpleNamespace(facts=facts)


class CountParams(ExperimentParams):
    """Count up."""

    experiment: ClassVar[str] = "count"

    steps: int = Field(3, title="Steps", description="How far to count.", ge=1, le=100_000)
    label: str = Field("a", title="Label", description="Names the run.", max_length=1000)
    prompt: str = Field("", title="Prompt", description="Not read.", max_length=40_000)
    seconds: float = Field(0.0, title="Seconds", description="Fake seconds of a step.", ge=0.0)
    fail_at: int = Field(-1, title="Fail at", description="Step that fails.")
    fail_with: str = Field("value", title="Fail with", description="How it fails.")
    hold: bool = Field(False, title="Hold", description="Go on without an end.")
    keep_bytes: int = Field(0, title="Keep", description="Bytes left behind.", ge=0)


class AskParams(BaseModel):
    model_config = ConfigDict(extra="forbid")
    index: int = Field(0, ge=0, le=10_000_000)
    fail: bool = False


class Fatal(BaseException):
    """Not even an Exception."""


class OutOfMemoryError(RuntimeError):
    """Named like torch's."""


FAILURES: dict[str, Callable[[], BaseException]] = {
    "value": lambda: ValueError("secret /root/path"),
    "lab": lambda: BadInput("steps is odd.", remedy="Make it even."),
    "memory": lambda: MemoryError(),
    "torch": lambda: OutOfMemoryError("CUDA out of memory. Tried to allocate"),
    "exit": lambda: SystemExit(3),
    "fatal": lambda: Fatal("no"),
}


@dataclass
class CountRunner:
    """Counts; `closed` and `trace` tell the test what happened, `clock` passes fake time."""

    clock: Clock | None = None
    trace: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    inspections: dict[str, type[BaseModel]] = field(default_factory=lambda: {"ask": AskParams})
    ran: int = 0
    asked: int = 0

    def prepare(self, facts: ModelFacts, params: CountParams) -> None:
        if params.steps > facts.context * 1000:
            raise BadInput(f"steps is {params.steps}; this model allows {facts.context * 1000}.", remedy="Use fewer.")

    def run(self, context: RunContext, params: CountParams) -> RunGenerator:
        self.ran += 1
        context.kept["held"] = bytearray(params.keep_bytes)
        context.kept["label"] = params.label
        return self._run(context, params)

    def _run(self, context: RunContext, params: CountParams) -> RunGenerator:
        value = 0
        try:
            step = 0
            while params.hold or step < params.steps:
                if step == params.fail_at:
                    raise FAILURES[params.fail_with]()
                if self.clock is not None:
                    self.clock.now += params.seconds
                if params.hold:
                    threading.Event().wait(0.002)  # let other threads in, as torch does
                value = (value * 31 + step + len(params.label)) % 1_000_003
                context.kept["value"] = value
                self.trace.append(params.label)
                step += 1
                yield Progress(stage=params.label, done=value, total=params.steps)
            yield Proof(verdict="equal", claim="counted", compared=step, matched=step)
            return Outcome(token_ids=(value,), text=params.label)
        finally:
            self.closed.append(params.label)

    def inspect(self, context: RunContext | None, facts: ModelFacts, name: str, params: AskParams) -> dict[str, Any]:
        assert name == "ask"
        self.asked += 1
        if params.fail:
            raise ValueError("secret /root/path")
        if context is None:
            return {"layers": len(facts.layers), "index": params.index, "low": float("-inf")}
        self.trace.append("?")
        return {"label": context.kept["label"], "index": params.index, "text": "x" * params.index}


def count_experiment(runner: CountRunner) -> Experiment:
    return Experiment(
        name="count",
        label="Count",
        title="Count",
        summary="Counts.",
        params=CountParams,
        presets=(),
        supports=lambda facts: "it does not count." if facts.id == "other" else "",
        load=lambda: runner,
    )


def backend(runner: CountRunner | None = None, source: ToySource | None = None, **more: Any) -> LocalBackend:
    runner = runner or CountRunner()
    if runner.clock is not None:
        more.setdefault("clock", runner.clock)
    return LocalBackend(source=source or ToySource(), experiments={"count": count_experiment(runner)}, **more)


def until(condition: Callable[[], bool], what: str, timeout_s: float = 10.0) -> None:
    """Wait for a condition, with a deadline."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        threading.Event().wait(0.005)


def first_of(stream: Iterator[Event], kind: type[Event]) -> Event:
    """Read on until an event of that kind."""
    for event in stream:
        if isinstance(event, kind):
            return event
    raise AssertionError(f"no {kind.__name__}")


def assert_whole(events: list[Event]) -> None:
    """Begins with run_started and ends with exactly one final event."""
    assert events[0].event == "run_started"
    assert [is_final(e) for e in events].count(True) == 1
    assert is_final(events[-1])
