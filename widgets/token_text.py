"""A token's text so that a person sees all of it: as the chips of `token_strip.js` write it."""

from __future__ import annotations

import re
import unicodedata

_NAMED = {"\n": "↵", "\t": "⇥", "\r": "␍", "\u00a0": "⍽", "\ufffd": "◌", "\u00ad": "U+00AD"}
_HARD = re.compile(
    "[\u0000-\u001f\u007f-\u009f\u00a0\u00ad\u061c\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffd\ud800-\udfff]"
)


def visible(text: str) -> str:
    """`text` with its outer spaces as dots, and control and direction characters named instead of obeyed."""
    if not text:
        return "∅"
    inner = text.strip(" ")
    lead = len(text) - len(text.lstrip(" "))
    trail = len(text) - len(text.rstrip(" ")) if inner else 0
    shown = "·" * lead + _HARD.sub(_name, inner) + "·" * trail
    return f"◌{shown}" if unicodedata.category(shown[0]).startswith("M") else shown


def quoted(text: str, most: int = 40, marks: str = "“”") -> str:
    """`text` in quotation marks for a sentence; spaces stay, control characters are named, long texts are cut."""
    if not text:
        return f"{marks} (an unfinished character)"
    shown = _HARD.sub(_name, text)
    return f"{marks[0]}{shown[: most - 1]}…{marks[1]}" if len(shown) > most else f"{marks[0]}{shown}{marks[1]}"


def plain_text(text: str) -> str:
    """`text` to be read: spaces and line ends stay, other control and direction characters are named."""
    return "\n".join(_HARD.sub(_name, line) for line in text.split("\n"))


def _name(match: re.Match[str]) -> str:
    char = match.group()
    code = ord(char)
    if char in _NAMED:
        return _NAMED[char]
    if 0xD800 <= code <= 0xDFFF:
        return "◌"
    return chr(0x2400 + code) if code < 0x20 else f"U+{code:04X}"
