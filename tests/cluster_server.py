"""A cluster of toys in a process of its own: `python -m cluster_server PORT FILE`. It says its address, and ends with
its standard input."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from backend import toys

from lab.backend.limits import Limits
from lab.backend.local import LocalBackend
from lab.backend.ray_serve.cluster import ClusterSettings, deploy, shut_down
from lab.backend.serve import take_token

LIMITS = Limits(active_runs=2, waiting_runs=1, heartbeat_s=0.2)


class Written(list[str]):
    """A list that is a file: what one process appends another can read."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def append(self, value: str) -> None:
        with self._path.open("a") as file:
            file.write(value + "\n")


def toy_maker(closed: Path) -> Callable[[], LocalBackend]:
    """Makes a backend of toys; the labels of runs whose generator was closed are written to `closed`."""

    def make() -> LocalBackend:
        return toys.backend(toys.CountRunner(closed=Written(closed)), limits=LIMITS)

    return make


def main() -> None:
    from ray import cloudpickle

    # A replica's process does not know the tests' folder.
    for module in (toys, sys.modules[__name__]):
        cloudpickle.register_pickle_by_value(module)
    settings = ClusterSettings(
        models=("toy", "other"), min_replicas=2, max_replicas=2, cpus=0.1, queued=2, limits=LIMITS
    )
    port, closed = int(sys.argv[1]), Path(sys.argv[2])
    print(deploy(settings, take_token(), host="127.0.0.1", port=port, make_backend=toy_maker(closed)), flush=True)
    sys.stdin.read()
    shut_down()


if __name__ == "__main__":
    main()
