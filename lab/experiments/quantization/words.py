"""The task "words": the same prompt, continued by the dense model and by quantized ones, and what each token cost."""

from __future__ import annotations

from collections.abc import Iterator

from lab.events.quantization_words import QuantizedCache
from lab.experiments.base import RunGenerator
from lab.experiments.compared.speak import Reading, Voice
from lab.experiments.compared.words import ComparedWords
from lab.experiments.quantization.coverage import covered
from lab.experiments.quantization.proof import proving
from lab.experiments.quantization.setup import Setup
from lab.experiments.quantization.voices import voices
from lab.experiments.quantization.whole import quantizing_model
from lab.quantization.kv_layer import cache_bytes, quantized_layers


def compare_words(setup: Setup) -> RunGenerator:
    """Yield the events of the task."""
    words = ComparedWords(setup.loaded, setup.params)
    yield from words.read()
    yield from setup.begin()
    yield from words.speak_dense()
    windows: list[list[int]] = []
    if setup.params.needs_calibration:
        windows = yield from setup.texts.choose(calibration=True, held_out=False)
    whole = yield from quantizing_model(setup, setup.scheme, windows, "quantizing")
    yield covered(setup, setup.scheme.setting, whole.storage, reasons=whole.reasons)
    others = yield from voices(setup, whole, windows)
    yield from words.speak_others(others, quantized_cache)
    finding = yield from words.against_generate()
    yield from proving(setup, (finding,))
    return words.outcome


def quantized_cache(voice: Voice, reading: Reading) -> Iterator[QuantizedCache]:
    """What the cache of a voice holds, where it is quantized."""
    scheme = voice.cache
    if scheme is None:
        return
    held = cache_bytes(reading.runner.cache)
    coded = scheme.quantized_positions(reading.length)
    words = (
        f"{coded} of {reading.length} positions are codes."
        if coded
        else (
            f"No position became a code: {reading.length} positions do not fill a group of {scheme.group} "
            f"beside the {scheme.window} newest, which stay dense."
        )
    )
    layers = tuple(layer.stored_bytes.total for layer in quantized_layers(reading.runner.cache))
    yield QuantizedCache(
        variant=voice.name,
        bits=scheme.bits,
        residual=scheme.window,
        positions=reading.length,
        code_bytes=held.codes,
        scale_bytes=held.scales,
        dense_bytes=held.dense,
        plain_bytes=held.plain,
        layer_bytes=layers,
        words=f"{words} Keys share a scale per channel over {scheme.group} positions, values per token over "
        f"{scheme.group} channels; positions leave the dense window in groups of {scheme.group}.",
    )
