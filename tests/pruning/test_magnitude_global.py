"""One threshold for a model against torch's own global pruning, and among ties."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import prune

from lab.errors import BadInput
from lab.pruning import threshold
from lab.pruning.choose import lowest
from lab.pruning.global_magnitude import GlobalMasks, global_magnitude
from lab.pruning.magnitude import Magnitude
from lab.pruning.pattern import Pattern
from lab.steps import finished

SHAPES = {"b": (12, 20), "a": (7, 5), "c": (1, 33)}


def weights(seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sizes = {"a": 0.1, "b": 1.0, "c": 0.5}
    return {name: torch.randn(shape, generator=generator) * sizes[name] for name, shape in SHAPES.items()}


def made(given: dict[str, Tensor], sparsity: float) -> GlobalMasks:
    return finished(global_magnitude(given, sparsity))


@pytest.mark.parametrize("sparsity", [0.0, 0.2, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("piece", [16, 2**20])
def test_it_is_torchs_global_unstructured(monkeypatch: pytest.MonkeyPatch, sparsity: float, piece: int) -> None:
    monkeypatch.setattr(threshold, "PIECE", piece)
    given = weights()
    layers = {name: nn.Linear(w.shape[1], w.shape[0], bias=False) for name, w in given.items()}
    for name, layer in layers.items():
        layer.weight = nn.Parameter(given[name].clone())
    pairs = [(layer, "weight") for layer in layers.values()]
    prune.global_unstructured(pairs, pruning_method=prune.L1Unstructured, amount=sparsity)  # type: ignore[no-untyped-call]
    found = made(given, sparsity)
    assert list(found.masks) == ["a", "b", "c"]
    for name, layer in layers.items():
        assert torch.equal(found.masks[name], layer.weight_mask.bool())  # type: ignore[operator]
    total = sum(w.numel() for w in given.values())
    assert found.total == total
    assert found.pruned == sum(int((~mask).sum()) for mask in found.masks.values()) == round(sparsity * total)
    assert found.sparsity == pytest.approx(sparsity, abs=1 / total)
    gone = [w[~found.masks[name]].abs() for name, w in given.items()]
    assert found.threshold == max((float(g.max()) for g in gone if len(g)), default=0.0)
    if 0 < sparsity < 1:  # the mutation: a threshold for each matrix
        apart = {name: finished(Magnitude(Pattern(sparsity)).prune(w)).mask for name, w in given.items()}
        assert any(not torch.equal(apart[name], found.masks[name]) for name in given)


@given(st.integers(0, 1000), st.integers(1, 6), st.floats(0, 1))
@settings(max_examples=100, deadline=None)
def test_ties_go_by_name_and_counts_are_exact(seed: int, values: int, sparsity: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    tied = {
        name: torch.randint(-values, values + 1, shape, generator=generator).float() for name, shape in SHAPES.items()
    }
    found = made(tied, sparsity)
    joined = torch.cat([tied[name].flatten() for name in sorted(tied)])
    wanted = ~lowest(joined.abs()[None], Pattern(sparsity))[0]
    assert torch.equal(torch.cat([found.masks[name].flatten() for name in sorted(tied)]), wanted)
    assert found.pruned == round(sparsity * len(joined))
    again = made(dict(reversed(tied.items())), sparsity)  # the mapping's order says nothing
    assert all(torch.equal(mask, again.masks[name]) for name, mask in found.masks.items())


def test_the_order_of_the_mapping_would_tell() -> None:
    """The mutation beside the test above: with ties in the order in which they are given, the masks differ."""
    ones = {"b": torch.ones(2, 4), "a": torch.ones(2, 4)}
    found = made(ones, 0.5)
    assert not found.masks["a"].any()
    assert found.masks["b"].all()
    as_given = ~lowest(torch.cat([w.flatten() for w in ones.values()])[None], Pattern(0.5))[0]
    assert not as_given[:8].any()  # "b" would have gone
    assert found.notes == ("1 of 2 matrices lost all weights, a first.",)


def test_one_matrix_is_magnitude_pruning() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        weight = torch.randn(64, 96, generator=torch.Generator().manual_seed(1)).to(dtype)
        found = made({"w": weight}, 0.6)
        assert torch.equal(found.masks["w"], finished(Magnitude(Pattern(0.6)).prune(weight)).mask)


def test_it_pauses() -> None:
    shares = list(global_magnitude({f"layer.{i}": torch.randn(64, 64) for i in range(5)}, 0.5))
    assert len(shares) == 20
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)


def test_bad_input_is_refused_in_words() -> None:
    with pytest.raises(BadInput, match="no weights"):
        made({}, 0.5)
    with pytest.raises(BadInput, match=r"1\.5"):
        made(weights(), 1.5)
    bad = weights()
    bad["b"][2, 3] = float("nan")
    with pytest.raises(BadInput, match=r"^b has 1 weights that are not finite.*row 2, column 3"):
        made(bad, 0.5)
