"""Headers that every answer carries: a browser must guess no type, frame nothing and tell no one where it was."""

from __future__ import annotations

COMMON = {"x-content-type-options": "nosniff", "referrer-policy": "same-origin"}
DATA = {
    **COMMON,
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "x-frame-options": "DENY",
}
"""Of the model process: what it sends is data, never a page."""
