"""Bytes by count, and the lesson's examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import lab.quantization.example as example
from lab.errors import BadInput
from lab.events import ModelFacts
from lab.models.facts import facts_of_directory
from lab.quantization.example import absmax_example, outlier_example
from lab.quantization.grid import Grid
from lab.quantization.storage import GB, LLAMA_7B, Matrices, by_count, decoder, of_facts, of_shapes, store, total

SMOLLM = decoder(
    hidden=576, intermediate=1536, layers=30, query_heads=9, kv_heads=3, head_dim=64, vocab=49152, tied=True
)


def test_seven_billion_weights_are_those_of_the_text() -> None:
    found = by_count(7 * 10**9, 4, 128)
    assert found.code_bytes / GB == 3.5
    assert found.scale_bytes / GB == pytest.approx(0.11, abs=0.001)
    assert found.bytes / GB == pytest.approx(3.6, abs=0.05)
    assert found.before_bytes / GB == 14
    assert found.bits_per_weight == 4.125


def test_minima_and_zero_points_are_counted() -> None:
    plain, minimum, points = (by_count(7 * 10**9, 4, 128, zero_bits=bits) for bits in (0, 16, 4))
    assert (plain.bytes - plain.code_bytes) / GB == pytest.approx(0.11, abs=0.001)
    assert (minimum.bytes - minimum.code_bytes) / GB == pytest.approx(0.22, abs=0.002)
    assert points.bits_per_weight == 4.125 + 4 / 128
    with pytest.raises(BadInput, match="has -1 bits"):
        by_count(7, 4, 128, zero_bits=-1)


def test_known_models_have_as_many_weights_as_they_have() -> None:
    assert sum(m.weights for m in LLAMA_7B) == 6_738_415_616
    assert sum(m.weights for m in SMOLLM) == 134_515_008


def test_each_kind_is_counted_and_the_rest_stays_dense() -> None:
    grid = Grid(4, "asymmetric", 64)
    found = {one.kind: one for one in store(SMOLLM, grid)}
    down = found["down_proj"]
    assert down.code_bytes == 30 * 576 * 1536 // 2
    assert down.scale_bytes == 30 * 576 * 24 * 2
    assert down.zero_bytes == 30 * 576 * 24 // 2
    assert found["embed_tokens"].dense_bytes == 49152 * 576 * 2
    assert "tied" in found["embed_tokens"].dense
    assert "lm_head" not in found
    whole = total(found.values())
    assert whole.weights == 134_515_008
    assert whole.before_bytes == 2 * whole.weights
    assert whole.bytes == sum(one.bytes for one in found.values())
    assert 0.78 < whole.quantized_share < 0.8
    assert "lm_head" in {m.kind for m in LLAMA_7B}


def test_groups_that_do_not_fit_are_refused_or_counted() -> None:
    with pytest.raises(BadInput, match="do not divide"):
        store(SMOLLM, Grid(4, "absmax", 128))
    found = {one.kind: one for one in store(SMOLLM, Grid(4, "absmax", 128, ragged=True))}
    assert found["q_proj"].scale_bytes == 30 * 576 * 5 * 2
    assert {one.kind: one for one in store(SMOLLM, Grid(4, "absmax", "tensor"))}["q_proj"].scale_bytes == 30 * 2
    with pytest.raises(BadInput, match="not 12"):
        store(SMOLLM, Grid(), dense_bits=12)
    with pytest.raises(BadInput, match="no 1 q_proj of 0 x 3"):
        Matrices(kind="q_proj", rows=0, columns=3)
    with pytest.raises(BadInput, match="1 or more"):
        by_count(0, 4, 128)


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3", "gemma2"])
def test_the_matrices_follow_from_a_model_s_facts(kind: str, tiny_directory: Callable[..., Path]) -> None:
    facts = facts_of_directory(tiny_directory(kind), model_id=kind, source="directory", hash_weights=False)
    found = of_facts(facts)
    assert sum(m.weights for m in found) == facts.parameters
    shapes = {m.kind: (m.rows, m.columns) for m in found}
    assert shapes["up_proj"] == shapes["gate_proj"] == shapes["down_proj"][::-1]
    assert shapes["k_proj"] == (facts.kv_heads * facts.head_dim, facts.hidden)


@pytest.mark.parametrize("kind", ["gpt2", "mixtral"])
def test_other_models_are_refused(kind: str, tiny_directory: Callable[..., Path]) -> None:
    facts = facts_of_directory(tiny_directory(kind), model_id=kind, source="directory", hash_weights=False)
    with pytest.raises(BadInput, match="do not follow"):
        of_facts(facts)


def test_parameters_that_do_not_come_out_are_refused(tiny_directory: Callable[..., Path]) -> None:
    facts: ModelFacts = facts_of_directory(
        tiny_directory("llama"), model_id="x", source="directory", hash_weights=False
    )
    with pytest.raises(BadInput, match="do not follow"):
        of_facts(replace(facts, parameters=facts.parameters + 1))


def test_a_loaded_model_is_counted_by_its_shapes() -> None:
    shapes = [(f"model.layers.{i}.self_attn.q_proj", (64, 32), "") for i in range(3)]
    found = of_shapes([*shapes, ("lm_head", (100, 32), "the head")])
    assert [(m.kind, m.count, m.dense) for m in found] == [("q_proj", 3, ""), ("lm_head", 1, "the head")]


def test_the_text_s_group_at_four_bits() -> None:
    found = absmax_example()
    assert found.scale == pytest.approx(0.171, abs=0.0005)
    assert [round(r, 2) for r in found.ratios] == [2.33, -7.0, 0.29, 5.25]
    assert found.codes == (2, -7, 0, 5)
    assert [round(w, 3) for w in found.became] == [0.343, -1.2, 0, 0.857]
    assert [round(abs(e), 3) for e in found.errors] == [0.057, 0, 0.05, 0.043]
    assert max(abs(e) for e in found.errors) < found.bound == pytest.approx(0.086, abs=0.0005)


def test_the_text_s_group_at_eight_bits() -> None:
    found = absmax_example(bits=8)
    assert found.scale == pytest.approx(0.0094, abs=0.0001)
    assert [round(w, 3) for w in found.became] == [0.397, -1.2, 0.047, 0.898]


def test_an_outlier_takes_everything_else() -> None:
    with_it, without = outlier_example()
    assert with_it.scale == pytest.approx(1.43, abs=0.005)
    assert len(with_it.weights) == 8
    assert [w for w in with_it.became if w] == [10.0]
    assert all(abs(w) < with_it.bound for w in with_it.weights if w != 10)
    assert with_it.bound == pytest.approx(0.71, abs=0.005)
    assert all(without.became)
    assert len(without.weights) == 7


def test_the_examples_use_the_real_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    from lab.quantization import affine

    assert example.encode_groups is affine.encode_groups
    monkeypatch.setattr(example, "encode_groups", lambda *a: affine.encode_groups(*a).add(1))
    assert absmax_example().codes != (2, -7, 0, 5)
