"""The task "words": the same prompt, continued by the dense model and by the pruned one."""

from __future__ import annotations

from lab.experiments.base import RunGenerator
from lab.experiments.compared.speak import Voice
from lab.experiments.compared.words import ComparedWords
from lab.experiments.pruning.setup import Setup
from lab.experiments.pruning.whole import covered, pruning_model


def compare_words(setup: Setup) -> RunGenerator:
    """Yield the events of the task."""
    words = ComparedWords(setup.loaded, setup.params)
    yield from words.read()
    yield from setup.begin()
    yield from words.speak_dense()
    windows: list[list[int]] = []
    if setup.scheme.calibrated:
        windows = yield from setup.texts.choose(calibration=True, held_out=False)
    whole = yield from pruning_model(setup, setup.scheme, windows, "pruning", tell=True)
    yield covered(setup, whole)
    label = setup.scheme.setting.label
    if whole.smaller is not None:
        voices = [Voice("pruned", label, "dense, smaller", whole.smaller.model)]
    else:
        voices = [Voice("pruned", label, "simulated", whole.shell)]
    yield from words.speak_others(voices)
    finding = yield from words.against_generate()
    yield from setup.proving(finding)
    return words.outcome
