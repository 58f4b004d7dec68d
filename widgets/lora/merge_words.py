"""Words, figures and rows of merging."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lab.events.lora import MergeFigures
from widgets.bar_table import Bar, BarRow
from widgets.experiment import Table
from widgets.format import NOTHING, format_ms, format_number, format_ratio
from widgets.lora.state import ADAPTER, BASE, MERGED, SERIES, LoraState
from widgets.numbers import number, percent
from widgets.token_text import plain_text

NAMES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
WORST = 0.5
"""From this share on a merge has lost what it was for."""


def name_of(kind: str) -> str:
    """A kind of base as the page writes it: "int4, re-quantized"."""
    first, _, rest = plain_text(kind).replace("-", "\u2011").partition(" ")
    return f"{NAMES.get(first, first)}{', ' if rest else ''}{rest}"


def _finite(found: Sequence[MergeFigures]) -> list[MergeFigures]:
    return [f for f in found if math.isfinite(f.lost)]


def merge_verdict(state: LoraState, found: Sequence[MergeFigures], *, live: bool) -> tuple[str, ...]:
    """Tone, heading and notes: the kind that loses most, and the first that loses nothing."""
    finite = _finite(found)
    if not finite:
        waiting = live and state.end is None
        return ("pending", "Merging, and measuring what is left") if waiting else ("none", "Nothing was measured")
    worst, least = max(finite, key=lambda f: f.lost), min(finite, key=lambda f: f.lost)
    bad = [name_of(f.kind) for f in found if not f.same_form]
    if bad:
        return "bad", "A merged model has another form than the base", f"In {', '.join(bad)}."
    best = f"{name_of(least.kind)}: {percent(least.lost, 1)} of the update lost."
    if worst.lost >= 1:
        return "bad", f"{name_of(worst.kind)}: worse than merging nothing", best, _rounding(worst)
    if worst.lost >= WORST:
        return "bad", f"{name_of(worst.kind)}: {percent(worst.lost)} of the update is lost", best
    tone = "pending" if live and state.end is None else "good"
    return tone, f"At most {percent(worst.lost)} of the update is lost, in {name_of(worst.kind)}", best


def _rounding(worst: MergeFigures) -> str:
    return (
        f"There rounding adds an error of {format_ratio(math.sqrt(worst.lost))} the size of the update itself: one "
        "step of the codes is larger than what was learnt."
    )


def merge_figures(found: Sequence[MergeFigures]) -> list[dict[str, Any]]:
    """The exact merge's logits, the worst loss, the worst divergence."""
    first = found[0] if found else None
    finite = _finite(found)
    worst = max(finite, key=lambda f: f.lost, default=None)
    most = max((f for f in found if f.divergence), key=lambda f: f.divergence.kl if f.divergence else 0.0, default=None)
    return [
        {
            "id": "merge_difference",
            "value": number(first.max_logit_difference, 2) if first else "",
            "unit": "",
            "badge": "MEASURED",
            "note": f"max |logit difference|, merged against unmerged, {name_of(first.kind)}" if first else "",
            "title": "Over the prompt and the base's words, the whole vocabulary: the proof that merging is exact.",
        },
        {
            "id": "merge_lost",
            "value": percent(worst.lost) if worst else "",
            "unit": "of the update lost",
            "badge": "MEASURED",
            "note": f"at worst, {name_of(worst.kind)}" if worst else "",
            "title": "|applied − ΔW|² / |ΔW|²: 0 is exact, 100 % as bad as merging nothing.",
        },
        {
            "id": "merge_kl",
            "value": number(most.divergence.kl) if most and most.divergence else "",
            "unit": "nats, KL",
            "badge": "MEASURED",
            "note": f"at worst, {name_of(most.kind)}" if most else "",
            "title": "KL(unmerged ‖ merged), mean over the positions of held-out text.",
        },
    ]


def lost_rows(found: Sequence[MergeFigures]) -> list[BarRow]:
    """What rounding took from the update, one row a kind of base."""
    rows = []
    for f in found:
        bars = [Bar(f.lost, SERIES[MERGED])] if math.isfinite(f.lost) else []
        cells = [percent(f.lost, 1), percent(f.vanished, 1)]
        rows.append(BarRow(name_of(f.kind), bars, cells, note="" if bars else "not measured", title=f.base))
    return rows


