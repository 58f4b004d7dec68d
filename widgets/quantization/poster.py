"""The still of a recorded `quantization` run: figures and the histograms, as escaped HTML and SVG."""

from __future__ import annotations

from html import escape

from lab.events import Recording
from lab.events.quantization import ErrorHistogram
from widgets.histogram_rows import HistogramRow
from widgets.numbers import decibels, number
from widgets.poster import THUMBNAIL
from widgets.quantization.counted import rows_of
from widgets.quantization.figures import error_figures
from widgets.quantization.grid_note import demonstration
from widgets.quantization.sentences import bits
from widgets.quantization.state import QuantizationState

WIDTH, ROW, TALL = 640, 64, 40


def body(recording: Recording) -> str:
    """What stands inside the picture of the poster: escaped HTML."""
    state = QuantizationState()
    for event in recording.events:
        state.fold(event)
    figures = "".join(
        f"<div><b>{escape(f['value'] or '–')}</b><small>{escape(f['unit'])}</small></div>"
        for f in error_figures(state)[:3]
    )
    matrix = state.matrices[0] if state.matrices else None
    shown = state.histograms_of(matrix) if matrix else []
    note = demonstration(state) if state.grid and state.grid.words else ""
    words = f"<p>{escape(note)}</p>" if note else ""
    return f'<figure>{_svg(shown)}</figure>\n<div class="lab-poster-figs">{figures}</div>\n{words}'


def thumbnail(recording: Recording) -> str:
    """The histograms of the largest, the chosen and the smallest group, for a card."""
    state = QuantizationState()
    for event in recording.events:
        state.fold(event)
    matrix = state.matrices[0] if state.matrices else None
    shown = state.histograms_of(matrix) if matrix else []
    few = [h for i, h in enumerate(shown) if i in (0, len(shown) - 1) or h.chosen]
    return _svg(few[: THUMBNAIL[1] // ROW], THUMBNAIL[0])


def _svg(histograms: list[ErrorHistogram], wide: int = WIDTH) -> str:
    if not histograms:
        return ""
    rows, reach = rows_of([(h, ()) for h in histograms])
    rest = [c for row in rows for i, c in enumerate(row.counts) if i != len(row.counts) // 2]
    cap = 1.12 * max(rest, default=0) or 1.0
    parts = [_row(row, h, i * ROW, reach, cap, wide) for i, (row, h) in enumerate(zip(rows, histograms, strict=True))]
    label = f"Errors of {len(rows)} settings on one axis, from {number(-reach)} to {number(reach)}"
    return (
        f'<svg viewBox="0 0 {wide} {ROW * len(rows) + 4}" role="img" aria-label="{escape(label)}" font-size="12">'
        f"{''.join(parts)}</svg>"
    )


def _row(row: HistogramRow, histogram: ErrorHistogram, y: int, reach: float, cap: float, wide: int) -> str:
    base, step = y + ROW - 4, wide / max(1, len(row.counts))
    path = "".join(
        f"M{i * step:.1f} {base}v{-max(1.0, min(1.0, c / cap) * TALL):.1f}h{step:.1f}V{base}z"
        for i, c in enumerate(row.counts)
        if c
    )
    label, figures = row.label, f"{bits(histogram.bits_per_weight)} bits a weight"
    if wide == WIDTH:  # a card has no room for more
        figures = f"{number(histogram.max_error)} at most · {decibels(histogram.snr_db)} · {figures}"
    weight = ' font-weight="600"' if histogram.chosen else ""
    bound = ""
    if row.bound is not None and row.bound <= reach:
        for side in (-1, 1):
            x = wide / 2 * (1 + side * row.bound / reach)
            bound += (
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{base - TALL}" y2="{base}" stroke="var(--lab-text)" '
                'stroke-dasharray="3 3"/>'
            )
    return (
        f'<text x="0" y="{y + 14}" fill="var(--lab-text)"{weight}>{escape(label)}</text>'
        f'<text x="{wide}" y="{y + 14}" text-anchor="end" fill="var(--lab-muted)">{escape(figures)}</text>'
        f'<path d="{path}" fill="var(--lab-series-1)" opacity="{1 if histogram.chosen else 0.5}"/>{bound}'
        f'<line x1="0" x2="{wide}" y1="{base}" y2="{base}" stroke="var(--lab-line)"/>'
    )
