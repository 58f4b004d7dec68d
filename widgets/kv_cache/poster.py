"""The picture of the `kv_cache` page's poster: tokens, figures, the growth of the cache."""

from __future__ import annotations

import math
from html import escape

from lab.events import Recording
from widgets.format import format_bytes, split_bytes
from widgets.kv_cache.state import KVCacheState
from widgets.poster import THUMBNAIL, visible

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 250, 54, 14, 28, 34
MIB = 1024 * 1024


def body(recording: Recording) -> str:
    """What stands in the picture, as HTML; all text of the model is escaped."""
    state = KVCacheState()
    for event in recording.events:
        state.fold(event)
    return f"""<div class="lab-poster-strip">{_chips(state)}</div>
<div class="lab-poster-figs">{_figures(state)}</div>
<figure>{_ledger_svg(state)}</figure>"""


def thumbnail(recording: Recording) -> str:
    """The growth of the cache, for a card."""
    state = KVCacheState()
    for event in recording.events:
        state.fold(event)
    return _ledger_svg(state, *THUMBNAIL)


def _chips(state: KVCacheState) -> str:
    prompt = state.prompt.texts if state.prompt else ()
    chips = [f'<span class="prompt">{visible(text)}</span>' for text in prompt]
    chips += [f"<span>{visible(token.text)}</span>" for token in state.tokens]
    return "".join(chips)


def _figures(state: KVCacheState) -> str:
    last = state.steps - 1
    ledger = state.ledger_at(last)
    shown = []
    if ledger is not None:
        value, unit = split_bytes(sum(ledger.layer_bytes))
        shown.append((value, f"{unit} in the cache"))
        first = state.prefill_ledgers[0] if state.prefill_ledgers else ledger
        value, unit = split_bytes(sum(first.layer_bytes) / max(first.cache_length, 1))
        shown.append((value, f"{unit} a token"))
    speedup = state.speedup_at(last)
    if speedup is not None:
        shown.append((f"{speedup.ratio:.1f}", "× faster with it"))
    return "".join(f"<div><b>{escape(v)}</b><small>{escape(u)}</small></div>" for v, u in shown)


def _ledger_svg(state: KVCacheState, wide: int = WIDTH, high: int = HEIGHT) -> str:
    ledgers = [*state.prefill_ledgers, *(state.ledgers[i] for i in sorted(state.ledgers))]
    if not ledgers:
        return ""
    points = [(0, 0.0), *((entry.cache_length, sum(entry.layer_bytes) / MIB) for entry in ledgers)]
    longest, most = max(p[0] for p in points), max(p[1] for p in points)

    def place(x: float, y: float) -> str:
        across = LEFT + x / longest * (wide - LEFT - RIGHT)
        return f"{across:.1f},{high - BOTTOM - y / (most * 1.12) * (high - TOP - BOTTOM):.1f}"

    line = " ".join(place(*p) for p in points)
    area = f"{place(0, 0)} {line} {place(points[-1][0], 0)}"
    step = _step(most)
    grid = "".join(_gridline(most, i * step, wide, high) for i in range(int(most * 1.05 / step) + 1))
    label = f"Cache size grows to {format_bytes(sum(ledgers[-1].layer_bytes))} at {ledgers[-1].cache_length} tokens"
    return (
        f'<svg viewBox="0 0 {wide} {high}" role="img" aria-label="{escape(label)}" font-size="11">'
        f'<text x="{LEFT}" y="14" fill="var(--lab-muted)">MiB in the cache</text>{grid}'
        f'<polygon points="{area}" fill="var(--lab-series-1)" opacity=".32"/>'
        f'<polyline points="{line}" fill="none" stroke="var(--lab-series-1)" stroke-width="2"/>'
        f'<text x="{wide - RIGHT}" y="{high - 6}" text-anchor="end" fill="var(--lab-muted)">'
        "cache length, tokens</text></svg>"
    )


def _step(most: float) -> float:
    """A round distance of gridlines, three to seven of them up to `most`."""
    power = 10.0 ** math.floor(math.log10(most / 3)) if most > 0 else 1.0
    return next((m * power for m in (5, 2, 1) if m * power <= most / 3), power)


def _gridline(most: float, value: float, wide: int, high: int) -> str:
    y = high - BOTTOM - value / (most * 1.12) * (high - TOP - BOTTOM)
    return (
        f'<line x1="{LEFT}" x2="{wide - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--lab-line)"/>'
        f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="var(--lab-muted)">{value:.3g}</text>'
    )
