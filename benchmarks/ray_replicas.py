"""What a second replica gives on a Ray cluster of this machine: `python -m benchmarks.ray_replicas`.

SIMULATED model time: a step waits 20 ms instead of computing, so that two replicas do not fight for two cores; all
else is real (Ray, the HTTP app, streams). One replica and two take turns, redeployed on one cluster, and serve the same
runs of eight clients at once; each run's text says that it is the client's own. Bar: twice as many give 1.6 × or more.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, ClassVar

from pydantic import Field

from benchmarks.measure import Spread
from lab.backend.http import HttpBackend
from lab.backend.limits import Limits
from lab.backend.local import LocalBackend
from lab.backend.protocol import RunRequest
from lab.backend.ray_serve.cluster import ClusterSettings, deploy, shut_down
from lab.backend.serve import listen
from lab.backend.source import Placement, ProgressCallback
from lab.events import LayerFacts, ModelFacts, Progress, Proof, RunFinished
from lab.experiments.base import Experiment, ExperimentParams, Outcome, RunContext, RunGenerator

STEP_S = 0.02
CLIENTS, RUNS_EACH, STEPS, ROUNDS = 8, 3, 50, 3
BAR = 1.6
TOKEN = "benchmark-" + "x" * 16
LIMITS = Limits(active_runs=4, waiting_runs=16)
FACTS = ModelFacts(
    id="simulated", name="Simulated", source="directory", architecture="None", present=True,
    layers=(LayerFacts(kind="full", window=None, kv_heads=1, head_dim=2),), hidden=2, query_heads=1, kv_heads=1,
    head_dim=2, vocab=3, context=1024, tied=True, parameters=10, dtype="float32", weight_bytes=40,
    weight_hash="ab" * 32, grid=None, chat_template=False, license="none",
)  # fmt: skip


class WaitParams(ExperimentParams):
    """Wait, step by step."""

    experiment: ClassVar[str] = "wait"

    number: int = Field(0, title="Number", description="Tells runs apart.", ge=0)


class WaitRunner:
    """A model whose step takes `STEP_S` and no core."""

    inspections: ClassVar[dict[str, Any]] = {}

    def prepare(self, facts: ModelFacts, params: Any) -> None:
        """Nothing can be wrong."""

    def run(self, context: RunContext, params: Any) -> RunGenerator:
        del context
        for step in range(STEPS):
            time.sleep(STEP_S)
            yield Progress(stage="waiting", done=step + 1, total=STEPS)
        yield Proof(verdict="equal", claim="it waited", compared=STEPS, matched=STEPS)
        return Outcome(token_ids=(params.number,), text=str(params.number))

    def inspect(self, context: RunContext | None, facts: ModelFacts, name: str, params: Any) -> dict[str, Any]:
        raise NotImplementedError


class Source:
    """The one simulated model."""

    def list(self) -> list[ModelFacts]:
        return [FACTS]

    def facts(self, model: str) -> ModelFacts:
        del model
        return FACTS

    def placement(self, facts: ModelFacts, dtype: str, device: str) -> Placement:
        del facts, dtype, device
        return Placement(dtype="float32", device="cpu", attention="none", threads=1)

    def load(self, model: str, placement: Placement, progress: ProgressCallback) -> Any:
        from types import SimpleNamespace

        del model, placement, progress
        return SimpleNamespace(facts=FACTS)


def maker() -> Callable[[], LocalBackend]:
    """Makes a replica's backend."""

    def make() -> LocalBackend:
        runner: Any = WaitRunner()
        experiment = Experiment(
            name="wait", label="Wait", title="Wait", summary="Waits.", params=WaitParams, presets=(),
            supports=lambda _: "", load=lambda: runner,
        )  # fmt: skip
        return LocalBackend(source=Source(), experiments={"wait": experiment}, limits=LIMITS)

    return make


def one_client(url: str, numbers: Iterable[int]) -> None:
    """Runs one after the other, each checked by its text."""
    http = HttpBackend(url, TOKEN)
    for number in numbers:
        end = list(http.run(RunRequest(experiment="wait", model="simulated", params={"number": number})))[-1]
        if not isinstance(end, RunFinished) or end.text != str(number):
            raise RuntimeError(f"run {number} ended as {end}")
    http.close()


def served(replicas: int, port: int, numbers: Iterator[int]) -> float:
    """Seconds for all runs of all clients with so many replicas."""
    settings = ClusterSettings(
        models=("simulated",), min_replicas=replicas, max_replicas=replicas, cpus=0.1, limits=LIMITS
    )
    url = deploy(settings, TOKEN, host="127.0.0.1", port=port, make_backend=maker())
    for _ in range(replicas):
        one_client(url, [next(numbers)])  # what is done once
    shares = [[next(numbers) for _ in range(RUNS_EACH)] for _ in range(CLIENTS)]
    began = time.monotonic()
    with ThreadPoolExecutor(CLIENTS) as pool:
        for done in [pool.submit(one_client, url, share) for share in shares]:
            done.result()
    return time.monotonic() - began


def main() -> int:
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    sock = listen("127.0.0.1", 0)
    port = sock.getsockname()[1]
    sock.close()
    numbers = count()
    seconds: dict[int, list[float]] = {1: [], 2: []}
    try:
        for turn in range(ROUNDS):
            for replicas in (1, 2) if turn % 2 == 0 else (2, 1):
                seconds[replicas].append(served(replicas, port, numbers))
                print(f"{replicas} replicas: {seconds[replicas][-1]:.2f} s", file=sys.stderr, flush=True)
    finally:
        shut_down()
    ratio = Spread.of([one / two for one, two in zip(seconds[1], seconds[2], strict=True)])
    figures = {
        "model_time": "simulated",
        "runs": CLIENTS * RUNS_EACH,
        "one_replica_s": Spread.of(seconds[1]).json(),
        "two_replicas_s": Spread.of(seconds[2]).json(),
        "throughput": ratio.json(),
        "bar": BAR,
    }
    print(json.dumps(figures))
    return 0 if ratio.median >= BAR else 1


if __name__ == "__main__":
    raise SystemExit(main())
