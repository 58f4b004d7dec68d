"""Measured numbers as a page writes them: powers of ten, signs, infinities; a percentage keeps its first digits."""

from __future__ import annotations

import math

from widgets.format import NOTHING, format_number

SUPERSCRIPTS = "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"
SUPERSCRIPT = str.maketrans("-0123456789", SUPERSCRIPTS)


def capital(text: str) -> str:
    """With a capital letter at its start, the rest as it is."""
    return text[:1].upper() + text[1:]


def number(value: float | None, digits: int = 3) -> str:
    """Three digits; small ones as "3.1 × 10⁻⁶" (huge ones likewise), no error at all as "0", an infinite one as "∞"."""
    if value is None or math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value and not 1e-3 <= abs(value) < 1e15:
        mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
        return f"{mantissa} × 10{str(int(power)).translate(SUPERSCRIPT)}".replace("-", "−", 1)
    return format_number(value, digits).replace("-", "−")


def signed(value: float | None, digits: int = 3) -> str:
    """The same with its sign always written."""
    written = number(value, digits)
    return written if value is None or not value > 0 else f"+{written}"


def decibels(value: float | None) -> str:
    """A signal-to-noise ratio: "17.7 dB", "∞" where there is no error."""
    if value is None or math.isnan(value):
        return NOTHING
    return number(value) if math.isinf(value) else f"{value:.1f} dB".replace("-", "−")


def percent(share: float | None, digits: int = 2) -> str:
    """A relative error or a share: "13.1 %"; tiny ones keep their first digits."""
    if share is None or not math.isfinite(share):
        return NOTHING if share is None or math.isnan(share) else "∞"
    return f"{number(share * 100, digits + 1)} %" if share else "0 %"
