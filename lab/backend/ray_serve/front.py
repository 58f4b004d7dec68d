"""The door of the cluster: the HTTP app around a backend whose models live in replicas."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import psutil
from fastapi import FastAPI
from ray.exceptions import RayError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RayServeException
from ray.serve.handle import DeploymentHandle, DeploymentResponseGenerator

from lab import __version__
from lab.backend.app import create_app
from lab.backend.hosting import HostedSettings
from lab.backend.limits import Limits
from lab.backend.log import RunLog, Subscription
from lab.backend.protocol import DEFAULT_MODEL, Health, InspectRequest, RunRequest
from lab.backend.ray_serve.replica import raised
from lab.backend.wire import encode
from lab.errors import BackendUnavailable, BadInput, Busy, LabError, ModelError, NotFound, shown
from lab.events import ModelFacts, RunFailed, decode_line
from lab.experiments.base import Experiment, ExperimentInfo

log = logging.getLogger(__name__)

REMEMBERED_RUNS = 4096
ANSWER_S = 90.0
GONE = "The replica went away during the run."
RETRY_S = 10
BROKEN = (RayError, RayServeException, RuntimeError, OSError)
"""What comes of a replica that is killed, a call that is cancelled, a cluster that goes away."""


class RayBackend:
    """Implements `Backend` over replicas, one deployment a model.

    Args:
        handles: by model id, the default first.
    """

    def __init__(self, handles: Mapping[str, DeploymentHandle], limits: Limits) -> None:
        self.limits = limits
        self._handles = dict(handles)
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._homes: OrderedDict[str, str] = OrderedDict()
        self._live: dict[str, str] = {}
        self._facts: dict[str, ModelFacts] = {}
        self._running = 0

    def health(self) -> Health:
        """How the front is; runs are those that pass through it. Asks no replica, so that it always answers."""
        return Health(
            version=__version__,
            pid=os.getpid(),
            uptime_s=time.monotonic() - self._began,
            models_loaded=tuple(self._handles),
            runs_active=self._running,
            runs_waiting=0,
            resident_bytes=psutil.Process().memory_info().rss,
            free_bytes=psutil.virtual_memory().available,
            device="ray",
            threads=0,
        )

    def models(self) -> list[ModelFacts]:
        """The models that have replicas."""
        return [self.facts(model) for model in self._handles]

    def facts(self, model: str) -> ModelFacts:
        """The facts of one model, from a replica of it.

        Raises:
            ModelError: it has no replicas here; `Busy`, `BackendUnavailable`: none answers.
        """
        if model not in self._facts:
            self._facts[model] = self._answer(self._handle(model).facts.remote)
        return self._facts[model]

    def experiment(self, name: str) -> Experiment:
        """The experiment of that name.

        Raises:
            NotFound: there is none.
        """
        from lab.experiments.registry import EXPERIMENTS

        if name not in EXPERIMENTS:
            offered = ", ".join(EXPERIMENTS)
            raise NotFound(f"There is no experiment {shown(name)}.", remedy=f"The experiments are {offered}.")
        return EXPERIMENTS[name]

    def experiments(self, model: str = DEFAULT_MODEL) -> list[ExperimentInfo]:
        """All experiments, their schemas narrowed to `model`."""
        found: list[ExperimentInfo] = self._answer(self._handle(model).experiments.remote)
        return found

    def run(self, request: RunRequest) -> Subscription:
        """Start a run on a replica. The same request as one that lives goes where that one is, and shares it.

        Raises:
            ModelError: no replica has the model; `Busy`: too many requests wait; and what the replica refuses.
        """
        key = hashlib.sha256(encode(replace(request, fresh=False))).hexdigest()
        with self._lock:
            prefer = self._live.get(key, "")
        stream: DeploymentResponseGenerator = (
            self._handle(request.model).run.options(stream=True).remote(request, prefer=prefer)
        )
        first = _asked(lambda: next(stream))
        if first[0] == "refused":
            raise raised(first[1])
        _, home, run_id = first
        with self._lock:
            self._running += 1
            self._live[key] = home
            self._homes[run_id] = home
            while len(self._homes) > REMEMBERED_RUNS:
                self._homes.popitem(last=False)
        told = RunLog(run_id, on_abandoned=stream.cancel)
        reader = told.subscribe()
        threading.Thread(target=self._pass_on, args=(stream, told, key), name=f"lab-run-{run_id}", daemon=True).start()
        return reader

    def inspect(self, request: InspectRequest) -> dict[str, Any]:
        """Ask the replica that has the run, or any of the model's."""
        with self._lock:
            prefer = self._homes.get(request.run_id or "", "")
        answer: dict[str, Any] = self._answer(
            lambda: self._handle(request.model).inspect.remote(request, prefer=prefer)
        )
        return answer

    def close(self) -> None:
        """Nothing is held here: runs end with their streams."""

    def _handle(self, model: str) -> DeploymentHandle:
        if model not in self._handles:
            raise ModelError(
                f"The model {shown(model)} has no replica here.", remedy=f"There are {', '.join(self._handles)}."
            )
        return self._handles[model]

    def _answer(self, call: Callable[[], Any]) -> Any:
        kind, told = _asked(lambda: call().result(timeout_s=ANSWER_S))
        if kind == "refused":
            raise raised(told)
        return told

    def _pass_on(self, stream: DeploymentResponseGenerator, told: RunLog, key: str) -> None:
        """Publish what the replica says. Whatever happens the log ends."""
        try:
            for lines in stream:
                for line in lines.splitlines():
                    told.publish(decode_line(line))
        except LabError as error:
            told.publish(RunFailed(code=error.code, message=error.message, remedy=error.remedy))
        except BROKEN as error:
            log.info("the stream of run %s broke: %r", told.run_id, error)
        finally:
            # A log that has ended takes no more: this is heard only where the stream stopped short.
            told.publish(RunFailed(code="backend", message=GONE, remedy="Run it again: another replica takes it."))
            with self._lock:
                self._running -= 1
                self._live.pop(key, None)


def _asked(call: Callable[[], Any]) -> Any:
    """What a replica says.

    Raises:
        Busy: as many requests wait as may; `BackendUnavailable`: no replica could answer.
    """
    try:
        return call()
    except BackPressureError:
        raise Busy(
            "All replicas are busy, and as many requests wait as may.",
            remedy=f"Try again in {RETRY_S} s.",
            retry_after_s=RETRY_S,
        ) from None
    except StopIteration:
        raise BackendUnavailable("The replica ended before the run began.", remedy="Run it again.") from None
    except DeploymentUnavailableError:
        raise BackendUnavailable(
            "The model's replicas cannot be started.", remedy="See the log of the cluster."
        ) from None
    except TimeoutError:
        raise Busy(f"No replica answered within {ANSWER_S:g} s.", remedy="Try again in a moment.") from None
    except BROKEN as error:
        log.info("a replica could not be asked: %r", error)
        raise BackendUnavailable("The replica went away.", remedy="Try again: another one takes its place.") from None


class Front:
    """The deployment with the HTTP app; Serve asks it for the app once it is made.

    Args:
        handles: by model id.
    """

    def __init__(
        self,
        models: tuple[str, ...],
        handles: tuple[DeploymentHandle, ...],
        token: str,
        limits: Limits,
        hosting: HostedSettings | None,
    ) -> None:
        if len(models) != len(handles):
            raise BadInput(f"{len(models)} models and {len(handles)} deployments do not go together.")
        self._app = create_app(RayBackend(dict(zip(models, handles, strict=True)), limits), token, hosting)

    def __serve_build_asgi_app__(self) -> FastAPI:
        return self._app
