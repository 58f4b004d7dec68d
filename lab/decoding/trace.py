"""What a decoding run records, and how much of it at most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lab.errors import BadInput

Level = Literal["off", "light", "full"]

MAX_TRACE_BYTES = 64 * 2**20
"""Default cap on the attention weights that one run hands out: 64 MiB."""


@dataclass(frozen=True)
class Trace:
    """What to record.

    Attributes:
        level: "off": token ids and times; "light": also log-probabilities, the top candidates, the gap and
            the stored lengths; "full": also the attention weights of `layers` for the newest position.
        layers: layers whose attention is recorded, 0 is the first; used by "full" only.
        top: how many of the most probable tokens to name.
        max_bytes: once the attention weights handed out would pass this many bytes, later steps have none.
    """

    level: Level = "light"
    layers: tuple[int, ...] = ()
    top: int = 8
    max_bytes: int = MAX_TRACE_BYTES

    def __post_init__(self) -> None:
        if self.level not in ("off", "light", "full"):
            raise BadInput(f"trace level {self.level!r} is unknown.", remedy="Use off, light or full.")
        if self.top < 1:
            raise BadInput(f"top is {self.top}.", remedy="Name at least one candidate.")
        if self.max_bytes < 0:
            raise BadInput(f"max_bytes is {self.max_bytes}.", remedy="Give a number of bytes, 0 or more.")

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """The layers whose attention is recorded: none unless the level is "full"."""
        return self.layers if self.level == "full" else ()

    def check_layers(self, layers: int) -> None:
        """Refuse layers that a model of `layers` layers does not have.

        Raises:
            BadInput: naming the layer and the limit.
        """
        for layer in self.layers:
            if not 0 <= layer < layers:
                raise BadInput(
                    f"Layer {layer} does not exist: this model has {layers} layers.",
                    remedy=f"Name layers from 0 to {layers - 1}.",
                )
