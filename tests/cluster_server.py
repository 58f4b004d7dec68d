"""A cluster of toys in a process of its own: `python -m cluster_server PORT FILE [SETTINGS]`.

It says its address. Each line of its standard input is answered by how many replicas of "toy" are in which state; it
ends with its standard input. SETTINGS are of `ClusterSettings`, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backend import toys

from lab.backend.limits import Limits
from lab.backend.local import LocalBackend
from lab.backend.ray_serve.cluster import APP, ClusterSettings, deploy, shut_down
from lab.backend.serve import take_token

LIMITS = Limits(active_runs=2, waiting_runs=1, heartbeat_s=0.2)
DEFAULTS: dict[str, Any] = {
    "models": ("toy", "other"),
    "min_replicas": 2,
    "max_replicas": 2,
    "cpus": 0.1,
    "queued": 2,
    "limits": LIMITS,
}


class Written(list[str]):
    """A list that is a file: what one process appends another can read."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def append(self, value: str) -> None:
        with self._path.open("a") as file:
            file.write(value + "\n")


class PlacedRunner(toys.CountRunner):
    """Counts, and says which process of which network counted."""

    def inspect(self, *args: Any, **more: Any) -> dict[str, Any]:
        place = {"pid": os.getpid(), "network": Path("/proc/self/ns/net").stat().st_ino}
        return {**super().inspect(*args, **more), **place}


def toy_maker(closed: Path) -> Callable[[], LocalBackend]:
    """Makes a backend of toys; the labels of runs whose generator was closed are written to `closed`."""

    def make() -> LocalBackend:
        return toys.backend(PlacedRunner(closed=Written(closed)), limits=LIMITS)

    return make


def replica_states() -> dict[str, int]:
    from ray import serve

    states = serve.status().applications[APP].deployments["model-toy"].replica_states
    return {str(getattr(state, "value", state)): count for state, count in states.items() if count}


def main() -> None:
    from ray import cloudpickle

    # A replica's process does not know the tests' folder.
    for module in (toys, sys.modules[__name__]):
        cloudpickle.register_pickle_by_value(module)
    port, closed = int(sys.argv[1]), Path(sys.argv[2])
    settings = ClusterSettings(**{**DEFAULTS, **json.loads((sys.argv[3:] or ["{}"])[0])})
    print(deploy(settings, take_token(), host="127.0.0.1", port=port, make_backend=toy_maker(closed)), flush=True)
    for _ in sys.stdin:
        print(json.dumps(replica_states()), flush=True)
    shut_down(joined=bool(settings.address))


if __name__ == "__main__":
    main()
