"""The suggested path: in which order and for how long. What to do on each page is `NAME.task` in the catalogue."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Station:
    """One stop of the path.

    Attributes:
        experiment: names the page and the module that asks the question (`widgets/NAME/predict.py`).
        minutes: a suggestion.
    """

    experiment: str
    minutes: int


PATH = (
    Station("kv_cache", 10),
    Station("beam_search", 10),
    Station("speculative", 10),
    Station("quantization", 10),
    Station("pruning", 10),
    Station("lora", 10),
)
