"""Two nodes on two networks: a replica on each, runs, questions and Stop across the line, and a machine that dies."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from backend import toys
from far_node import ENVIRONMENT, NoNamespaces, TwoNodes, two_nodes
from toy_cluster import TOKEN, Cluster, Held, Place, ask_for, hold, place_of, toy_cluster

from lab.backend.http import HttpBackend
from lab.errors import BackendUnavailable, BadInput, Busy
from lab.events import Progress, RunCancelled, RunFailed, RunFinished, RunStarted

pytestmark = pytest.mark.cluster
OTHER = """
import sys
import ray
from ray import serve

@serve.deployment(ray_actor_options={"num_cpus": 0})
class Other:
    def __call__(self, request):
        return "still here"

ray.init(address=sys.argv[1], log_to_driver=False)
serve.run(Other.bind(), name="other", route_prefix="/other")
"""


@pytest.fixture(scope="module")
def nodes() -> Iterator[TwoNodes]:
    with ExitStack() as stack:
        try:
            nodes = stack.enter_context(two_nodes())
        except NoNamespaces as why:
            pytest.skip(f"no second node on a network of its own: {why}")
        yield nodes


@pytest.fixture(scope="module")
def cluster(nodes: TwoNodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two replicas of one CPU each on two nodes of one CPU each."""
    folder = tmp_path_factory.mktemp("nodes")
    settings = {"models": ("toy",), "cpus": 1.0, "address": nodes.address}
    with nodes.far_node(), toy_cluster(folder, ENVIRONMENT, **settings) as cluster:
        yield cluster


@pytest.fixture
def http(cluster: Cluster) -> Iterator[HttpBackend]:
    client = HttpBackend(cluster.url, TOKEN)
    yield client
    client.close()


class Placed(NamedTuple):
    run: Held
    place: Place


def placed(http: HttpBackend, label: str) -> Placed:
    run = hold(http, label)
    place: list[Place] = []

    def has_its_turn() -> bool:
        place.extend(found for found in [place_of(http, run.run_id)] if found is not None)
        return bool(place)

    toys.until(has_its_turn, f"{label} has its turn", 30)
    return Placed(run, place[0])


def one_on_each(http: HttpBackend, nodes: TwoNodes, label: str) -> tuple[Placed, Placed]:
    """A held run here and one there. The second goes to the replica that has less to do, once the front knows both."""
    found = [placed(http, f"{label}0")]

    def elsewhere() -> bool:
        second = placed(http, f"{label}{len(found)}")
        found.append(second)
        if second.place.network == found[0].place.network:
            second.run.stream.close()
            return False
        return True

    toys.until(elsewhere, "the other replica has a run", 30)
    near, far = sorted((found[0], found[-1]), key=lambda one: one.place.network == nodes.far.inode)
    assert far.place.network == nodes.far.inode
    assert near.place.network == Path("/proc/self/ns/net").stat().st_ino
    return near, far


def test_both_machines_run_and_a_question_finds_its_run(http: HttpBackend, nodes: TwoNodes) -> None:
    near, far = one_on_each(http, nodes, "asked")
    for _ in range(6):  # by lot each would miss every second time
        for run, place in (near, far):
            assert place.label == run.label
            assert place_of(http, run.run_id) == place
    near.run.stream.close()
    far.run.stream.close()


def test_a_run_over_the_line_is_the_run_of_one_process(http: HttpBackend, nodes: TwoNodes) -> None:
    near, far = one_on_each(http, nodes, "busy")
    local = toys.backend()
    alone = [event for event in local.run(ask_for(steps=300, label="whole")) if isinstance(event, Progress)]
    local.close()
    served: set[int] = set()
    for number in range(12):
        events = list(http.run(ask_for(steps=300, label="whole", seconds=float(number))))
        toys.assert_whole(events)
        assert [event for event in events if isinstance(event, Progress)] == alone
        assert isinstance(events[0], RunStarted)
        place = place_of(http, events[0].run_id)
        assert place is not None
        served.add(place.network)
        if len(served) == 2:
            break
    assert served == {near.place.network, far.place.network}
    near.run.stream.close()
    far.run.stream.close()


def test_stop_reaches_the_far_generator(cluster: Cluster, http: HttpBackend, nodes: TwoNodes) -> None:
    (near, _), (far, _) = one_on_each(http, nodes, "stopped")
    assert not cluster.was_closed(far.label)
    far.stream.close()
    assert isinstance(list(far.stream)[-1], RunCancelled)
    toys.until(lambda: cluster.was_closed(far.label), "the far generator is closed")
    assert not cluster.was_closed(near.label)
    near.stream.close()


def runs(http: HttpBackend, label: str) -> bool:
    """Whether a run is made now."""
    try:
        return isinstance(list(http.run(ask_for(label=label)))[-1], RunFinished)
    except (Busy, BadInput, BackendUnavailable):
        return False


def test_a_machine_that_dies_ends_its_runs_in_words_and_the_other_goes_on(
    cluster: Cluster, http: HttpBackend, nodes: TwoNodes
) -> None:
    (near, here), (far, _) = one_on_each(http, nodes, "dies")
    nodes.far.kill_all()
    end = list(far.stream)[-1]
    assert isinstance(end, RunFailed)
    assert "went away" in end.message
    assert not cluster.was_closed(far.label)
    assert place_of(http, near.run_id) == here
    near.stream.close()
    assert isinstance(list(near.stream)[-1], RunCancelled)

    toys.until(lambda: runs(http, "again"), "the other machine runs what comes next", timeout_s=60)
    last, there = placed(http, "last")
    assert there.network == here.network
    last.stream.close()


def test_a_machine_that_comes_back_runs_again_until_its_line_is_cut(
    cluster: Cluster, http: HttpBackend, nodes: TwoNodes
) -> None:
    toys.until(lambda: cluster.states().get("RUNNING") == 1, "one replica is left", timeout_s=60)
    with nodes.far_node():
        toys.until(lambda: cluster.states() == {"RUNNING": 2}, "the far replica is back", timeout_s=120)
        (near, here), (far, _) = one_on_each(http, nodes, "back")
        nodes.far.cut()
        end = list(far.stream)[-1]  # silence is noticed by Ray's health checks
        assert isinstance(end, RunFailed)
        assert "went away" in end.message
        assert place_of(http, near.run_id) == here
        near.stream.close()
        toys.until(lambda: runs(http, "alone"), "the other machine runs what comes next", timeout_s=60)


def test_what_else_the_cluster_serves_stays_when_the_lab_goes(cluster: Cluster, nodes: TwoNodes) -> None:
    command = [sys.executable, "-c", OTHER, nodes.address]
    done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert httpx.get(cluster.url + "/other", trust_env=False).text == "still here"
    assert httpx.get(cluster.url + "/live", trust_env=False).json() == {"ok": True}
    cluster.end()
    assert httpx.get(cluster.url + "/other", trust_env=False).text == "still here"
    assert httpx.get(cluster.url + "/live", trust_env=False).status_code == 404
