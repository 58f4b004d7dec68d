"""The suggested path: in which order, for how long, and what to do on each page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Station:
    """One stop of the path.

    Attributes:
        experiment: names the page and the module that asks the question (`widgets/NAME/predict.py`).
        minutes: a suggestion.
        task: what to do there.
    """

    experiment: str
    minutes: int
    task: str


PATH = (
    Station(
        "kv_cache",
        10,
        "Run it and point at tokens: what did each one read? Then break it, and see what the proof says.",
    ),
    Station("beam_search", 10, "Step back to the token where greedy and the best text part. Then take 1 beam, then 8."),
    Station("speculative", 10, "Change the draft and how many tokens it proposes, until it pays on this machine."),
    Station("quantization", 10, "Move the bits from 8 to 2 and watch the errors. Then compare the model’s words."),
    Station("pruning", 10, "Compare the masks of two methods. Then take 2:4, and see what zeros save."),
    Station("lora", 10, "Switch the adapter on and off. Then train one of your own, and merge it."),
)
