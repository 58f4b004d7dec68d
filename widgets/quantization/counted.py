"""Error histograms from events and from answers, ready to be drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lab.events import ArrayData
from lab.events.quantization import ErrorHistogram, Setting, WorstWeight
from widgets.histogram_rows import Dot, HistogramRow
from widgets.numbers import decibels, number, percent, signed
from widgets.quantization.sentences import bits, method_words, setting_words
from widgets.quantization.state import Matrix, QuantizationState

HEADS = (
    ("largest error", "The largest |W′ − W| of all weights: the red ticks."),
    ("s / 2", "Half the largest step of all groups: where nothing is clipped, no error is larger. The dashed lines."),
    ("mean square", "The mean of (W′ − W)²."),
    ("SNR", "Signal to noise: 10 log₁₀(Σ W² / Σ (W′ − W)²)."),
    ("bits a weight", "With scales, zero points and all else counted."),
)
Answer = Mapping[str, Any]
Shown = tuple[ErrorHistogram, tuple[WorstWeight, ...]]
"""A histogram, and the weights with its largest errors as far as they are known."""


def from_answer(answer: Answer) -> list[Shown]:
    """The histograms of an answer to the question "histogram".

    Raises:
        KeyError, TypeError, ValueError: it is no such answer.
    """
    shown: list[Shown] = []
    for item in answer["histograms"]:
        rest = {k: v for k, v in item.items() if k not in ("worst", "setting", "counts", "notes", "event")}
        histogram = ErrorHistogram(
            **rest,
            setting=Setting(**item["setting"]),
            counts=ArrayData.from_json(item["counts"]),
            notes=tuple(item.get("notes", ())),
        )
        shown.append((histogram, tuple(WorstWeight(**weight) for weight in item.get("worst", ()))))
    return shown


def own_of(state: QuantizationState, matrix: Matrix, method: str, upto: int) -> list[Shown]:
    """The run's own histogram of a method that cannot follow the sliders: it stays beside those that do."""
    told = state.worst.get(matrix)
    return [
        (h, told.weights if told and told.setting == h.setting else ())
        for h in state.histograms_of(matrix, upto)
        if h.chosen and h.setting.method == method
    ]


def on_one_axis(shown: Sequence[Shown]) -> list[Shown]:
    """The same with bins as wide as the widest: of runs and of answers that have axes of their own."""
    widest = max((h for h, _ in shown), key=lambda h: h.high - h.low, default=None)
    return [] if widest is None else [(_rebinned(h, widest), worst) for h, worst in shown]


def _rebinned(histogram: ErrorHistogram, like: ErrorHistogram) -> ErrorHistogram:
    """Each bin goes whole where its middle falls; ends are powers of two, so bins of an even number go in pairs."""
    if (histogram.low, histogram.high) == (like.low, like.high):
        return histogram
    counts = histogram.counts.numpy()
    bins, width = len(counts), (histogram.high - histogram.low) / len(counts)
    made, step = np.zeros(like.counts.shape[0], dtype=np.int64), (like.high - like.low) / like.counts.shape[0]
    middles = histogram.low + (np.arange(bins) + 0.5) * width
    np.add.at(made, np.clip(((middles - like.low) / step).astype(int), 0, len(made) - 1), counts)
    return replace(histogram, low=like.low, high=like.high, counts=ArrayData.of(made, "int64"))


def rows_of(shown: Sequence[Shown], *, named: bool = False) -> tuple[list[HistogramRow], float]:
    """Rows for the picture, and how far its axis reaches to both sides: as far as the largest error.

    Args:
        named: each row says its method, where there are several.
    """
    if not shown:
        return [], 1.0
    first = shown[0][0]
    bins = first.counts.shape[0]
    width = (first.high - first.low) / bins
    largest = max(max(h.max_error for h, _ in shown), *(h.half_step for h, _ in shown if h.half_step == h.half_step), 0)
    half = bins // 2
    # Whole bins on both sides, a little more than the largest error takes.
    kept = min(half, max(4, int(largest * 1.04 / width) + 2)) if width > 0 else half
    return [_row(h, worst, kept, named) for h, worst in shown], (kept + bins % 2 / 2) * width


def _row(histogram: ErrorHistogram, worst: Sequence[WorstWeight], kept: int, named: bool) -> HistogramRow:
    counts = [int(c) for c in histogram.counts.numpy()]
    half, odd = len(counts) // 2, len(counts) % 2
    bound = histogram.half_step if histogram.half_step == histogram.half_step else None
    return HistogramRow(
        id=histogram.setting.label,
        label=setting_words(histogram.setting),
        note=_note(histogram, named),
        counts=counts[half - kept : half + odd + kept],
        below=histogram.below,
        above=histogram.above,
        bound=bound,
        most=histogram.max_error,
        cells=[
            number(histogram.max_error),
            number(histogram.half_step),
            number(histogram.mean_square),
            decibels(histogram.snr_db),
            bits(histogram.bits_per_weight),
        ],
        dots=[Dot(w.after - w.before, worst_words(w)) for w in worst if w.after != w.before],
    )


def _note(histogram: ErrorHistogram, named: bool) -> str:
    setting, parts = histogram.setting, []
    if named:
        parts.append(f"{method_words(setting.method)}, {setting.bits} bits{', in the run' if histogram.chosen else ''}")
    if histogram.exact >= 0.005:
        parts.append(f"{percent(histogram.exact, 1)} exact")
    if histogram.clipped:
        parts.append(f"{histogram.clipped:,} clipped")
    return ", ".join(parts)


def worst_words(weight: WorstWeight) -> str:
    """Where a weight stands, what it was and what it became."""
    return (
        f"row {weight.row}, column {weight.column}: {number(weight.before)} became {number(weight.after)}, "
        f"error {signed(weight.after - weight.before)}"
    )
