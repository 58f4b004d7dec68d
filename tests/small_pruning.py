"""Parameters of a pruning run that a tiny model ends in a moment."""

from __future__ import annotations

from typing import Any

SMALL: dict[str, Any] = {
    "calibration_tokens": 96,
    "heldout_tokens": 32,
    "max_new_tokens": 4,
    "steps": 3,
    "batch_tokens": 32,
    "learning_rate": 1e-3,
}
