"""Curves of caches that might be, and the known models."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.errors import BadInput
from lab.kv_cache.formula import LayerShape, bytes_per_token, cache_bytes, cache_dtype
from lab.kv_cache.presets import KNOWN_MODELS, known_model
from lab.kv_cache.what_if import MAX_CONTEXT, Curve, WhatIf, log_contexts, longest_that_fits, what_if

GIB = 2**30
BF16 = cache_dtype("bfloat16")
SMOLLM2 = (LayerShape(kind="full", kv_heads=3, head_dim=64),) * 30


def _ask(**more: object) -> WhatIf:
    arguments = {
        "name": "SmolLM2-135M",
        "layers": SMOLLM2,
        "query_heads": 9,
        "context": 8192,
        "dtype": "float32",
        "free_bytes": 2 * GIB,
        **more,
    }
    return what_if(**arguments)  # type: ignore[arg-type]


def _curve(answer: WhatIf, name: str) -> Curve:
    return next(c for c in answer.curves if c.id == name)


@pytest.mark.parametrize(
    ("model", "per_token"),
    [
        ("llama-2-7b", 2 * 32 * 32 * 128 * 2),
        ("llama-3-8b", 2 * 32 * 8 * 128 * 2),
        ("qwen3-0.6b", 2 * 28 * 8 * 128 * 2),
        ("gemma-3-4b", 2 * 34 * 4 * 256 * 2),
        ("deepseek-v3", 61 * (512 + 64) * 2),
    ],
)
def test_known_models_by_formula(model: str, per_token: int) -> None:
    known = known_model(model)
    assert known is not None
    assert bytes_per_token(known.layers, BF16) == per_token
    assert known.source


def test_qwen3_has_a_head_dim_of_its_own() -> None:
    known = known_model("qwen3-0.6b")
    assert known is not None
    assert {layer.head_dim for layer in known.layers} == {128}
    assert known.query_heads * 128 != 1024, "hidden / heads would be 64"


def test_gemma_windows_five_to_one() -> None:
    known = known_model("gemma-3-4b")
    assert known is not None
    kinds = [layer.kind for layer in known.layers]
    assert [i for i, kind in enumerate(kinds) if kind == "full"] == [5, 11, 17, 23, 29]
    assert kinds.count("sliding") == 29
    per_layer = 2 * 4 * 256 * 2
    assert cache_bytes(known.layers, 131_072, BF16) == per_layer * (5 * 131_072 + 29 * 1024)
    everything = cache_bytes(known.layers, 131_072, BF16, keeping="everything")
    assert everything > 6 * cache_bytes(known.layers, 131_072, BF16)


def test_no_model_is_known_by_a_made_up_name() -> None:
    assert known_model("gpt-9") is None


def test_curves_of_the_default_model() -> None:
    answer = _ask()
    assert answer.contexts[0] == 1
    assert answer.contexts[-1] == MAX_CONTEXT == 131_072
    assert 8192 in answer.contexts
    at = answer.contexts.index(8192)
    base = _curve(answer, "model")
    assert base.bytes[at] == 8192 * 46_080
    assert _curve(answer, "all_heads").bytes[at] == 3 * base.bytes[at]
    assert 3 * _curve(answer, "one_head").bytes[at] == base.bytes[at]
    assert _curve(answer, "window").bytes[at] == 1024 * 46_080
    assert _curve(answer, "bfloat16").bytes[at] * 2 == base.bytes[at]
    assert _curve(answer, "int8").bytes[at] == 8192 * 30 * 2 * 3 * 66
    assert _curve(answer, "int4").bytes[at] == 8192 * 30 * 2 * 3 * 36
    assert {k.id for k in KNOWN_MODELS} < {c.id for c in answer.curves}
    assert len({c.id for c in answer.curves}) == len(answer.curves)
    assert base.beyond_context == 8192
    assert base.fits == 2 * GIB // 46_080


def test_the_batch_multiplies_and_the_free_memory_divides() -> None:
    one, four = _ask(), _ask(batch=4)
    for a, b in zip(one.curves, four.curves, strict=True):
        assert [4 * n for n in a.bytes] == list(b.bytes)
    assert _curve(four, "model").fits == 2 * GIB // (4 * 46_080)


def test_a_cache_of_windows_alone_fits_any_context() -> None:
    curve = _curve(_ask(), "window")
    assert curve.fits is None
    assert _curve(_ask(free_bytes=1000), "window").fits == 0


@pytest.mark.parametrize("bad", [{"batch": 0}, {"window": 0}, {"longest": 200_000}, {"longest": 0}, {"dtype": "int3"}])
def test_bad_questions_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        _ask(**bad)


@given(longest=st.integers(1, MAX_CONTEXT), points=st.integers(1, 80))
def test_contexts_rise_from_one_to_the_longest(longest: int, points: int) -> None:
    contexts = log_contexts(longest, points)
    assert contexts[0] == 1
    assert contexts[-1] == longest
    assert list(contexts) == sorted(set(contexts))


@given(free=st.integers(0, 10**12), batch=st.integers(1, 16), window=st.integers(1, 4096))
def test_the_longest_context_fits_and_the_next_does_not(free: int, batch: int, window: int) -> None:
    layers = (*SMOLLM2[:3], LayerShape(kind="sliding", kv_heads=2, head_dim=32, window=window))
    fits = longest_that_fits(layers, BF16, batch, free)
    assert fits is not None
    assert cache_bytes(layers, fits, BF16, batch=batch) <= free
    assert cache_bytes(layers, fits + 1, BF16, batch=batch) > free


def test_the_arithmetic_needs_no_torch() -> None:
    code = "import sys, lab.kv_cache.what_if; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
