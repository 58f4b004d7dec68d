"""`lab serve --ray`: the HTTP app on a Ray cluster, until a signal comes."""

from __future__ import annotations

import re
import signal
import threading

from lab.backend import serve as process
from lab.backend.hosting import HostedSettings
from lab.backend.limits import Limits
from lab.backend.ray_serve.cluster import ClusterSettings, deploy, shut_down
from lab.cli.console import say
from lab.errors import BadInput, shown
from lab.settings import BACKEND_TOKEN, BACKEND_URL


def serve_on_ray(
    *,
    models: tuple[str, ...],
    replicas: str,
    cpus: float,
    gpus: float,
    queued: int,
    join: str,
    limits: Limits,
    host: str,
    port: int,
    token: str,
    say_token: bool,
    hosting: HostedSettings | None,
) -> None:
    """Deploy the lab and wait for SIGINT or SIGTERM. See `ClusterSettings` for what the values mean.

    Raises:
        BadInput: values that do not go together, or a port in use; `BackendUnavailable`: the cluster does not start.
    """
    least, most = replica_range(replicas)
    settings = ClusterSettings(
        models=models,
        min_replicas=least,
        max_replicas=most,
        cpus=cpus,
        gpus=gpus,
        queued=queued,
        limits=limits,
        address=join,
    )
    sock = process.listen(host, port)  # Serve would only say in its log that a port is in use
    port = sock.getsockname()[1]
    sock.close()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    say(f"starting {len(models)} x {replicas} replicas on Ray; this takes half a minute")
    try:
        url = deploy(settings, token, host=host, port=port, hosting=hosting)
        say(f"the lab's models at {url}")
        if say_token:
            say(f"  export {BACKEND_URL}={url} {BACKEND_TOKEN}={token}")
        stop.wait()
    finally:
        shut_down(joined=bool(join))


def replica_range(text: str) -> tuple[int, int]:
    """The least and the most replicas of "2" or "1-4".

    Raises:
        BadInput: it is neither.
    """
    found = re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", text.strip())
    if found is None:
        raise BadInput(
            f"{shown(text)} says no number of replicas.", remedy="Write 2, or 1-4 for one to four as needed."
        )
    return int(found[1]), int(found[2] or found[1])
