"""The lab on a Ray cluster: what is deployed, and the cluster of this machine where there is none to join.

Ray's own words: a deployment is one model's replicas; each replica is a process with its share of CPUs and GPUs.
"""

from __future__ import annotations

import logging
import math
import os
import re
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from lab.backend.hosting import HostedSettings
from lab.backend.limits import Limits
from lab.backend.local import LocalBackend
from lab.backend.protocol import DEFAULT_MODEL
from lab.errors import BackendUnavailable, BadInput, LabError, shown

log = logging.getLogger(__name__)

APP = "inference-lab"
OBJECT_STORE = 128 * 1024 * 1024
"""Bytes for Ray's object store on this machine: events are small."""
QUESTIONS = 16
"""Answers that a replica works on beside its runs."""
DAY_S = 86_400.0
OPEN_S = 30.0
"""How long the door may take to answer once all replicas run."""


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """What is deployed.

    Attributes:
        models: each has a deployment of its own; the first is the default.
        min_replicas, max_replicas: of each model; between them Ray adds one where more runs are under way than
            `limits.active_runs` a replica.
        cpus, gpus: share of each replica; a GPU can be shared (0.5).
        upscale_delay_s, downscale_delay_s: how long more, or fewer, replicas must have been enough before there are.
            One that goes finishes its runs first.
        queued: requests that may wait for a replica of one model; beyond them 503.
        limits: of each replica.
        address: of the cluster to join ("auto": that of this machine); "" starts one here.

    Raises:
        BadInput: values that do not go together.
    """

    models: tuple[str, ...] = (DEFAULT_MODEL,)
    min_replicas: int = 1
    max_replicas: int = 1
    upscale_delay_s: float = 10.0
    downscale_delay_s: float = 300.0
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
        for way, delay in (("up", self.upscale_delay_s), ("down", self.downscale_delay_s)):
            if not (math.isfinite(delay) and 0 <= delay <= DAY_S):
                raise BadInput(
                    f"Scaling {way} after {shown(delay)} s cannot be had.", remedy=f"Give 0 to {DAY_S:,.0f} s."
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
        BadInput: this machine cannot hold the replicas.
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
        if not settings.address:
            require_room(settings, ray.cluster_resources())
        serve.start(http_options={"host": host, "port": port, "request_timeout_s": None})
        serve.run(
            _application(settings, token, hosting, make_backend), name=APP, route_prefix="/", logging_config=_quiet()
        )
        until_open(host, port)
    except LabError:
        shut_down(joined=bool(settings.address))
        raise
    except Exception as error:  # Ray raises plain ones too
        shut_down(joined=bool(settings.address))
        raise BackendUnavailable(
            f"The cluster did not start: {str(error).splitlines()[0][:300]}", remedy="See the logs of Ray."
        ) from error
    return f"http://{host}:{port}"


def require_room(settings: ClusterSettings, resources: Mapping[str, float]) -> None:
    """Refuse replicas that this machine can never hold: Ray would wait for another one without a word.

    Args:
        resources: what the cluster has, by Ray's names.

    Raises:
        BadInput: the least of replicas takes more.
    """
    for name, share in (("CPU", settings.cpus), ("GPU", settings.gpus)):
        needed, there = share * settings.min_replicas * len(settings.models), resources.get(name, 0.0)
        if needed > there:
            raise BadInput(
                f"{settings.min_replicas * len(settings.models)} replicas with {share:g} {name} each take {needed:g}; "
                f"this machine has {there:g}.",
                remedy="Ask for fewer replicas or smaller shares, or join a larger cluster.",
            )


def shut_down(*, joined: bool = False) -> None:
    """Take the lab off the cluster, and end the cluster if it was started here.

    Args:
        joined: the cluster is another's: what else Serve has on it stays, and runs that go on there end by themselves.
    """
    import ray
    from ray import serve

    if not ray.is_initialized():
        return
    try:
        if joined and set(serve.status().applications) - {APP}:
            serve.delete(APP)
        elif joined:
            serve.shutdown()
    except (RuntimeError, TimeoutError) as error:  # the cluster is gone, or a run takes its time
        log.warning("the lab was not taken off the cluster: %s", error)
    finally:
        ray.shutdown()


def until_open(host: str, port: int) -> None:
    """Wait for the door.

    Raises:
        BackendUnavailable: it stands elsewhere: a cluster whose Serve runs already keeps the address that it has.
    """
    reached = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104 - to be asked, not bound
    deadline = time.monotonic() + OPEN_S
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"http://{reached}:{port}/live", timeout=5, trust_env=False).status_code == httpx.codes.OK:
                return
        except httpx.HTTPError:
            pass
        threading.Event().wait(0.1)
    raise BackendUnavailable(
        f"Nothing answers at http://{host}:{port}.",
        remedy="If Serve runs on this cluster already, it keeps its own port: name that one with --port.",
    )


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
    from ray.serve.config import RequestRouterConfig

    from lab.backend.ray_serve.front import Front
    from lab.backend.ray_serve.replica import ModelReplica
    from lab.backend.ray_serve.router import HomeFirst

    limits = settings.limits
    make = make_backend or _maker(limits)
    threads = str(max(1, int(settings.cpus)))
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
            # A replica that is no longer needed finishes its runs; their own deadline ends them.
            graceful_shutdown_timeout_s=limits.deadline_s,
            **scaling(settings),
        ).bind(make, model)
        for model in settings.models
    )
    # The front stands where the lab was started: a machine that dies elsewhere takes its own runs along, not all.
    front = serve.deployment(
        serve.ingress()(Front),
        name="front",
        max_ongoing_requests=1024,
        ray_actor_options={"num_cpus": 0, "resources": {_this_node(): 0.001}},
    )
    return front.bind(settings.models, handles, token, limits, hosting)


def scaling(settings: ClusterSettings) -> dict[str, Any]:
    """How many replicas a deployment has, in Serve's words."""
    if settings.max_replicas == settings.min_replicas:
        return {"num_replicas": settings.min_replicas}
    from ray.serve.config import AutoscalingConfig

    # Measured often enough for the shorter delay. Serve calls this field deprecated and has no other for a deployment.
    interval_s = min(10.0, max(0.1, min(settings.upscale_delay_s, settings.downscale_delay_s) / 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        bounds = AutoscalingConfig(
            min_replicas=settings.min_replicas,
            max_replicas=settings.max_replicas,
            target_ongoing_requests=settings.limits.active_runs,
            upscale_delay_s=settings.upscale_delay_s,
            downscale_delay_s=settings.downscale_delay_s,
            metrics_interval_s=interval_s,
            look_back_period_s=3 * interval_s,
        )
    return {"autoscaling_config": bounds}


def _this_node() -> str:
    """The resource that every node of a cluster has for itself: of this process's node."""
    import ray

    here = ray.get_runtime_context().get_node_id()
    (node,) = (node for node in ray.nodes() if node["NodeID"] == here)
    return f"node:{node['NodeManagerAddress']}"


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
