"""The lab on a Ray cluster: what is deployed, and the cluster of this machine where there is none to join.

Ray's own words: a deployment is one model's replicas; each replica is a process with its share of CPUs and GPUs.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lab.backend.hosting import HostedSettings
from lab.backend.limits import Limits
from lab.backend.local import LocalBackend
from lab.backend.protocol import DEFAULT_MODEL
from lab.errors import BackendUnavailable, BadInput, shown

log = logging.getLogger(__name__)

APP = "inference-lab"
OBJECT_STORE = 128 * 1024 * 1024
"""Bytes for Ray's object store on this machine: events are small."""
QUESTIONS = 16
"""Answers that a replica works on beside its runs."""


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """What is deployed.

    Attributes:
        models: each has a deployment of its own; the first is the default.
        min_replicas, max_replicas: of each model; between them Ray adds one where more runs are under way than
            `limits.active_runs` a replica.
        cpus, gpus: share of each replica; a GPU can be shared (0.5).
        queued: requests that may wait for a replica of one model; beyond them 503.
        limits: of each replica.
        address: of the cluster to join ("auto": that of this machine); "" starts one here.

    Raises:
        BadInput: values that do not go together.
    """

    models: tuple[str, ...] = (DEFAULT_MODEL,)
    min_replicas: int = 1
    max_replicas: int = 1
    cpus: float = 1.0
    gpus: float = 0.0
    queued: int = 32
    limits: Limits = field(default_factory=Limits)
    address: str = ""

    def __post_init__(self) -> None:
        if not self.models or len(set(self.models)) != len(self.models):
            raise BadInput("Each model is named once, and one at least.", remedy="Name one model or more.")
        if not 1 <= self.min_replicas <= self.max_replicas:
            raise BadInput(
                f"{self.min_replicas} to {self.max_replicas} replicas are no range.",
                remedy="Give 1 or more, the most not below the least.",
            )
        for name, share, least in (("CPUs", self.cpus, 0.0), ("GPUs", self.gpus, -1.0)):
            if not least < share <= 1024 or (share > 1 and share != int(share)) or share < 0:
                raise BadInput(
                    f"A share of {shown(share)} {name} cannot be had.", remedy="Give a part of one, or a whole number."
                )
        if self.queued < 1:
            raise BadInput(f"{self.queued} requests may wait; it must be at least 1.", remedy="Give 1 or more.")


def deploy(
    settings: ClusterSettings,
    token: str,
    *,
    host: str,
    port: int,
    hosting: HostedSettings | None = None,
    make_backend: Callable[[], LocalBackend] | None = None,
) -> str:
    """Start or join a cluster, deploy the lab on it, and wait until its replicas answer.

    Args:
        make_backend: makes a replica's backend in the replica's process; the model process's own if None.

    Returns:
        The address, "http://HOST:PORT".

    Raises:
        BackendUnavailable: Ray is not installed, the cluster cannot be reached, or its replicas do not start.
    """
    try:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # no request leaves this machine unasked
        import ray
        from ray import serve
    except ImportError:
        raise BackendUnavailable(
            "Ray is not installed.", remedy='Install it: pip install "inference-lab[ray]".'
        ) from None
    try:
        if not ray.is_initialized():
            _join(ray, settings)
        serve.start(http_options={"host": host, "port": port, "request_timeout_s": None})
        serve.run(
            _application(settings, token, hosting, make_backend), name=APP, route_prefix="/", logging_config=_quiet()
        )
    except Exception as error:  # Ray raises plain ones too
        shut_down()
        raise BackendUnavailable(
            f"The cluster did not start: {str(error).splitlines()[0][:300]}", remedy="See the logs of Ray."
        ) from error
    return f"http://{host}:{port}"


def shut_down() -> None:
    """Take the lab off the cluster, and end the cluster if it was started here."""
    import ray
    from ray import serve

    if ray.is_initialized():
        serve.shutdown()
        ray.shutdown()


def _join(ray: Any, settings: ClusterSettings) -> None:
    if settings.address:
        ray.init(address=settings.address, namespace=APP, log_to_driver=False)
        return
    ray.init(
        namespace=APP,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=OBJECT_STORE,
        configure_logging=False,
    )


def _quiet() -> dict[str, Any]:
    return {"enable_access_log": False, "log_level": "WARNING"}


def _application(
    settings: ClusterSettings,
    token: str,
    hosting: HostedSettings | None,
    make_backend: Callable[[], LocalBackend] | None,
) -> Any:
    from ray import serve
    from ray.serve.config import AutoscalingConfig, RequestRouterConfig

    from lab.backend.ray_serve.front import Front
    from lab.backend.ray_serve.replica import ModelReplica
    from lab.backend.ray_serve.router import HomeFirst

    limits = settings.limits
    make = make_backend or _maker(limits)
    threads = str(max(1, int(settings.cpus)))
    scale: dict[str, Any] = {"num_replicas": settings.min_replicas}
    if settings.max_replicas > settings.min_replicas:
        scale = {
            "autoscaling_config": AutoscalingConfig(
                min_replicas=settings.min_replicas,
                max_replicas=settings.max_replicas,
                target_ongoing_requests=limits.active_runs,
            )
        }
    handles = tuple(
        serve.deployment(
            ModelReplica,
            name=_name(model),
            max_ongoing_requests=limits.active_runs + limits.waiting_runs + QUESTIONS,
            max_queued_requests=settings.queued,
            ray_actor_options={
                "num_cpus": settings.cpus,
                "num_gpus": settings.gpus,
                "runtime_env": {"env_vars": {"OMP_NUM_THREADS": threads}},
            },
            request_router_config=RequestRouterConfig(request_router_class=HomeFirst),
            **scale,
        ).bind(make, model)
        for model in settings.models
    )
    front = serve.deployment(
        serve.ingress()(Front), name="front", max_ongoing_requests=1024, ray_actor_options={"num_cpus": 0}
    )
    return front.bind(settings.models, handles, token, limits, hosting)


def _maker(limits: Limits) -> Callable[[], LocalBackend]:
    def make() -> LocalBackend:
        from lab.backend.malloc import settle_this_process
        from lab.backend.serve import make_backend

        settle_this_process()
        return make_backend(limits)

    return make


def _name(model: str) -> str:
    """A model's deployment: ids may hold what a deployment's name may not."""
    return "model-" + re.sub(r"[^a-zA-Z0-9]+", "-", model).strip("-").lower()
