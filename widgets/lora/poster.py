"""The still of a recorded `lora` run: figures, three rows of words, where the update sits, as escaped HTML and SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from lab.events import Recording
from widgets.format import format_number
from widgets.layer_map import shade
from widgets.lora.adapter_section import adapter_figures
from widgets.lora.map_section import map_items
from widgets.lora.state import ADAPTER, BASE, MERGED, LoraState
from widgets.numbers import percent
from widgets.poster import THUMBNAIL, visible
from widgets.token_text import plain_text

WIDTH, LEFT, ROW = 640, 78, 26
MOST_WORDS = 40
LABELS = {BASE: "base", ADAPTER: "adapter on", MERGED: "merged"}


def body(recording: Recording) -> str:
    """What stands inside the picture of the poster: escaped HTML."""
    state = LoraState()
    for event in recording.events:
        state.fold(event)
    own = state.own
    figures = "".join(
        f"<div><b>{escape(f['value'] or '–')}</b><small>{escape(f['unit'])}</small></div>"
        for f in (adapter_figures(own) if own else ())
    )
    return f'<figure>{_rows(state)}{_loss(state)}{_map(state)}</figure>\n<div class="lab-poster-figs">{figures}</div>'


def thumbnail(recording: Recording) -> str:
    """The first words without and with the adapter, and where the update sits, for a card."""
    state = LoraState()
    for event in recording.events:
        state.fold(event)
    return _rows(state, (BASE, ADAPTER), 14) + _map(state, THUMBNAIL[0], titled=False)


def _rows(state: LoraState, names: Sequence[str] = (BASE, ADAPTER, MERGED), most: int = MOST_WORDS) -> str:
    found = []
    for name in names:
        label, words = LABELS[name], state.words.get(name, [])[:most]
        if words:
            kind = ' class="prompt"' if name == BASE else ""
            chips = "".join(f"<span{kind}>{visible(plain_text(w.text))}</span>" for w in words if not w.is_end)
            found.append(f'<div class="lab-poster-strip" aria-label="{label}"><b>{label}&nbsp;</b>{chips}</div>')
    return "".join(found)


def _map(state: LoraState, width: int = WIDTH, *, titled: bool = True) -> str:
    first = next(iter(state.maps.values()), None)
    items = [item for item in map_items(first) if math.isfinite(item.value)] if first else []
    if not items:
        return ""
    names = list(dict.fromkeys(item.projection for item in items))
    layers = 1 + max(item.layer for item in items)
    low, high = min(item.value for item in items), max(item.value for item in items)
    wide, top = (width - LEFT) / layers, 24 if titled else 0
    cells = "".join(
        f'<rect x="{LEFT + item.layer * wide:.1f}" y="{top + names.index(item.projection) * ROW}" '
        f'width="{wide * 0.92:.1f}" height="{ROW - 4}" fill="var(--lab-series-1)" '
        f'fill-opacity="{shade(item.value, low, high):.2f}"/>'
        for item in items
    )
    labels = "".join(
        f'<text x="{LEFT - 6}" y="{top + i * ROW + 16}" text-anchor="end" fill="var(--lab-muted)">{escape(name)}</text>'
        for i, name in enumerate(names)
    )
    title = f"Where the update sits, layer by layer: {percent(low)} to {percent(high)} of |W|"
    written = f'<text y="12" fill="var(--lab-muted)">{escape(title)}</text>' if titled else ""
    return (
        f'<svg viewBox="0 0 {width} {len(names) * ROW + top + 6}" role="img" aria-label="{escape(title)}" '
        f'font-size="12">{written}{labels}{cells}</svg>'
    )


def _loss(state: LoraState) -> str:
    held = [
        (s.step, s.heldout_loss) for s in state.training if s.heldout_loss is not None and math.isfinite(s.heldout_loss)
    ]
    if len(held) < 2:
        return ""
    last, most = held[-1][0] or 1, max(loss for _, loss in held) or 1.0
    points = " ".join(
        f"{LEFT + step / last * (WIDTH - LEFT - 20):.1f},{150 - loss / most * 120:.1f}" for step, loss in held
    )
    title = f"Held-out loss: {format_number(held[0][1])} to {format_number(min(loss for _, loss in held))} nats"
    return (
        f'<svg viewBox="0 0 {WIDTH} 160" role="img" aria-label="{escape(title)}" font-size="12">'
        f'<text y="12" fill="var(--lab-muted)">{escape(title)}</text>'
        f'<polyline points="{points}" fill="none" stroke="var(--lab-series-2)" stroke-width="2.5"/></svg>'
    )