def apart_rows(found: Sequence[MergeFigures]) -> list[BarRow]:
    """How far merged and unmerged model are apart."""
    rows = []
    for f in found:
        d = f.divergence
        there = d is not None and math.isfinite(d.kl)
        cells = [
            number(f.max_logit_difference, 2),
            number(d.kl, 2) if d else NOTHING,
            f"{d.flips:,} of {d.positions:,}" if d else NOTHING,
        ]
        bars = [Bar(d.kl, SERIES[MERGED])] if d and there else []
        rows.append(BarRow(name_of(f.kind), bars, cells, note="" if bars else "not measured", title=f.base))
    return rows


def apart_words(found: Sequence[MergeFigures]) -> str:
    """What was compared."""
    d = next((f.divergence for f in found if f.divergence), None)
    text = f" KL(unmerged ‖ merged) and flips: {d.positions:,} positions of held-out text ({d.text_hash})." if d else ""
    return f"MEASURED. Max |Δ logit|: over the prompt and the base's words, the whole vocabulary.{text}"


def base_lines(found: Sequence[MergeFigures]) -> list[str]:
    """Which base was merged into, one line each; what the figures mean."""
    lines = [f"{name_of(f.kind)}: merged into {plain_text(f.base)}." for f in found]
    if found:
        lines.append(
            "MEASURED, each beside the same base with the adapter on. Lost: |applied − ΔW|² / |ΔW|². Vanished: "
            "entries of the update too small to change their weight."
        )
    return lines


def shape_rows(found: Sequence[MergeFigures]) -> list[BarRow]:
    """The way back, and the form."""
    return [
        BarRow(
            name_of(f.kind),
            note="from a backup" if f.restored else "subtracted, rounded again",
            cells=["yes" if f.restored else "no", "yes" if f.same_form else "no"],
        )
        for f in found
    ]


def time_rows(found: Sequence[MergeFigures]) -> list[BarRow]:
    """Base, unmerged and merged of the kind that was timed."""
    timed = next((f for f in found if math.isfinite(f.decode_ms)), None)
    if timed is None:
        return []
    rows = (
        ("base", timed.base_decode_ms, SERIES[BASE]),
        ("adapter on", timed.unmerged_decode_ms, SERIES[ADAPTER]),
        ("merged", timed.decode_ms, SERIES[MERGED]),
    )
    return [
        BarRow(name, [Bar(ms, series)], [format_ms(ms), _beside(ms, timed.base_decode_ms)])
        for name, ms, series in rows
        if math.isfinite(ms)
    ]


def _beside(ms: float, base: float) -> str:
    return f"{format_number(ms / base)} ×" if math.isfinite(base) and base > 0 else NOTHING


def time_words(found: Sequence[MergeFigures]) -> str:
    """What was timed."""
    timed = next((f for f in found if math.isfinite(f.decode_ms)), None)
    if timed is None:
        return ""
    return (
        f"MEASURED: medians, {name_of(timed.kind)}. Unmerged, each adapted matrix costs two thin products more; "
        "merged, nothing is left to add. The other bases hold rounded values in the run's own dtype: as fast as it."
    )


def merge_table(state: LoraState) -> Table:
    """Every kind of base."""
    head = ["kind", "base", "max |logit difference|", "KL, nats", "flips", "positions", "lost", "vanished", "restored"]
    head += ["same form", "merged ms", "unmerged ms", "base ms"]
    rows = []
    for f in state.merges:
        d = f.divergence
        measured = [_number(d.kl), d.flips, d.positions] if d else [None, None, None]
        times = [_number(ms) for ms in (f.decode_ms, f.unmerged_decode_ms, f.base_decode_ms)]
        flags = ["yes" if flag else "no" for flag in (f.restored, f.same_form)]
        difference = _number(f.max_logit_difference)
        rows.append([f.kind, f.base, difference, *measured, _number(f.lost), _number(f.vanished), *flags, *times])
    return Table("merge", head, rows)


def _number(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None
