"""Spectra from the factors alone, fewer ranks, and where updates sit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lora_made import GPT2, exact, trained

from lab.errors import BadInput
from lab.lora.adapter import Adapter, BaseFacts, Factors, LoraConfig, new_adapter
from lab.lora.spectrum import places, spectra, truncate
from lab.models.linear import out_in
from lab.models.loading import LoadedModel

Tiny = Callable[..., LoadedModel]


def alone(rows: int, columns: int, rank: int, seed: int, alpha: float = 6, rslora: bool = False) -> Adapter:
    pair = Factors(exact(rank, columns, seed), exact(rows, rank, seed + 1))
    return Adapter("a", LoraConfig(rank, alpha, ("m",), rslora), {"m": pair}, BaseFacts("", {"m": (rows, columns)}))


@given(rows=st.integers(1, 40), columns=st.integers(1, 40), rank=st.integers(1, 12), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_values_are_those_of_the_whole_matrix(rows: int, columns: int, rank: int, seed: int) -> None:
    adapter = alone(rows, columns, rank, seed)
    (found,) = spectra(adapter)
    wanted = torch.linalg.svdvals(adapter.delta("m").double())
    values = torch.tensor(found.values, dtype=torch.float64)
    assert len(values) == min(rank, rows, columns)
    assert (values - wanted[: len(values)]).abs().max() < 1e-5 * max(1, float(wanted[0]))
    assert found.norm == pytest.approx(float(adapter.delta("m").norm()), rel=1e-5, abs=1e-6)


def test_a_wrong_scale_is_told() -> None:
    adapter = alone(12, 9, 3, 0)
    wanted = torch.linalg.svdvals(adapter.delta("m").double())[:3].tolist()
    assert spectra(adapter)[0].values == pytest.approx(wanted, rel=1e-5)
    assert spectra(replace(adapter, config=replace(adapter.config, alpha=7)))[0].values != pytest.approx(
        wanted, rel=1e-3
    )
    negative = replace(adapter, config=replace(adapter.config, alpha=-6))
    assert spectra(negative)[0].values == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("rslora", [False, True])
@pytest.mark.parametrize("alpha", [6, -5])
def test_truncation_is_the_best_there_is(rslora: bool, alpha: float) -> None:
    adapter = alone(20, 14, 6, 3, alpha, rslora)
    delta = adapter.delta("m").double()
    u, s, v = torch.linalg.svd(delta, full_matrices=False)
    (found,) = spectra(adapter)
    for rank in range(1, 7):
        cut = truncate(adapter, rank)
        kept = cut.adapter.delta("m").double()
        assert cut.adapter.config.rank == rank
        assert cut.adapter.scale("m") == pytest.approx(adapter.scale("m"))
        assert torch.allclose(kept, (u[:, :rank] * s[:rank]) @ v[:rank], atol=1e-4)
        error = float((delta - kept).norm() / delta.norm())
        assert cut.error == pytest.approx(error, abs=1e-6)
        assert cut.errors["m"] == pytest.approx(found.error(rank), abs=1e-9)
        assert found.kept(rank) == pytest.approx(1 - error**2, abs=1e-6)
    # cutting the factors as they stand, which is what naive code does, is worse at each rank
    for rank in range(1, 6):
        a, b = adapter.tensors["m"]
        naive = (b[:, :rank] @ a[:rank]).double() * adapter.scale("m")
        assert float((delta - naive).norm() / delta.norm()) > 1.05 * truncate(adapter, rank).error


def test_the_whole_rank_loses_nothing_and_others_are_refused(tiny: Tiny) -> None:
    adapter = trained(tiny().model, rank=3)
    cut = truncate(adapter, 3)
    assert cut.error < 1e-12
    assert all(torch.allclose(cut.adapter.delta(n), adapter.delta(n), atol=1e-5) for n in adapter.tensors)
    assert cut.adapter.name == "made, rank 3"
    for rank in (0, 4, 1.5, True):
        with pytest.raises(BadInput, match="rank"):
            truncate(adapter, rank)  # type: ignore[arg-type]


def test_modules_of_several_ranks(tiny: Tiny) -> None:
    adapter = trained(tiny().model, ("q_proj",), rank=4)
    first, second = adapter.tensors
    a, b = adapter.tensors[first]
    mixed = replace(adapter, tensors={**adapter.tensors, first: Factors(a[:2], b[:, :2])}, alphas={first: 4.0})
    assert mixed.scale(first) == mixed.scale(second) == 2
    cut = truncate(mixed, 3).adapter
    assert [pair.a.shape[0] for pair in cut.tensors.values()] == [2, 3]
    assert torch.allclose(cut.delta(first), mixed.delta(first), atol=1e-5)


def test_effective_rank() -> None:
    pair = Factors(torch.eye(4, 8), torch.eye(8, 4))
    flat = Adapter("a", LoraConfig(4, 4, ("m",)), {"m": pair}, BaseFacts("", {"m": (8, 8)}))
    assert spectra(flat)[0].effective_rank == pytest.approx(4)
    assert spectra(truncate(flat, 1).adapter)[0].effective_rank == pytest.approx(1)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_places(tiny: Tiny, kind: str) -> None:
    model = tiny(kind).model
    adapter = trained(model, GPT2 if kind == "gpt2" else ("q_proj", "down_proj", "lm_head"))
    found = places(adapter, model)
    assert {place.layer for place in found} == ({0, 1} if kind == "gpt2" else {0, 1, None})
    names = {place.projection for place in found if place.layer == 0}
    assert names == (
        {"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"}
        if kind == "gpt2"
        else {"self_attn.q_proj", "mlp.down_proj"}
    )
    for place in found:
        name = place.spectrum.module
        ratio = adapter.delta(name).norm() / out_in(model.get_submodule(name)).norm()
        assert place.spectrum.share == pytest.approx(float(ratio), rel=1e-4)


def test_no_update_has_no_spectrum_and_no_error(tiny: Tiny) -> None:
    fresh = new_adapter(tiny().model, LoraConfig(2, 4, ("q_proj",)), 0)
    found = spectra(fresh)[0]
    assert (found.norm, found.error(1), found.kept(1), found.effective_rank) == (0, 0, 1, 0)
    assert truncate(fresh, 1).error == 0
    assert not math.isnan(spectra(truncate(fresh, 1).adapter)[0].norm)
