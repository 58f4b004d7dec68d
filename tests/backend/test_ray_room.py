"""What is asked of a Ray cluster is refused in words where it can never be had. No Ray is started here."""

from __future__ import annotations

import pytest

from lab.backend.ray_serve.cluster import ClusterSettings, require_room
from lab.cli.serve_ray import replica_range
from lab.errors import BadInput


def test_replicas_that_fit_are_let_through_and_one_more_is_not() -> None:
    two = {"CPU": 2.0}
    require_room(ClusterSettings(min_replicas=2, max_replicas=8), two)
    require_room(ClusterSettings(min_replicas=20, max_replicas=20, cpus=0.1), two)
    with pytest.raises(BadInput, match=r"3 replicas with 1 CPU each take 3; this machine has 2\."):
        require_room(ClusterSettings(min_replicas=3, max_replicas=3), two)
    with pytest.raises(BadInput, match="4 replicas"):
        require_room(ClusterSettings(models=("a", "b"), min_replicas=2, max_replicas=2), two)
    with pytest.raises(BadInput, match=r"0\.5 GPU each take 0\.5; this machine has 0\."):
        require_room(ClusterSettings(gpus=0.5), two)


@pytest.mark.parametrize(("text", "bounds"), [("2", (2, 2)), (" 1-4 ", (1, 4))])
def test_a_range_of_replicas(text: str, bounds: tuple[int, int]) -> None:
    assert replica_range(text) == bounds


@pytest.mark.parametrize("text", ["", "1-", "-1", "1e9", "12345", "٣"])
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(BadInput, match="says no number of replicas"):
        replica_range(text)
