"""Numbers as a person reads them: three significant digits, binary sizes, the unit apart from the value.

A value that is missing or not finite is "–". Each `split_*` gives the pair (value, unit) for a figure,
each `format_*` the same as one text.
"""

from __future__ import annotations

import math

NOTHING = "–"
NOT_APPLICABLE = "n/a"
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def format_number(value: float | None, digits: int = 3) -> str:
    """`value` with `digits` significant digits, thousands separated, no exponent between 1e-4 and 1e15."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(float(f"{abs(value):.{digits - 1}e}"))))
    if not -5 < size < 15:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(0, digits - 1 - size)}f}"


def format_count(value: float | None) -> str:
    """A whole number with its thousands separated: "500,500"."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"{round(value):,}"


def split_bytes(count: float | None) -> tuple[str, str]:
    """Bytes in the largest binary unit that leaves at least 1: (2949120) -> ("2.81", "MiB").

    Whole bytes below 1 KiB stay whole. A value that would round up to 1,024 takes the next unit.
    """
    if count is None or not math.isfinite(count):
        return NOTHING, ""
    value, unit = float(count), 0
    while unit < len(_SIZES) - 1 and abs(value) >= (1024 if unit == 0 else 1023.5):
        value, unit = value / 1024, unit + 1
    if unit == 0:
        return (f"{value:.0f}" if value == int(value) else format_number(value)), "B"
    return format_number(value), _SIZES[unit]


def format_bytes(count: float | None) -> str:
    """Bytes as one text: "2.81 MiB"."""
    return _join(*split_bytes(count))


def split_ms(ms: float | None) -> tuple[str, str]:
    """A time given in milliseconds, in us, ms, s or min."""
    if ms is None or not math.isfinite(ms):
        return NOTHING, ""
    if ms != 0 and abs(ms) < 0.0995:
        return format_number(ms * 1000), "µs"
    if abs(ms) < 999.5:
        return format_number(ms), "ms"
    if abs(ms) < 119_500:
        return format_number(ms / 1000), "s"
    return format_number(ms / 60_000), "min"


def format_ms(ms: float | None) -> str:
    """A time given in milliseconds as one text: "41.2 ms"."""
    return _join(*split_ms(ms))


def format_rate(per_second: float | None, unit: str = "tokens/s") -> str:
    """A rate: "24.8 tokens/s"."""
    return _join(format_number(per_second), unit)


def format_ratio(ratio: float | None) -> str:
    """A ratio of two measurements, two significant digits: "3.4 ×"."""
    return _join(format_number(ratio, 2), "×")


def format_share(share: float | None) -> str:
    """A share in 0..1 as a percentage: "78 %"; one digit more below 10."""
    if share is None or not math.isfinite(share):
        return NOTHING
    percent = share * 100
    return f"{percent:.0f} %" if abs(percent) >= 9.95 or percent == 0 else f"{format_number(percent, 2)} %"


def typeset_number(value: float) -> str:
    """A number with a minus sign as axes have it."""
    return format_number(value).replace("-", "\u2212")


def typeset_share(share: float | None) -> str:
    """A share as a percentage that no line breaks: "15 %"."""
    return format_share(share).replace(" ", "\u00a0")


def _join(value: str, unit: str) -> str:
    return value if value == NOTHING or not unit else f"{value} {unit}"
