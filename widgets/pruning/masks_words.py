"""Words, numbers and tables of the masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.events.pruning import MaskMade
from widgets.bar_table import Bar, BarRow
from widgets.experiment import Table
from widgets.format import NOTHING
from widgets.numbers import number, percent
from widgets.pruning.mask_bits import MaskBits, NmFound, overlap
from widgets.pruning.method_marks import mark_of, tight, title_of
from widgets.pruning.state import Matrix

ABOVE, BELOW, BOTH, GONE = "--lab-series-1", "--lab-series-2", "--lab-both", "--lab-line"


def legend(first: MaskBits | None, second: MaskBits | None, colour: str) -> list[tuple[str, str, bool]]:
    """What colours mean: a method has the same one here as in every other picture."""
    if first is None:
        return []
    if second is None:
        if colour == "value":
            return [("kept, above 0", ABOVE, False), ("kept, below 0", BELOW, False), ("pruned (×)", GONE, False)]
        return [("kept", colour_of(first), False), ("pruned (×)", GONE, False)]
    return [
        ("kept by both", BOTH, False),
        (f"only {title_of(first.method)} (╱)", colour_of(first), False),
        (f"only {title_of(second.method)} (╲)", colour_of(second), False),
        ("pruned by both (×)", GONE, False),
    ]


def colour_of(mask: MaskBits) -> str:
    """The variable of its method's colour."""
    return mark_of(mask.method).colour


def caption(first: MaskBits | None, made: MaskMade | None, refused: str, no_values: str) -> list[str]:
    """Where the mask comes from, and what is not there."""
    if first is None or made is None:
        return []
    source = "MEASURED. The mask follows the slider" if first.live else f"MEASURED. {made.module}"
    said = [f"{source}: {first.rows:,} × {first.columns:,} weights. Signs show in large cells."]
    said += list(made.notes)
    return [words for words in (*said, refused, no_values) if words]


def mask_figures(first: MaskBits | None, second: MaskBits | None) -> list[dict[str, Any]]:
    """How many go, how rows differ, how far two masks are apart."""
    rows = [1 - kept / first.columns for kept in first.row_kept] if first else []
    both = overlap(first, second) if first and second else None
    apart = both.differ if both else None
    by_chance = _by_chance(first, second) if first and second else None
    return [
        {
            "id": "sparsity",
            "value": percent(first.sparsity) if first else "",
            "unit": "pruned",
            "badge": "MEASURED",
            "note": f"{first.kept:,} of {first.rows * first.columns:,} kept" if first else "",
            "title": "Zeros of the mask, counted.",
        },
        {
            "id": "rows",
            "value": _range(rows),
            "unit": "of a row pruned",
            "badge": "MEASURED",
            "note": _rows_note(rows),
            "title": "The strip beside the matrix shows every row.",
        },
        {
            "id": "apart",
            "value": percent(apart) if apart is not None else "",
            "unit": "chosen differently",
            "badge": "MEASURED",
            "note": f"{percent(by_chance)} if the two were independent"
            if by_chance is not None
            else "choose a second mask",
            "title": "Weights that one of the two masks keeps and the other does not.",
        },
    ]


def _by_chance(first: MaskBits, second: MaskBits) -> float:
    a, b = first.sparsity, second.sparsity
    return a * (1 - b) + b * (1 - a)


def _rows_note(rows: Sequence[float]) -> str:
    if not rows:
        return ""
    return "of every row alike" if min(rows) == max(rows) else "least and most of all rows"


def _range(shares: Sequence[float]) -> str:
    if not shares:
        return ""
    low, high = number(min(shares) * 100), number(max(shares) * 100)
    return f"{low if low == high else f'{low} – {high}'} %"


def nm_verdict(found: NmFound | None) -> tuple[str, str, str, str]:
    """Tone, heading and notes of a check of N:M."""
    if found is None:
        return "none", "", "", ""
    axis = "inputs" if found.along == "in" else "outputs"
    if found.refused:
        return "none", f"No {found.name} along the {axis}: {found.refused}", "", ""
    wrong = "" if found.along == "in" else "Hardware reads groups along the inputs: this is the wrong axis to check."
    if not found.broken:
        all_of = f"Every group along the {axis} is {found.name}"
        text = f"{all_of}: {found.groups:,} groups keep at most {found.n} of {found.m}"
        return "good" if found.along == "in" else "even", text, wrong, ""
    line, start, _, _, kept = found.marked[0]
    text = f"{found.broken:,} of {found.groups:,} groups along the {axis} break {found.name}"
    place = (
        f"The first: row {line}, columns {start} to {start + found.m - 1}, {kept} kept."
        if found.along == "in"
        else f"The first: column {start}, rows {line} to {line + found.m - 1}, {kept} kept."
    )
    marked = f"{place} {'All' if found.broken == len(found.marked) else f'The first {len(found.marked)}'} are framed."
    turned = found.other_way == 0 and found.along == "in"
    axis_note = f"Along the outputs {found.name} holds: it was made along the wrong axis." if turned else wrong
    return "bad", text, marked, axis_note


def difference_rows(first: MaskBits | None, others: Sequence[MaskBits]) -> list[BarRow]:
    """Every other method's mask beside the first, the nearest first."""
    rows = []
    for mask in others:
        found = overlap(first, mask) if first else None
        if found is None:
            continue
        shares = (found.differ, found.only_second / found.weights, found.only_first / found.weights)
        cells = [percent(share) if found.weights else NOTHING for share in shares]
        bars = [Bar(found.differ, mark_of(mask.method).series)]
        rows.append((found.differ, BarRow(label=tight(mask.label), bars=bars, cells=cells, title=mask.label)))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


def row_table(matrix: Matrix | None, masks: Sequence[MaskBits | None]) -> Table:
    """Kept weights of each row by every method of the run."""
    fitting = [mask for mask in masks if mask is not None]
    counts = [mask.row_kept for mask in fitting]
    rows = [
        [row, *(kept[row] for kept in counts if row < len(kept))] for row in range(max(map(len, counts), default=0))
    ]
    name = f"mask_rows_{matrix.layer}_{matrix.projection}" if matrix else "mask_rows"
    return Table(name, ["row", *(f"kept: {mask.label}" for mask in fitting)], rows)
