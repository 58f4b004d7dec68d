"""With and without the cache: milliseconds a token as the text grows, both really run."""

from __future__ import annotations

from typing import Any

from bokeh.core.properties import field

from widgets.kv_cache.state import KVCacheState
from widgets.plot import Plot, add_hover, add_words, new_figure, paint, source

EARLY = 0.4
"""Up to this part of the axis a name has no room to the left of its point."""


class RacePlot(Plot):
    """Two lines over the text's length; the lower one barely climbs."""

    def __init__(self) -> None:
        fig = new_figure(x_label="text length, tokens", y_label="ms a token", height=220)
        columns = ("x", "y", "computed")
        without, cached = source("without", *columns), source("with", *columns)
        names, now = source("names", "x", "y", "text", "align"), source("now", "x", "y")
        upper = fig.line("x", "y", source=without, line_width=2)
        paint(upper.glyph, line_color="--lab-series-2")
        paint(
            fig.scatter("x", "y", source=without, size=4).glyph,
            fill_color="--lab-series-2",
            line_color="--lab-series-2",
        )
        lower = fig.line("x", "y", source=cached, line_width=2)
        paint(lower.glyph, line_color="--lab-series-1")
        paint(
            fig.scatter("x", "y", source=cached, size=4).glyph, fill_color="--lab-series-1", line_color="--lab-series-1"
        )
        ring = fig.scatter("x", "y", source=now, size=9, line_width=2.5)
        paint(ring.glyph, line_color="--lab-text", fill_color="--lab-surface")
        add_words(fig, names, text_align=field("align"), text_baseline="middle")
        add_hover(
            fig, [upper, lower], [("text length", "@x"), ("ms", "@y{0.0}"), ("keys and values made", "@computed")]
        )
        super().__init__(fig, "Milliseconds a token with and without the cache")

    def show(self, state: KVCacheState, upto: int, cursor: int | None = None) -> None:
        """Draw both series up to new token `upto`; the first token belongs to the prefill and is left out."""
        prompt = state.prompt_length
        with_cache = [(prompt + t.index, t.ms, t.computed) for t in state.tokens[1 : upto + 1]]
        without = [(prompt + i, u.ms, u.computed) for i, u in sorted(state.uncached.items()) if 0 < i <= upto]
        highest = max([p[1] for p in (*with_cache, *without)], default=1.0)
        end = max(prompt + 2, prompt + state.steps)
        if state.started and not state.finished:
            end = max(end, prompt + int(state.started.card.params.get("max_new_tokens", 0)))
        names = []
        if len(without) > 2:
            names.append((without[-1][0], highest * 1.11, "without the cache"))
        if len(with_cache) > 2:
            below = min(p[1] for p in with_cache) - highest * 0.13
            near = with_cache[-max(len(with_cache) // 3, 3) :]
            at = below if below > highest * 0.05 else max(p[1] for p in near) + highest * 0.09
            names.append((with_cache[-1][0], at, "with the cache"))
        # Early in a run the words go on to the right of the newest point: to its left they would be cut.
        sides = ["left" if x - prompt < EARLY * (end - prompt) else "right" for x, _, _ in names]
        here = upto if cursor is None else cursor
        now = [(p[0], p[1]) for p in (*with_cache, *without) if p[0] == prompt + here]
        self.update(
            {
                "with": _columns(with_cache),
                "without": _columns(without),
                "names": {
                    "x": [n[0] for n in names],
                    "y": [n[1] for n in names],
                    "text": [n[2] for n in names],
                    "align": sides,
                },
                "now": {"x": [p[0] for p in now], "y": [p[1] for p in now]},
            },
            {
                "x_range": {"start": prompt, "end": prompt + (end - prompt) * 1.02 + 0.1},
                "y_range": {"start": 0, "end": highest * 1.2},
            },
            _label(with_cache, without),
        )


def _columns(points: list[tuple[int, float, int]]) -> dict[str, Any]:
    return {"x": [p[0] for p in points], "y": [p[1] for p in points], "computed": [p[2] for p in points]}


def _label(with_cache: list[tuple[int, float, int]], without: list[tuple[int, float, int]]) -> str:
    if not with_cache:
        return "No decode step yet"
    text = f"{with_cache[-1][1]:.0f} ms a token with the cache at {with_cache[-1][0]} tokens"
    return text + (f", {without[-1][1]:.0f} ms without it" if without else "")
