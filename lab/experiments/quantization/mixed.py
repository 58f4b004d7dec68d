"""Mixed precision by hand: "0:8, 10-19:3, 29:16" as bits by layer. No torch here."""

from __future__ import annotations

import re

DENSE = 16
"""Bits that leave a layer as it is."""
_PART = re.compile(r"\s*([0-9]{1,4})\s*(?:-\s*([0-9]{1,4})\s*)?:\s*([0-9]{1,2})\s*")


def read_layer_bits(text: str) -> dict[int, int]:
    """Bits of each layer that `text` names; later parts go before earlier ones.

    >>> read_layer_bits("0-2:8, 1:16")
    {0: 8, 1: 16, 2: 8}

    Raises:
        ValueError: in words, for a person.
    """
    found: dict[int, int] = {}
    for part in text.split(",") if text.strip() else ():
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"{part.strip()[:40]!r} is not of the form LAYER:BITS or FIRST-LAST:BITS")
        first, last, bits = int(match[1]), int(match[2] or match[1]), int(match[3])
        if last < first:
            raise ValueError(f"the layers {first}-{last} run backwards")
        if bits != DENSE and not 2 <= bits <= 8:
            raise ValueError(f"a layer has 2 to 8 bits, or {DENSE} to stay dense, not {bits}")
        found.update(dict.fromkeys(range(first, last + 1), bits))
    return dict(sorted(found.items()))
