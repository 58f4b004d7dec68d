"""One layer quantized at a time: how much the whole model suffers from it. And the bits that each layer got."""

from __future__ import annotations

from collections.abc import Sequence

from bokeh.models import FixedTicker

from lab.events.quantization import Coverage, Sensitivity
from widgets.format import format_bytes, format_number
from widgets.layer_axis import layer_figure, layer_range
from widgets.plot import Plot, add_point_hover, add_words, paint, source

COLOUR = "--lab-series-3"
"""Of the whole model's error, as everywhere on the page."""
BITS = "--lab-series-5"
DENSE_BITS = 16


class SensitivityPlot(Plot):
    """A bar a layer; the most sensitive one is named."""

    def __init__(self) -> None:
        fig = layer_figure(y_label="KL(dense ‖ quantized), nats", x_label="layer", height=200)
        bars, names = source("bars", "x", "top", "kl", "flips", "worst"), source("names", "x", "y", "text", "align")
        made = fig.vbar(x="x", top="top", width=0.72, source=bars, line_width=0)
        paint(made.glyph, fill_color=COLOUR, line_color=COLOUR)
        add_words(fig, names, text_align="align", y_offset=-4)
        add_point_hover(
            fig,
            [made],
            [
                ("layer", "@x"),
                ("KL(dense ‖ quantized)", "@kl nats"),
                ("worst position", "@worst nats"),
                ("flips of the first guess", "@flips"),
            ],
        )
        super().__init__(fig, "KL(dense ‖ quantized) with one layer quantized at a time")

    def show(self, tried: Sequence[Sensitivity], layers: int) -> None:
        """Draw the layers tried so far."""
        kls = [max(s.divergence.kl, 0.0) for s in tried]
        top = max(kls, default=1.0) or 1.0
        worst = most_sensitive(tried)
        said = f"layer {worst.layer}: {format_number(worst.divergence.kl)} nats" if worst else ""
        self.update(
            {
                "bars": {
                    "x": [s.layer for s in tried],
                    "top": kls,
                    "kl": [format_number(s.divergence.kl) for s in tried],
                    "worst": [format_number(s.divergence.worst_kl) for s in tried],
                    "flips": [f"{s.divergence.flips:,} of {s.divergence.positions:,} positions" for s in tried],
                },
                "names": {
                    "x": [worst.layer + (-0.4 if worst.layer < layers / 2 else 0.4)] if worst else [],
                    "y": [max(worst.divergence.kl, 0.0)] if worst else [],
                    "text": [said] if worst else [],
                    "align": ["left" if worst.layer < layers / 2 else "right"] if worst else [],
                },
            },
            {"x_range": layer_range(layers), "y_range": {"start": 0, "end": top * 1.16}},
            f"One layer quantized at a time, {len(tried)} of {layers} tried: most sensitive is {said}"
            if worst
            else "One layer quantized at a time: nothing tried yet",
        )


def most_sensitive(tried: Sequence[Sensitivity]) -> Sensitivity | None:
    """The layer from which the model suffers most."""
    return max(tried, key=lambda s: s.divergence.kl, default=None)


class BitsPlot(Plot):
    """Bits of each layer's codes; a layer that stays dense is an outlined bar."""

    def __init__(self) -> None:
        fig = layer_figure(y_label="bits of a code", x_label="layer", height=150)
        bars = source("bars", "x", "top", "bits", "bytes")
        dense = source("dense", "x", "top", "bits", "bytes")
        names = source("names", "x", "y", "text", "align")
        fig.yaxis[0].ticker = FixedTicker(ticks=[0, 4, 8, 16])
        made = fig.vbar(x="x", top="top", width=0.72, source=bars, line_width=0)
        paint(made.glyph, fill_color=BITS, line_color=BITS)
        kept = fig.vbar(x="x", top="top", width=0.72, source=dense, fill_alpha=0.15, line_width=1, line_dash=[3, 2])
        paint(kept.glyph, fill_color="--lab-muted", line_color="--lab-muted")
        add_words(fig, names, text_align="align", y_offset=-3)
        add_point_hover(fig, [made, kept], [("layer", "@x"), ("bits of a code", "@bits"), ("size", "@bytes")])
        super().__init__(fig, "Bits of each layer")

    def show(self, coverage: Coverage | None) -> None:
        """Draw the layers as they were quantized."""
        bits = list(coverage.layer_bits) if coverage else []
        sizes = [format_bytes(b) for b in coverage.layer_bytes] if coverage else []
        sizes += [""] * (len(bits) - len(sizes))
        top = max([*bits, DENSE_BITS if 0 in bits else 4])
        coded = [i for i, b in enumerate(bits) if b > 0]
        dense = [i for i, b in enumerate(bits) if b <= 0]
        changes = [i for i, b in enumerate(bits) if i == 0 or b != bits[i - 1]]
        self.update(
            {
                "bars": {
                    "x": coded,
                    "top": [bits[i] for i in coded],
                    "bits": [f"{bits[i]:g}" for i in coded],
                    "bytes": [sizes[i] for i in coded],
                },
                "dense": {
                    "x": dense,
                    "top": [DENSE_BITS] * len(dense),
                    "bits": ["dense"] * len(dense),
                    "bytes": [sizes[i] for i in dense],
                },
                "names": {
                    "x": [i + 0.4 if i == len(bits) - 1 else i - 0.36 for i in changes],
                    "align": ["right" if i == len(bits) - 1 else "left" for i in changes],
                    "y": [bits[i] or DENSE_BITS for i in changes],
                    "text": [f"{bits[i]:g}" if bits[i] else "dense" for i in changes],
                },
            },
            {"x_range": layer_range(len(bits)), "y_range": {"start": 0, "end": top * 1.28}},
            "Bits by layer: "
            + (", ".join(f"{i}: {b:g}" if b else f"{i}: dense" for i, b in enumerate(bits)) or "none"),
        )
