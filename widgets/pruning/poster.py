"""The still of a recorded `pruning` run: figures, a part of the mask, the errors, as escaped HTML and SVG."""

from __future__ import annotations

import math
from html import escape

from lab.events import Recording
from widgets.numbers import percent
from widgets.poster import THUMBNAIL
from widgets.pruning.errors_section import leading
from widgets.pruning.mask_bits import MaskBits
from widgets.pruning.masks_words import mask_figures
from widgets.pruning.method_marks import mark_of
from widgets.pruning.state import PruningState

WIDTH, SIDE, CELL = 640, 48, 5
"""Of the part of each mask that is drawn: weights on a side, and pixels of one."""
HEAD = 30
"""Pixels that a mask's label takes."""


def body(recording: Recording) -> str:
    """What stands inside the picture of the poster: escaped HTML."""
    state, masks = _read(recording)
    figures = "".join(
        f"<div><b>{escape(f['value'] or '–')}</b><small>{escape(f['unit'])}</small></div>"
        for f in mask_figures(masks[0] if masks else None, masks[1] if len(masks) > 1 else None)
    )
    return f'<figure>{_svg(masks[:2])}{_bars(state)}</figure>\n<div class="lab-poster-figs">{figures}</div>'


def thumbnail(recording: Recording) -> str:
    """Corners of two masks, for a card."""
    wide, high = THUMBNAIL
    return _svg(_read(recording)[1][:2], wide, (high - HEAD) // CELL)


def _read(recording: Recording) -> tuple[PruningState, list[MaskBits]]:
    """The state after the run, and the masks of its first matrix, the chosen one first."""
    state = PruningState()
    for event in recording.events:
        state.fold(event)
    first = state.masks[0] if state.masks else None
    own = [m for m in state.masks if first and (m.layer, m.projection) == (first.layer, first.projection)]
    return state, [mask for m in sorted(own, key=lambda m: not m.chosen) if (mask := MaskBits.of(m))]


def _svg(masks: list[MaskBits], wide: int = WIDTH, side: int = SIDE) -> str:
    if not masks:
        return ""
    parts = []
    for place, mask in enumerate(masks):
        bits = mask.unpacked()[:side, :side]
        path = "".join(
            f"M{column * CELL} {row * CELL}h{CELL}v{CELL}h-{CELL}z"
            for row in range(bits.shape[0])
            for column in range(bits.shape[1])
            if bits[row, column]
        )
        parts.append(
            f'<g transform="translate({place * wide // 2} 24)">'
            f'<text y="-8" fill="var(--lab-text)">{escape(mask.label)}</text>'
            f'<rect width="{bits.shape[1] * CELL}" height="{bits.shape[0] * CELL}" fill="var(--lab-sunken)"/>'
            f'<path d="{path}" fill="{f"var({mark_of(mask.method).colour})"}"/></g>'
        )
    label = f"The first {side} rows and columns of {len(masks)} masks: which weights stay"
    return (
        f'<svg viewBox="0 0 {wide} {side * CELL + HEAD}" role="img" aria-label="{escape(label)}" font-size="12">'
        f"{''.join(parts)}</svg>"
    )


def _bars(state: PruningState) -> str:
    first = state.errors[0] if state.errors else None
    if first is None:
        return ""
    rows = [e for e in state.errors if (e.layer, e.projection) == (first.layer, first.projection)]
    text, _ = leading(rows)
    rows = sorted((e for e in rows if math.isfinite(text.of(e))), key=text.of)
    most = max(map(text.of, rows), default=0.0) or 1.0
    parts = []
    for place, e in enumerate(rows):
        y = place * 24 + 22
        wide = max(1.0, text.of(e) / most * (WIDTH - 260))
        parts.append(
            f'<text x="150" y="{y + 11}" text-anchor="end" fill="var(--lab-text)">'
            f"{escape(e.setting.label)}</text>"
            f'<rect x="160" y="{y}" width="{wide:.1f}" height="14" fill="var({mark_of(e.setting.method).colour})"/>'
            f'<text x="{168 + wide:.1f}" y="{y + 11}" fill="var(--lab-muted)">'
            f"{escape(percent(text.of(e)))}</text>"
        )
    title = f"Output error of {first.projection}, layer {first.layer}, on {text.name}"
    return (
        f'<svg viewBox="0 0 {WIDTH} {len(rows) * 24 + 26}" role="img" aria-label="{escape(title)}" font-size="12">'
        f'<text y="12" fill="var(--lab-muted)">{escape(title)}</text>{"".join(parts)}</svg>'
    )
