"""The quantized key/value cache: its bytes by parts and by layers."""

from __future__ import annotations

from lab.events.quantization_words import QuantizedCache
from widgets.bar_table import Bar, BarRow, BarTable, Column
from widgets.experiment import Table
from widgets.figure import FigureRow
from widgets.format import format_bytes, split_bytes
from widgets.layer_strip import LayerStrip
from widgets.quantization.state import QuantizationState
from widgets.section import heading, section
from widgets.text import Words

_MIB = 1024 * 1024


class CachePart:
    """Part of the words' section; shown where the row on screen quantizes its cache."""

    def __init__(self) -> None:
        self._figures = FigureRow()
        self._bars = BarTable(label="Bytes of the cache by parts", first="part", picture="quantized cache")
        self._strip = LayerStrip(title="Bytes of each layer's quantized cache")
        self._caption = Words(css_class="lab-caption")
        self.widget = section(
            heading(
                "The cache in fewer bits", "Keys are quantized per channel, values per token; the newest stay dense."
            ),
            self._figures,
            self._bars,
            self._strip,
            self._caption,
        )

    def render(self, cache: QuantizedCache) -> None:
        """Draw one variant's cache."""
        total = total_bytes(cache)
        value, unit = split_bytes(total)
        self._figures.show(
            [
                {
                    "id": "cache_bytes",
                    "value": value,
                    "unit": f"{unit} for {cache.positions:,} positions",
                    "badge": "SIMULATED",
                    "note": f"dense: {format_bytes(cache.plain_bytes)}",
                    "title": "Codes, scales, zero points and the positions kept dense, as they would be stored.",
                },
                {
                    "id": "cache_ratio",
                    "value": f"{cache.plain_bytes / total:.2f}" if total else "",
                    "unit": "× smaller",
                    "badge": "DERIVED",
                    "note": f"{cache.bits} bits a number, scales on top",
                    "title": "Bytes of the plain cache divided by those of the quantized one.",
                },
                {
                    "id": "cache_residual",
                    "value": f"{min(cache.residual, cache.positions):,}",
                    "unit": "newest positions kept dense at most",
                    "badge": "DERIVED",
                    "note": f"{format_bytes(cache.dense_bytes)} of the bytes are dense",
                    "title": "They are quantized once they are old enough and their group is complete.",
                },
            ]
        )
        parts = (
            ("codes", cache.code_bytes),
            ("scales and zero points", cache.scale_bytes),
            ("dense", cache.dense_bytes),
        )
        rows = [BarRow(label=name, bars=[Bar(count / _MIB, 1)], cells=[format_bytes(count)]) for name, count in parts]
        rows.append(
            BarRow(
                label="plain cache", bars=[Bar(cache.plain_bytes / _MIB, 3)], cells=[format_bytes(cache.plain_bytes)]
            )
        )
        self._bars.show(rows, (Column("size"),))
        layers = len(cache.layer_bytes)
        most = max([cache.plain_bytes // layers, *cache.layer_bytes]) if layers else 0
        self._strip.show(
            [
                {"bytes": count, "kind": "full", "title": f"layer {i}: {format_bytes(count)}"}
                for i, count in enumerate(cache.layer_bytes)
            ],
            max_bytes=most,
            caption=f"Layer 0 to {layers - 1}; a full bar is the plain cache." if layers else "",
        )
        self._caption.say(("p", cache.words))

    def table(self, state: QuantizationState) -> Table:
        """The caches of all variants."""
        head = ["variant", "bits", "kept dense", "positions", "codes", "scales", "dense", "plain"]
        rows = [
            [c.variant, c.bits, c.residual, c.positions, c.code_bytes, c.scale_bytes, c.dense_bytes, c.plain_bytes]
            for c in state.caches.values()
        ]
        return Table("cache_bytes", head, rows)


def total_bytes(cache: QuantizedCache) -> int:
    """All that the quantized cache holds."""
    return cache.code_bytes + cache.scale_bytes + cache.dense_bytes
