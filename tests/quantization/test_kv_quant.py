"""The quantized key/value cache: codes, the window, bytes, one layer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lab.errors import BadInput, ModelError
from lab.quantization.kv_layer import QuantizedKvLayer
from lab.quantization.kv_quant import KvCodes, quantize_kv, split_kv
from lab.quantization.kv_scheme import KvBytes, KvScheme


def states(*shape: int, seed: int = 0) -> Tensor:
    """Keys as models have them: a few channels large at every position."""
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    x[..., 1] = x[..., 1] * 0.3 + 12
    return x


def error(scheme: KvScheme, along: Any, x: Tensor) -> float:
    return float((quantize_kv(x, along, scheme).dequantize() - x).norm() / x.norm())


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("along", ["channel", "token"])
def test_codes_are_within_half_a_step(bits: int, along: Any) -> None:
    scheme = KvScheme(bits=bits, scale_format="float32")
    x = states(3, 96, 64)
    made = quantize_kv(x, along, scheme)
    assert made.positions == 96
    step = made.scale.repeat_interleave(32, dim=-1 if along == "token" else -2)
    assert step.shape == x.shape
    assert ((made.dequantize() - x).abs() <= step / 2 * (1 + 1e-4) + 1e-6).all()


@pytest.mark.parametrize("along", ["channel", "token"])
def test_groups_are_what_they_say(along: Any) -> None:
    """By hand: the minimum and the scale of one group, and nothing outside it changes them."""
    x = states(2, 64, 64)
    made = quantize_kv(x, along, KvScheme(bits=4, scale_format="float32"))
    group = x[1, 32:64, 5] if along == "channel" else x[1, 40, 32:64]
    place = (1, 1, 5) if along == "channel" else (1, 40, 1)
    assert float(made.minimum[place]) == float(group.min())
    assert float(made.scale[place]) == pytest.approx(float(group.max() - group.min()) / 15)
    back = made.dequantize()[1, 32:64, 5] if along == "channel" else made.dequantize()[1, 40, 32:64]
    codes = ((group - group.min()) / ((group.max() - group.min()) / 15)).round()
    assert torch.allclose(back, codes * (group.max() - group.min()) / 15 + group.min(), atol=1e-5)


def test_more_bits_are_closer_and_keys_want_channels() -> None:
    x = states(3, 128, 64)
    for along in ("channel", "token"):
        errors = [error(KvScheme(bits=bits), along, x) for bits in (8, 4, 2)]
        assert errors[0] < errors[1] / 5 < errors[2] / 10
    # KIVI's finding, on channels that are large at every position; the other way round is the mutation
    by_channel, by_token = (error(KvScheme(bits=2), along, x[..., :32]) for along in ("channel", "token"))
    assert by_channel < 0.6 * by_token


@pytest.mark.parametrize("scale_format", ["float16", "float32"])
def test_constant_and_zero_groups_come_back(scale_format: Any) -> None:
    scheme = KvScheme(bits=2, group=8, scale_format=scale_format)
    x = torch.zeros(1, 16, 8)
    x[0, 8:] = 0.5
    for along in ("channel", "token"):
        assert torch.equal(quantize_kv(x, along, scheme).dequantize(), x)  # type: ignore[arg-type]
    assert quantize_kv(torch.full((1, 8, 8), 1e-30), "token", scheme).dequantize().isfinite().all()


@given(
    positions=st.integers(0, 70),
    bits=st.sampled_from([2, 4, 8]),
    group=st.sampled_from([8, 16, 32]),
    window=st.integers(0, 40),
)
@settings(max_examples=40, deadline=None)
def test_bytes_are_those_of_the_tensors(positions: int, bits: int, group: int, window: int) -> None:
    scheme = KvScheme(bits=bits, group=group, window=window)
    keys, values = (
        split_kv(states(3, positions, 64), "channel", scheme),
        split_kv(states(3, positions, 64), "token", scheme),
    )
    counted = keys.bytes + values.bytes
    assert counted == scheme.layer_bytes(positions, 3, 64, 4)
    held = [t for part in (keys, values) for t in (part.codes.codes, part.codes.scale, part.codes.minimum, part.dense)]
    assert sum(t.numel() * t.element_size() for t in held) == counted.total
    coded = keys.codes.positions
    assert coded % group == 0
    assert positions - coded >= min(window, positions)
    assert positions - coded < window + group
    assert torch.equal(keys.dequantize()[:, coded:], states(3, positions, 64)[:, coded:])


def test_bytes_by_hand() -> None:
    # 128 of 256 positions in codes: 3 heads x 64 channels x 128 positions x 4 bits, keys and values, 2+2 bytes a group
    assert KvScheme(bits=4, group=32, window=128).layer_bytes(256, 3, 64, 4) == KvBytes(
        codes=2 * 3 * 64 * 128 // 2,
        scales=2 * 3 * 64 * 128 // 32 * 4,
        dense=2 * 3 * 64 * 128 * 4,
        plain=2 * 3 * 64 * 256 * 4,
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bits": 3}, "3 bits"),
        ({"bits": True}, "True bits"),
        ({"group": 7}, "multiple of 8"),
        ({"group": 512}, "512"),
        ({"window": -1}, "-1"),
        ({"keys": "row"}, "'row'"),
        ({"scale_format": "int8"}, "'int8'"),
    ],
)
def test_bad_settings_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        KvScheme(**options)


def test_shapes_that_do_not_fit_are_named() -> None:
    with pytest.raises(BadInput, match="do not divide 33"):
        quantize_kv(states(1, 33, 64), "channel", KvScheme())
    with pytest.raises(BadInput, match="vectors of 80 numbers") as refused:
        quantize_kv(states(1, 32, 80), "token", KvScheme())
    assert "16" in refused.value.remedy
    with pytest.raises(BadInput, match="float16"):
        quantize_kv(torch.full((1, 8, 8), 1e6), "token", KvScheme(group=8))


# The layer


def fed(
    scheme: KvScheme, x: Tensor, y: Tensor, pieces: list[int], *, keep_widened: bool = False
) -> tuple[QuantizedKvLayer, list[Tensor]]:
    layer, read, start = QuantizedKvLayer(scheme, keep_widened=keep_widened), [], 0
    for piece in pieces:
        keys, _ = layer.update(x[:, :, start : start + piece], y[:, :, start : start + piece])
        read.append(keys)
        start += piece
    return layer, read


def test_a_layer_holds_what_the_plain_function_gives() -> None:
    scheme = KvScheme(bits=4, group=8, window=16)
    x, y = states(2, 3, 60, 16), states(2, 3, 60, 16, seed=1)
    layer, read = fed(scheme, x, y, [60])
    assert torch.equal(read[0], x)  # the prompt is read dense
    assert layer.get_seq_length() == 60
    assert layer.quantized_positions == 40
    assert layer.keys is not None
    assert layer.values is not None
    assert torch.equal(layer.keys, split_kv(x, "channel", scheme).dequantize())
    assert torch.equal(layer.values, split_kv(y, "token", scheme).dequantize())
    assert layer.stored_bytes == scheme.layer_bytes(60, 3, 16, 4, batch=2)
    assert layer.held_bytes == layer.stored_bytes.total < layer.stored_bytes.plain


def test_codes_are_made_once_however_the_text_comes() -> None:
    """Token by token gives the same codes as all at once: nothing is quantized from what codes say."""
    scheme = KvScheme(bits=2, group=8, window=4)
    x, y = states(1, 2, 50, 8), states(1, 2, 50, 8, seed=1)
    whole, _ = fed(scheme, x, y, [50])
    single, read = fed(scheme, x, y, [1] * 50)
    assert torch.equal(whole.keys, single.keys)  # type: ignore[arg-type]
    assert torch.equal(whole.values, single.values)  # type: ignore[arg-type]
    assert torch.equal(read[-1][:, :, -4:], x[:, :, -4:])  # the window is as it came
    # the mistake (transformers' own quantized layer): widen all and quantize it again at each flush
    again = x[:, :, :8]
    for stop in range(16, 49, 8):
        again = quantize_kv(torch.cat((again, x[:, :, stop - 8 : stop]), dim=2), "token", scheme).dequantize()
        shift = again * 1.0
        again = quantize_kv(shift, "channel", scheme).dequantize()
    assert (again - x[:, :, :48]).norm() > (single.keys[:, :, :48] - x[:, :, :48]).norm()  # type: ignore[index]


def test_codes_kept_widened_read_the_same_and_count_the_same() -> None:
    scheme = KvScheme(bits=2, group=8, window=4)
    x, y = states(2, 2, 50, 8), states(2, 2, 50, 8, seed=1)
    pieces = [20, *[1] * 30]
    plain, read = fed(scheme, x, y, pieces)
    kept, read_kept = fed(scheme, x, y, pieces, keep_widened=True)
    assert all(torch.equal(a, b) for a, b in zip(read, read_kept, strict=True))
    assert kept.stored_bytes == plain.stored_bytes
    assert torch.equal(kept.values, plain.values)  # type: ignore[arg-type]


@pytest.mark.parametrize("keep_widened", [False, True])
def test_rows_of_a_batch_move_with_their_codes(keep_widened: bool) -> None:
    scheme = KvScheme(bits=4, group=8, window=8)
    x, y = states(3, 2, 30, 8), states(3, 2, 30, 8, seed=1)
    layer, _ = fed(scheme, x, y, [30], keep_widened=keep_widened)
    before = layer.keys
    assert before is not None
    layer.reorder_cache(torch.tensor([2, 0, 0]))
    assert torch.equal(layer.keys, before[[2, 0, 0]])  # type: ignore[arg-type]
    layer.batch_repeat_interleave(2)
    assert torch.equal(layer.keys, before[[2, 2, 0, 0, 0, 0]])  # type: ignore[arg-type]
    # the mistake: only the dense positions move
    assert not torch.equal(before[[2, 0, 0]][:, :, :16], before[:, :, :16])


def test_taking_back_within_the_window_and_beyond() -> None:
    scheme = KvScheme(bits=4, group=8, window=8)
    x, y = states(1, 2, 30, 8), states(1, 2, 30, 8, seed=1)
    layer, _ = fed(scheme, x, y, [30])  # 16 in codes, 14 dense
    layer.crop(-5)
    assert layer.get_seq_length() == 25
    layer.crop(0)
    with pytest.raises(ModelError, match="10 positions cannot be taken back"):
        layer.crop(-10)
    with pytest.raises(ValueError, match="negative"):
        layer.crop(3)
    with pytest.raises(ModelError, match="cannot be replaced"):
        layer.keys = x
    layer.reset()
    assert layer.get_seq_length() == layer.held_bytes == 0
    assert layer.keys is None


def test_codes_keep_their_dtype() -> None:
    made = quantize_kv(states(1, 8, 8).bfloat16(), "token", KvScheme(group=8))
    assert isinstance(made, KvCodes)
    assert made.dequantize(torch.bfloat16).dtype == torch.bfloat16
    assert made.codes.dtype == torch.uint8
    assert made.scale.dtype == torch.float16
