"""Replicas that come with the load, go with it, and finish what they run."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from backend import toys
from toy_cluster import TOKEN, Cluster, Held, ask_for, hold, place_of, toy_cluster

from lab.backend.http import HttpBackend
from lab.errors import Busy
from lab.events import Event, Progress, RunCancelled, RunFinished

pytestmark = pytest.mark.cluster
LEAST, MOST = 1, 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("autoscaling")
    bounds = {"min_replicas": LEAST, "max_replicas": MOST, "upscale_delay_s": 0.4, "downscale_delay_s": 0.8}
    with toy_cluster(folder, models=("toy",), **bounds) as cluster:
        yield cluster


class Heard(threading.Thread):
    """Reads a held run's events as they come."""

    def __init__(self, held: Held) -> None:
        super().__init__(daemon=True)
        self._held = held
        self.steps = 0
        self.last: Event | None = None
        self.start()

    def run(self) -> None:
        for event in self._held.stream:
            self.last = event
            self.steps += isinstance(event, Progress)


def goes_on(heard: Heard, steps: int = 300) -> bool:
    """Whether so many steps come from now on, beyond what lay in a buffer."""
    before = heard.steps
    toys.until(lambda: heard.steps >= before + steps or not heard.is_alive(), "the run goes on", 30)
    return heard.steps >= before + steps


def test_replicas_follow_the_load_within_their_bounds(cluster: Cluster) -> None:
    http = HttpBackend(cluster.url, TOKEN)
    most = 0

    def states() -> dict[str, int]:
        nonlocal most
        found = cluster.states()
        most = max(most, sum(found.values()))
        return found

    assert states() == {"RUNNING": LEAST}
    held = [hold(http, f"held{number}") for number in range(3)]  # one more than a replica runs at a time
    toys.until(lambda: states() == {"RUNNING": 2}, "a second replica comes", 90)

    def six() -> bool:
        """What two replicas run and let wait is three replicas' load, were there no bound."""
        try:
            held.append(hold(http, f"held{len(held)}"))
        except Busy:  # the front hears of the second replica a moment later
            return False
        return len(held) == 6

    toys.until(six, "both replicas are full", 30)
    toys.until(lambda: sum(place_of(http, run.run_id) is not None for run in held) == 4, "four run", 30)
    places = {run.label: place for run in held if (place := place_of(http, run.run_id)) is not None}
    kept = {place.pid: run for run in held if (place := places.get(run.label)) is not None}
    assert len(kept) == MOST
    heard = {run.label: Heard(run) for run in held}
    watched = heard[next(iter(places))]
    seen = watched.steps
    toys.until(lambda: states() == {"RUNNING": MOST} and watched.steps > seen + 1500, "the load lasts", 60)

    for run in held:
        if run not in kept.values():
            run.stream.close()
    # One run on each: one replica would be enough, and whichever goes has a run to finish.
    toys.until(lambda: states() == {"RUNNING": 1, "STOPPING": 1}, "one replica is to go", 60)
    assert all(goes_on(heard[run.label]) for run in kept.values())
    assert isinstance(list(http.run(ask_for(label="meanwhile")))[-1], RunFinished)
    for run in kept.values():
        run.stream.close()
    toys.until(lambda: states() == {"RUNNING": LEAST}, "the other replica stays", 60)
    for run in held:
        heard[run.label].join(10)
        assert isinstance(heard[run.label].last, RunCancelled)
    for label in places:
        toys.until(lambda label=label: cluster.was_closed(label), "its generator was closed")
    assert most == MOST
    assert isinstance(list(http.run(ask_for(label="after")))[-1], RunFinished)
    http.close()
