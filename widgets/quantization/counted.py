"""Error histograms from events and from answers, ready to be drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lab.events import ArrayData
from lab.events.quantization import ErrorHistogram, Setting, WorstWeight
from widgets.histogram_rows import Dot, HistogramRow
from widgets.quantization.sentences import bits, decibels, number, percent, setting_words, signed

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


def rows_of(shown: Sequence[Shown]) -> tuple[list[HistogramRow], float]:
    """Rows for the picture, and how far its axis reaches to both sides: as far as the largest error."""
    if not shown:
        return [], 1.0
    first = shown[0][0]
    bins = first.counts.shape[0]
    width = (first.high - first.low) / bins
    largest = max(max(h.max_error for h, _ in shown), *(h.half_step for h, _ in shown if h.half_step == h.half_step), 0)
    half = bins // 2
    # Whole bins on both sides, a little more than the largest error takes.
    kept = min(half, max(4, int(largest * 1.04 / width) + 2)) if width > 0 else half
    return [_row(h, worst, kept) for h, worst in shown], (kept + bins % 2 / 2) * width


def _row(histogram: ErrorHistogram, worst: Sequence[WorstWeight], kept: int) -> HistogramRow:
    counts = [int(c) for c in histogram.counts.numpy()]
    half, odd = len(counts) // 2, len(counts) % 2
    bound = histogram.half_step if histogram.half_step == histogram.half_step else None
    return HistogramRow(
        id=histogram.setting.label,
        label=setting_words(histogram.setting),
        note=_note(histogram),
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


def _note(histogram: ErrorHistogram) -> str:
    parts = []
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
