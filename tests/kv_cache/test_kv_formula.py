"""The formula against known figures and its own laws."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.errors import BadInput
from lab.events import LayerFacts
from lab.kv_cache.formula import (
    CACHE_DTYPES,
    LayerShape,
    bytes_per_token,
    cache_bytes,
    cache_dtype,
    computations,
    layer_shape,
    with_kv_heads,
    with_window,
)

GIB = 2**30
BF16 = cache_dtype("bfloat16")
FP32 = cache_dtype("float32")
LESSON = (LayerShape(kind="full", kv_heads=32, head_dim=128),) * 32
SMOLLM2 = (LayerShape(kind="full", kv_heads=3, head_dim=64),) * 30


def test_the_lessons_figures() -> None:
    assert bytes_per_token(LESSON, BF16) == 524_288 == 512 * 1024
    assert cache_bytes(LESSON, 8192, BF16) == 4 * GIB
    assert cache_bytes(with_kv_heads(LESSON, 8), 8192, BF16) == 1 * GIB


def test_the_default_models_figures() -> None:
    assert bytes_per_token(SMOLLM2, FP32) == 46_080
    assert bytes_per_token(SMOLLM2, BF16) == 23_040
    # Case K1: the formula with query heads is three times too large.
    assert bytes_per_token(with_kv_heads(SMOLLM2, 9), FP32) == 3 * 46_080


def test_a_thousand_tokens_take_500500_computations_without_and_1000_with() -> None:
    assert computations(1, 1000, cached=False) == 500_500
    assert computations(1, 1000, cached=True) == 1_000
    assert computations(5, 3, cached=False) == 5 + 6 + 7
    assert computations(5, 3, cached=True) == 5 + 1 + 1
    assert computations(5, 0, cached=False) == computations(5, 0, cached=True) == 0


@given(prompt=st.integers(1, 300), new=st.integers(0, 300))
def test_computations_are_the_sum_over_the_steps(prompt: int, new: int) -> None:
    assert computations(prompt, new, cached=False) == sum(prompt + i for i in range(new))
    assert computations(prompt, new, cached=True) == sum(prompt if i == 0 else 1 for i in range(new))


@pytest.mark.parametrize(
    ("keeping", "expected"),
    [
        ("visible", [1, 7, 8, 8, 8]),
        ("static", [1, 7, 8, 8, 8]),
        ("dynamic", [1, 7, 7, 7, 7]),
        ("everything", [1, 7, 8, 9, 16]),
    ],
)
def test_a_window_of_8_at_its_borders(keeping: str, expected: list[int]) -> None:
    layer = LayerShape(kind="sliding", kv_heads=2, head_dim=4, window=8)
    assert [layer.positions(t, keeping) for t in (1, 7, 8, 9, 16)] == expected  # type: ignore[arg-type]


def test_a_latent_layer_keeps_one_vector_for_all_heads() -> None:
    layer = LayerShape(kind="latent", kv_lora_rank=512, rope_dim=64)
    assert layer.bytes(1, BF16) == (512 + 64) * 2
    assert layer.bytes(1000, BF16, batch=3) == 1000 * 3 * 576 * 2
    assert with_kv_heads([layer], 128) == (layer,)
    assert with_window([layer], 4) == (layer,)


def test_quantized_caches_count_their_scales() -> None:
    layer = LayerShape(kind="full", kv_heads=1, head_dim=64)
    assert layer.position_bytes(cache_dtype("int8")) == 2 * (64 + 2)
    assert layer.position_bytes(cache_dtype("int4")) == 2 * (32 + 4)
    odd = replace(layer, head_dim=65)  # a second group of one element has a scale too; half a byte takes one
    assert odd.position_bytes(cache_dtype("int8")) == 2 * (65 + 2 * 2)
    assert odd.position_bytes(cache_dtype("int4")) == 2 * (33 + 2 * 4)


def test_facts_become_shapes() -> None:
    assert layer_shape(LayerFacts(kind="full", window=None, kv_heads=3, head_dim=64)) == SMOLLM2[0]
    sliding = layer_shape(LayerFacts(kind="sliding", window=512, kv_heads=1, head_dim=256))
    assert (sliding.kind, sliding.window, sliding.kv_heads, sliding.head_dim) == ("sliding", 512, 1, 256)
    other = layer_shape(LayerFacts(kind="other", window=None, kv_heads=0, head_dim=0))
    assert other.bytes(10_000, BF16) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: LayerShape(kind="full", kv_heads=0, head_dim=64),
        lambda: LayerShape(kind="sliding", kv_heads=1, head_dim=64, window=0),
        lambda: LayerShape(kind="latent", rope_dim=64),
        lambda: SMOLLM2[0].positions(-1),
        lambda: SMOLLM2[0].bytes(1, BF16, batch=0),
        lambda: cache_dtype("int3"),
        lambda: computations(0, 1, cached=True),
    ],
)
def test_bad_values_are_refused_by_name(make: object) -> None:
    with pytest.raises(BadInput, match=r"\w"):
        make()  # type: ignore[operator]


_layers = st.lists(
    st.one_of(
        st.builds(LayerShape, kind=st.just("full"), kv_heads=st.integers(1, 16), head_dim=st.integers(1, 256)),
        st.builds(
            LayerShape,
            kind=st.just("sliding"),
            kv_heads=st.integers(1, 16),
            head_dim=st.integers(1, 256),
            window=st.integers(1, 64),
        ),
        st.builds(LayerShape, kind=st.just("latent"), kv_lora_rank=st.integers(1, 512), rope_dim=st.integers(0, 64)),
        st.just(LayerShape(kind="none")),
    ),
    max_size=6,
)
_dtypes = st.sampled_from(list(CACHE_DTYPES.values()))
_keepings = st.sampled_from(["visible", "dynamic", "static", "everything"])


@given(layers=_layers, length=st.integers(0, 500), dtype=_dtypes, batch=st.integers(1, 8), keeping=_keepings)
def test_laws(layers: list[LayerShape], length: int, dtype, batch: int, keeping) -> None:  # type: ignore[no-untyped-def]
    def size(n: int = length, b: int = batch, k: str = keeping) -> int:
        return cache_bytes(layers, n, dtype, batch=b, keeping=k)  # type: ignore[arg-type]

    assert size(b=batch) == batch * size(b=1), "linear in the batch"
    assert size(length + 1) >= size(length), "never shrinks"
    assert size(length + 1) - size(length) <= batch * bytes_per_token(layers, dtype), "one token adds at most its own"
    assert size(k="dynamic") <= size(k="visible") == size(k="static") <= size(k="everything")
    assert cache_bytes(layers, length, BF16, batch=batch) * 2 == cache_bytes(layers, length, FP32, batch=batch)
    assert cache_bytes(with_window(layers, 16), length, dtype) <= cache_bytes(layers, length, dtype)


@given(heads=st.integers(1, 64), head_dim=st.integers(1, 256), length=st.integers(0, 5000))
def test_the_formula_is_the_product(heads: int, head_dim: int, length: int) -> None:
    layers = (LayerShape(kind="full", kv_heads=heads, head_dim=head_dim),) * 3
    assert cache_bytes(layers, length, FP32, batch=2) == 2 * 3 * heads * head_dim * length * 2 * 4
