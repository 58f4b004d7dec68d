"""What a second replica gives on a Ray cluster of this machine: `python -m benchmarks.ray_replicas`.

SIMULATED model time: a step waits 20 ms instead of computing, so that two replicas do not fight for two cores; all
else is real (Ray, the HTTP app, streams). One replica and then two serve the same runs of eight clients at once.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from pydantic import Field

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
CLIENTS, RUNS_EACH, STEPS = 8, 3, 50
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


def served(replicas: int) -> float:
    """Seconds for all runs of all clients with so many replicas."""
    sock = listen("127.0.0.1", 0)
    port = sock.getsockname()[1]
    sock.close()
    settings = ClusterSettings(
        models=("simulated",), min_replicas=replicas, max_replicas=replicas, cpus=0.1, limits=LIMITS
    )
    url = deploy(settings, TOKEN, host="127.0.0.1", port=port, make_backend=maker())
    try:

        def client(number: int) -> None:
            http = HttpBackend(url, TOKEN)
            for turn in range(RUNS_EACH):
                mine = number * RUNS_EACH + turn
                end = list(http.run(RunRequest(experiment="wait", model="simulated", params={"number": mine})))[-1]
                if not isinstance(end, RunFinished) or end.text != str(mine):
                    raise RuntimeError(f"run {mine} ended as {end}")
            http.close()

        client(10_000)  # what is done once
        began = time.monotonic()
        with ThreadPoolExecutor(CLIENTS) as pool:
            for done in [pool.submit(client, number) for number in range(CLIENTS)]:
                done.result()
        return time.monotonic() - began
    finally:
        shut_down()
        threading.Event().wait(1.0)


def main() -> int:
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    one, two = served(1), served(2)
    print(
        json.dumps(
            {
                "model_time": "simulated",
                "runs": CLIENTS * RUNS_EACH,
                "one_replica_s": round(one, 2),
                "two_replicas_s": round(two, 2),
                "throughput": round(one / two, 2),
            }
        )
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
