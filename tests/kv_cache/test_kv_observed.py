"""Findings come from what was seen."""

from __future__ import annotations

from dataclasses import replace

import torch

from lab.kv_cache.observed import Observation, findings
from lab.kv_cache.pooling import max_pool_positions


def _good(steps: int = 5, prompt: int = 12, layers: int = 4) -> list[Observation]:
    return [
        Observation(
            token_id=100 + i,
            fed_token_id=7 if i == 0 else 99 + i,
            fed_position=prompt + i - 1,
            length=prompt + i,
            stored=(prompt + i,) * layers,
            expected=(prompt + i,) * layers,
        )
        for i in range(steps)
    ]


def test_a_good_run_has_no_findings() -> None:
    assert findings(_good()) == []
    assert findings([]) == []


def test_a_token_fed_twice() -> None:
    seen = _good()
    seen[1] = replace(seen[1], fed_token_id=7)
    (found,) = findings(seen, lambda t: f"<{t}>")
    assert (found.kind, found.index) == ("token", 1)
    assert "fed <7>, the last prompt token a second time," in found.words
    assert "<100>, was due" in found.words


def test_another_wrong_token() -> None:
    seen = _good()
    seen[3] = replace(seen[3], fed_token_id=55)
    (found,) = findings(seen)
    assert (found.kind, found.index) == ("token", 3)
    assert "second time" not in found.words


def test_shifted_positions() -> None:
    seen = [o if i == 0 else replace(o, fed_position=o.fed_position + 1) for i, o in enumerate(_good())]
    (found,) = findings(seen)
    assert (found.kind, found.index) == ("position", 1)
    assert "position 13 where 12 was due" in found.words
    assert "every pass from there on" in found.words
    seen[3] = _good()[3]
    assert "3 of the 4 passes" in findings(seen)[0].words


def test_a_layer_that_lost_positions() -> None:
    seen = _good()
    for i in range(2, 5):
        seen[i] = replace(seen[i], stored=(*seen[i].stored[:2], i - 1, seen[i].stored[3]))
    (found,) = findings(seen)
    assert (found.kind, found.index) == ("cache", 2)
    assert "layer 2 holds 1 positions, 13 fewer than the 14" in found.words
    assert "the other 3 hold all" in found.words


def test_a_cache_with_one_too_many_and_layers_of_unknown_kind() -> None:
    seen = [replace(o, stored=(o.length + 1, 3), expected=(o.length, -1)) for o in _good()]
    (found,) = findings(seen)
    assert (found.kind, found.index) == ("cache", 0)
    assert "1 more than" in found.words


def test_several_at_once_come_in_order() -> None:
    seen = _good()
    seen[3] = replace(seen[3], fed_position=99)
    seen[2] = replace(seen[2], fed_token_id=1)
    assert [f.index for f in findings(seen)] == [2, 3]


def test_pooling_keeps_the_largest_and_at_most_128_bins() -> None:
    torch.manual_seed(0)
    for positions in (1, 127, 128, 129, 256, 1000):
        weights = torch.rand(3, 2, positions)
        pooled, size = max_pool_positions(weights)
        assert pooled.shape[-1] <= 128
        assert pooled.shape[-1] == -(-positions // size)
        for b in range(pooled.shape[-1]):
            assert torch.equal(pooled[..., b], weights[..., b * size : (b + 1) * size].amax(-1))
    assert size == 8
