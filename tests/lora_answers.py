"""Answers to the questions of the `lora` page, as its backend gives them. For tests of the page alone."""

from __future__ import annotations

import math
from typing import Any

from words_sim import OTHER, WORDS, token_id

EXAMPLE: dict[str, Any] = {
    "scale": 2.0,
    "update": [[0.5, 0.5], [0.0, 0.0]],
    "merged": [[2.0, 3.0], [3.0, 4.0]],
    "base_output": [4.0, 6.0],
    "inner": [1.0],
    "added": [1.0, 1.0],
    "unmerged_output": [5.0, 7.0],
    "merged_output": [5.0, 7.0],
}
COUNT: dict[str, Any] = {
    "rows": 4096,
    "columns": 4096,
    "rank": 8,
    "parameters": 65_536,
    "of": 16_777_216,
    "share": 0.00390625,
    "words": "8 x (4,096 + 4,096) = 65,536 of 16,777,216: 0.4%",
}


def scale_answer(factor: float = 1.0, row: str = "adapter") -> dict[str, Any]:
    """A row read at a factor: its tokens become likelier with the update, or less likely if they are the base's."""
    words = OTHER if row == "adapter" else WORDS
    tokens = []
    for index, text in enumerate(words):
        rise = 1 / (1 + math.exp(-6 * (factor - 0.5 - 0.02 * index)))
        p = rise if row == "adapter" else 1 - rise
        best = text if p > 0.5 else " other"
        top = [{"token_id": token_id(best), "text": best, "p": max(p, 1 - p)}]
        tokens.append({"index": index, "token_id": token_id(text), "text": text, "p": p, "top": top})
    return {"factor": factor, "row": row, "tokens": tokens, "left_out": 0, "ms": 140.0}


ANSWERS: dict[str, Any] = {"worked_example": EXAMPLE, "count": COUNT, "scale": scale_answer()}
