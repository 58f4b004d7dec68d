"""The still of a recorded `speculative` run: chips, figures and the rounds, as escaped HTML and SVG."""

from __future__ import annotations

from html import escape

from lab.events import Recording
from lab.events.speculative import SpeculativeRound
from widgets.poster import THUMBNAIL
from widgets.speculative.figures import headline
from widgets.speculative.state import SpeculativeState, reading_order
from widgets.token_text import visible

WIDTH, LEFT, ROW, TOP, GAP = 640, 34, 26, 8, 3
MOST_CHIPS, MOST_ROUNDS = 160, 9
CHAR, PAD, MOST_CHARS, MOST_LETTERS = 7.0, 10, 18, 60
BARS = 150
"""Pixels that the time bars take on the right."""
MARKS = {"accepted": "✓", "rejected": "✕", "resampled": "↻", "bonus": "+", "plain": "○", "unjudged": "?"}
PARTS = (("draft_ms", "--lab-series-2"), ("verify_ms", "--lab-series-1"), ("judge_ms", "--lab-series-4"))


def body(recording: Recording) -> str:
    """What stands inside the picture of the poster: escaped HTML."""
    state = SpeculativeState()
    for event in recording.events:
        state.fold(event)
    last = state.steps - 1
    figures = "".join(
        f"<div><b>{escape(f['value'] or '–')}</b><small>{escape(f['unit'])}</small></div>"
        for f in headline(state, last)
    )
    return (
        f'<div class="lab-poster-strip">{_chips(state)}</div>\n<div class="lab-poster-figs">{figures}</div>\n'
        f"<figure>{_rounds_svg(state.rounds)}</figure>"
    )


def thumbnail(recording: Recording) -> str:
    """The newest rounds without their times, for a card."""
    state = SpeculativeState()
    for event in recording.events:
        state.fold(event)
    wide, high = THUMBNAIL
    return _rounds_svg(state.rounds, most=(high - TOP) // ROW, wide=wide, bars=0)


def _chips(state: SpeculativeState) -> str:
    prompt = state.prompt.texts if state.prompt else ()
    chips = [f'<span class="prompt">{escape(_cut(text, MOST_LETTERS))}</span>' for text in prompt]
    if state.first is not None:
        chips.append(f"<span>{escape(_cut(state.first.text, MOST_LETTERS))}</span>")
    for round_ in state.rounds:
        for row in reading_order(round_, dropped=True):
            token = round_.tokens[row]
            chips.append(_chip(token.kind, token.text))
    dropped = len(chips) - MOST_CHIPS
    return (f'<span class="prompt">… {dropped:,} earlier</span>' if dropped > 0 else "") + "".join(chips[-MOST_CHIPS:])


def _cut(text: str, most: int) -> str:
    shown = visible(text)
    return f"{shown[: most - 1]}…" if len(shown) > most else shown


def _chip(kind: str, text: str) -> str:
    mark = MARKS[kind]
    if kind == "unjudged":
        style = "background:transparent;outline:1px dashed var(--lab-muted);color:var(--lab-muted)"
        return f'<span style="{style}">{mark}{escape(_cut(text, MOST_LETTERS))}</span>'
    soft, edge = _colours(kind)
    style = f"background:{soft};outline:1px solid {edge}"
    shown = escape(_cut(text, MOST_LETTERS))
    return f'<span style="{style}">{mark}{f"<s>{shown}</s>" if kind == "rejected" else shown}</span>'


def _colours(kind: str) -> tuple[str, str]:
    """Ground and edge of a token that was judged or put in; a plain step is neutral."""
    if kind == "plain":
        return "var(--lab-sunken)", "var(--lab-muted)"
    return f"var(--lab-{kind}-soft)", f"var(--lab-{kind}-edge)"


def _rounds_svg(rounds: list[SpeculativeRound], *, most: int = MOST_ROUNDS, wide: int = WIDTH, bars: int = BARS) -> str:
    shown = list(reversed(rounds))[:most]
    if not shown:
        return ""
    longest = max(r.draft_ms + r.verify_ms + r.judge_ms for r in shown) or 1.0
    parts = [_round_svg(r, TOP + i * ROW, longest, wide, bars) for i, r in enumerate(shown)]
    label = f"The newest {len(shown)} of {len(rounds)} rounds: what was proposed, and what came of it"
    return (
        f'<svg viewBox="0 0 {wide} {TOP + ROW * len(shown)}" role="img" aria-label="{escape(label)}" '
        f'font-size="11">{"".join(parts)}</svg>'
    )


def _round_svg(round_: SpeculativeRound, y: int, longest: float, wide: int, bars: int) -> str:
    out = [f'<text x="{LEFT - 12}" y="{y + 14}" text-anchor="end" fill="var(--lab-muted)">{round_.index + 1}</text>']
    x = float(LEFT)
    for token in round_.tokens:
        text = _cut(token.text, MOST_CHARS)
        width = CHAR * (len(text) + 2) + PAD
        if x + width > wide - bars - 20:
            out.append(f'<text x="{x:.0f}" y="{y + 14}" fill="var(--lab-muted)">…</text>')
            break
        out.append(_box(token.kind, text, x, y, width))
        x += width + GAP
    if not bars:
        return "".join(out)
    bar = float(wide - bars)
    for name, colour in PARTS:
        width = getattr(round_, name) / longest * (bars - 50)
        out.append(f'<rect x="{bar:.1f}" y="{y + 5}" width="{width:.1f}" height="10" fill="var({colour})"/>')
        bar += width
    total = round_.draft_ms + round_.verify_ms + round_.judge_ms
    out.append(f'<text x="{wide}" y="{y + 14}" text-anchor="end" fill="var(--lab-text)">{total:.0f} ms</text>')
    return "".join(out)


def _box(kind: str, text: str, x: float, y: int, width: float) -> str:
    (soft, edge), words = _colours(kind), "var(--lab-text)"
    dash = ""
    if kind == "unjudged":
        soft, edge, words, dash = "none", "var(--lab-muted)", "var(--lab-muted)", ' stroke-dasharray="3 2"'
    struck = ' text-decoration="line-through"' if kind == "rejected" else ""
    return (
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 6}" rx="4" fill="{soft}" stroke="{edge}"{dash}/>'
        f'<text x="{x + PAD / 2:.1f}" y="{y + 14}" fill="{words}" font-family="var(--lab-mono)">'
        f"{MARKS[kind]}\u00a0<tspan{struck}>{escape(text)}</tspan></text>"
    )
