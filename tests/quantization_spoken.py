"""Events of `quantization` runs that write words, without a model. For tests of the page alone."""

from __future__ import annotations

import math
from collections.abc import Iterator

from quantization_whole import coverage, ends, setting, started, texts
from words_sim import HOSTILE, LONG, OTHER, WORDS, speaks, token_id

from lab.events import Event, Progress
from lab.events.decoding import PromptEncoded
from lab.events.quantization_words import PackedFigures, PackedToken, QuantizedCache
from lab.events.words import Variant


def words_run(*, more: bool = True, end: str = "finished") -> Iterator[Event]:
    """Dense words, those of quantized weights, and with `more` a quantized cache and activations."""
    yield started(task="words", bits=3, max_new_tokens=len(WORDS), cache_bits="4" if more else "none")
    yield texts()
    yield PromptEncoded(token_ids=(1, 2, 3), texts=("The", " largest", " planet"), chat=False)
    yield from speaks(Variant(name="dense", label="dense", truth="dense"), WORDS)
    variants = [("weights", "3-bit weights", OTHER, 0.6)]
    if more:
        variants += [
            ("cache", "4-bit key/value cache", WORDS, 0.08),
            ("activations", "8-bit activations, dynamic, per token", WORDS, 0.02),
            ("everything", "everything together", OTHER, 0.65),
        ]
    for name, label, words, size in variants:
        notes = ("Greedy.",) if name == "weights" else ()
        yield from speaks(Variant(name=name, label=label, truth="simulated", notes=notes), words, size)
        if name in ("cache", "everything"):
            yield QuantizedCache(
                variant=name,
                bits=4,
                residual=32,
                positions=64,
                code_bytes=184_320,
                scale_bytes=46_080,
                dense_bytes=1_474_560,
                plain_bytes=2_949_120,
                layer_bytes=(56_832,) * 30,
                words="Keys are quantized per channel over whole groups of 32 positions, values per token.",
            )
    used = setting(bits=3)
    yield coverage(used, [3.0] * 30)
    yield ends(end)


PACKED = (
    ("dense", "dense, fp32", 42.0),
    ("int8", "int8, head too", 21.0),
    ("int8_dense_head", "int8, dense head", 27.0),
)
INT4 = ("int4", "int4, groups of 32", 24.0)


def packed_run(*, upto: int = 99, end: str = "finished", written: bool = True) -> Iterator[Event]:
    """Packed kernels beside the dense model, token by token."""
    yield started(task="packed", max_new_tokens=len(LONG), prompt="Once upon a time")
    yield PromptEncoded(token_ids=(1, 2, 3, 4), texts=("Once", " upon", " a", " time"), chat=False)
    variants = (*PACKED, INT4)
    for name, label, _ in variants:
        yield Variant(name=name, label=label, truth="dense" if name == "dense" else "packed")
    for index, text in enumerate(LONG[:upto]):
        for name, _, ms in variants:
            matched = not (name == "int4" and index >= 9)
            shown = text if matched else HOSTILE
            yield PackedToken(
                variant=name,
                index=index,
                token_id=token_id(shown),
                text=shown,
                ms=ms * (1 + 0.1 * math.sin(index * 2.1)) * (4 if index == 0 else 1),
                matched=matched,
                is_end=False,
            )
        yield Progress(stage="generating", done=index + 1, total=len(LONG))
    if end == "finished":
        for name, label, ms in variants:
            yield packed_figures(name, label, ms, written)
        yield coverage(setting("int8", 8, "row"), [8.0] * 30)
    yield ends(end)


def packed_figures(name: str, label: str, ms: float, written: bool = True) -> PackedFigures:
    """What one variant came to."""
    del label
    dense = name == "dense"
    small = {"dense": 538_060_032, "int8": 135_200_000, "int8_dense_head": 221_000_000, "int4": 98_362_432}[name]
    return PackedFigures(
        variant=name,
        disk_bytes=0 if dense or not written else small,
        reloaded=None if dense or not written else True,
        resident_bytes=small + 2_000_000,
        decode_ms=ms,
        tokens_per_s=1000 / ms,
        prefill_ms=ms * (1.4 if dense else 2.0),
        prompt_tokens=4,
        speedup=42.0 / ms,
        prefill_speedup=42.0 * 1.4 / (ms * (1.4 if dense else 2.0)),
        steps=len(LONG) - 1,
        equal=9 if name == "int4" else len(LONG),
        of=len(LONG),
        difference="token 10: “\n” became “It”, top two 0.12 apart" if name == "int4" else "",
    )
