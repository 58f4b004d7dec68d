"""The lab on a real Ray cluster of this machine: the same protocol, streams that end, replicas that die."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator

import httpx
import pytest
from backend import toys
from backend.conftest import serving
from free_port import free_port
from toy_cluster import TOKEN, Cluster, ask_for, toy_cluster

from lab.backend.http import HttpBackend
from lab.backend.limits import Limits
from lab.backend.protocol import InspectRequest, RunRequest
from lab.backend.ray_serve.cluster import ClusterSettings, scaling, until_open
from lab.errors import BackendUnavailable, BadInput, Busy, ModelError, NotFound
from lab.events import Progress, RunCancelled, RunFailed, RunFinished, RunStarted

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with toy_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def http(cluster: Cluster) -> Iterator[HttpBackend]:
    client = HttpBackend(cluster.url, TOKEN)
    yield client
    client.close()


def test_the_client_sees_what_one_process_gives(http: HttpBackend) -> None:
    local = toys.backend()
    assert http.experiments("toy") == local.experiments("toy")
    assert [facts.id for facts in http.models()] == ["toy", "other"]
    events = list(http.run(ask_for(steps=300)))
    toys.assert_whole(events)
    alone = list(local.run(ask_for(steps=300)))
    assert [e for e in events if isinstance(e, Progress)] == [e for e in alone if isinstance(e, Progress)]
    assert http.health().device == "ray"
    local.close()


def test_errors_keep_their_kind(cluster: Cluster, http: HttpBackend) -> None:
    with pytest.raises(NotFound, match="no experiment 'dance'"):
        http.run(RunRequest(experiment="dance", model="toy"))
    with pytest.raises(BadInput, match=r"steps is 0; it must be at least 1"):
        http.run(ask_for(steps=0))
    with pytest.raises(ModelError, match="has no replica here"):
        http.run(RunRequest(experiment="count", model="gone"))
    assert httpx.get(cluster.url + "/health").status_code == 401
    assert httpx.get(cluster.url + "/live").json() == {"ok": True}


def test_a_question_about_a_run_goes_to_the_replica_that_has_it(http: HttpBackend) -> None:
    for number in range(6):  # by lot each would miss every second time
        events = list(http.run(ask_for(label=f"asked{number}")))
        assert isinstance(events[0], RunStarted)
        question = InspectRequest(experiment="count", model="toy", name="ask", run_id=events[0].run_id)
        assert http.inspect(question)["label"] == f"asked{number}"


def test_stop_reaches_the_generator(cluster: Cluster, http: HttpBackend) -> None:
    stream = http.run(ask_for(hold=True, label="stopped"))
    toys.first_of(iter(stream), Progress)
    assert not cluster.was_closed("stopped")
    stream.close()
    assert isinstance(list(stream)[-1], RunCancelled)
    toys.until(lambda: cluster.was_closed("stopped"), "the generator is closed")


def test_a_full_cluster_says_when_to_come_back_and_serves_on(cluster: Cluster, http: HttpBackend) -> None:
    streams = []
    try:
        full = None
        while full is None and len(streams) < 64:
            try:
                streams.append(http.run(ask_for(hold=True, label=f"full{len(streams)}")))
            except Busy as error:
                full = error
        assert full is not None
        assert full.retry_after_s > 0
        # each of two replicas runs two at a time, one waits, and what is beyond is refused
        assert 4 <= len(streams) <= 6
    finally:
        for stream in streams:
            stream.close()
    toys.until(lambda: all(cluster.was_closed(f"full{n}") for n in range(4)), "the runs are given up")
    assert isinstance(list(http.run(ask_for(label="after")))[-1], RunFinished)


def test_a_killed_replica_is_told_and_replaced(cluster: Cluster, http: HttpBackend) -> None:
    stream = iter(http.run(ask_for(hold=True, label="killed")))
    toys.first_of(stream, Progress)
    replicas = cluster.replicas()
    assert len(replicas) == 2
    for replica in replicas:
        replica.kill()
    end = list(stream)[-1]
    assert isinstance(end, RunFailed)
    assert "went away" in end.message

    def runs_again() -> bool:
        try:
            return isinstance(list(http.run(ask_for(label="again")))[-1], RunFinished)
        except (Busy, BadInput):
            return False

    toys.until(runs_again, "another replica takes its place", timeout_s=60)


def test_two_runs_of_one_request_are_one(http: HttpBackend) -> None:
    first = http.run(ask_for(hold=True, label="shared"))
    began = toys.first_of(iter(first), RunStarted)
    second = http.run(ask_for(hold=True, label="shared"))
    assert toys.first_of(iter(second), RunStarted).run_id == began.run_id  # type: ignore[attr-defined]
    first.close()
    second.close()


def test_what_is_no_cluster_is_refused_before_one_starts() -> None:
    for given, words in (
        ({"models": ()}, "one at least"),
        ({"models": ("a", "a")}, "named once"),
        ({"min_replicas": 3, "max_replicas": 2}, "no range"),
        ({"cpus": 0.0}, "0.0 CPUs"),
        ({"gpus": 1.5}, "1.5 GPUs"),
        ({"queued": 0}, "at least 1"),
        ({"upscale_delay_s": -1.0}, "Scaling up after -1.0 s"),
        ({"downscale_delay_s": float("inf")}, "Scaling down after inf s"),
    ):
        with pytest.raises(BadInput, match=words):
            ClusterSettings(**given)  # type: ignore[arg-type]


def test_the_bounds_are_serve_s_and_a_fixed_number_needs_none() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray's own modules, at their import
        importlib.import_module("ray.serve")
    assert scaling(ClusterSettings(min_replicas=3, max_replicas=3)) == {"num_replicas": 3}
    limits = Limits(active_runs=7)
    (bounds,) = scaling(ClusterSettings(max_replicas=4, upscale_delay_s=60.0, limits=limits)).values()
    assert (bounds.min_replicas, bounds.max_replicas, bounds.target_ongoing_requests) == (1, 4, 7)
    assert (bounds.upscale_delay_s, bounds.downscale_delay_s) == (60.0, 300.0)
    for delay in (0.0, 1.0, 10.0, 1000.0):  # no warning: what is measured spans several measurements
        (bounds,) = scaling(ClusterSettings(max_replicas=2, upscale_delay_s=delay)).values()
        assert bounds.metrics_interval_s < bounds.look_back_period_s <= max(30.0, delay)


@pytest.mark.parametrize("answers", [True, False])
def test_a_door_that_stands_elsewhere_is_said(monkeypatch: pytest.MonkeyPatch, answers: bool) -> None:
    """A cluster whose Serve runs already keeps its own port."""
    monkeypatch.setattr("lab.backend.ray_serve.cluster.OPEN_S", 0.5)
    runner = toys.CountRunner()
    with serving(toys.backend(runner), runner) as served:
        port = int(served.url.rsplit(":", 1)[1]) if answers else free_port()
        if answers:
            until_open("127.0.0.1", port)
        else:
            with pytest.raises(BackendUnavailable, match=f"Nothing answers at http://127.0.0.1:{port}"):
                until_open("127.0.0.1", port)
