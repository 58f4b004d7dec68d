"""What if: cache bytes against context for other shapes of the same model, and for known models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bokeh.models import CustomJSTickFormatter, LogTicker

from widgets.plot import Plot, add_hover, add_words, new_figure, paint, source

SERIES = ("--lab-text", "--lab-series-1", "--lab-series-2", "--lab-series-3", "--lab-series-4", "--lab-series-5")
GIB = 1024**3
_BYTES_TICK = """
const units = [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];
for (const [unit, size] of units) if (tick >= size) return `${+(tick / size).toPrecision(3)} ${unit}`;
return `${tick} B`;
"""
_TOKENS_TICK = "return tick >= 1024 ? `${+(tick / 1024).toPrecision(3)}k` : `${tick}`;"
CURVES = 6


class WhatIfPlot(Plot):
    """Up to six curves on logarithmic axes, and the line of this machine's free memory."""

    def __init__(self) -> None:
        fig = new_figure(
            x_label="context, tokens",
            y_label="cache size (DERIVED by formula)",
            height=300,
            x_axis_type="log",
            y_axis_type="log",
        )
        for axis, code in ((fig.xaxis[0], _TOKENS_TICK), (fig.yaxis[0], _BYTES_TICK)):
            axis.formatter = CustomJSTickFormatter(code=code)
            axis.ticker = LogTicker(base=2, mantissas=[1], desired_num_ticks=7)
        hovered = []
        for i in range(CURVES):
            curve = fig.line("x", "y", source=source(f"curve{i}", "x", "y", "label"), line_width=2 if i else 2.5)
            paint(curve.glyph, line_color=SERIES[i % len(SERIES)])
            if i >= 3:
                curve.glyph.line_dash = [6, 3]
            hovered.append(curve)
        free = fig.line("x", "y", source=source("free", "x", "y"), line_width=1.5, line_dash=[2, 3])
        paint(free.glyph, line_color="--lab-muted")
        names = source("names", "x", "y", "text")
        add_words(fig, names, y_offset=-3)
        add_hover(fig, hovered, [("", "@label"), ("context", "@x{0,0} tokens"), ("cache", "@y{0.00 ib}")])
        super().__init__(fig, "Cache size against context for other shapes of the model")

    def show(self, curves: Sequence[Mapping[str, Any]], free_bytes: int) -> None:
        """Draw curves of {label, context, bytes}; the first is the model as it is."""
        data: dict[str, Any] = {}
        for i in range(CURVES):
            shown = curves[i] if i < len(curves) else {"label": "", "context": [], "bytes": []}
            xs = list(shown["context"])
            data[f"curve{i}"] = {"x": xs, "y": list(shown["bytes"]), "label": [shown["label"]] * len(xs)}
        xs = list(curves[0]["context"]) if curves else []
        data["free"] = {"x": [xs[0], xs[-1]] if xs else [], "y": [free_bytes, free_bytes] if xs else []}
        data["names"] = {
            "x": [xs[0]] if xs else [],  # on the left, where the curves are low
            "y": [free_bytes] if xs else [],
            "text": [f"free here: {free_bytes / GIB:.1f} GiB"] if xs else [],
        }
        props = {}
        if xs:
            values = [b for c in curves for b in c["bytes"] if b > 0] + [free_bytes]
            props = {
                "x_range": {"start": xs[0], "end": xs[-1]},
                "y_range": {"start": min(values) / 1.5, "end": max(values) * 4},
            }
        longest = ", ".join(f"{c['label']}: {c['bytes'][-1] / GIB:.2f} GiB" for c in curves)
        self.update(data, props, f"At {xs[-1] if xs else 0} tokens: {longest}")
