"""What the two models of a page are called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lab.events.words import Variant


@dataclass(frozen=True)
class Naming:
    """Names for a person, in the middle of a sentence.

    Attributes:
        base: the variant that the others are compared with, by its name in the events: "dense", "base".
        changed: what the others are: "quantized", "pruned", "adapted".
        truths: by `Variant.truth`, a sentence on what really runs; that of the base needs none.
    """

    base: str
    changed: str
    truths: Mapping[str, str] = field(default_factory=dict)

    @property
    def kl(self) -> str:
        """The divergence: "KL(dense ‖ quantized)"."""
        return f"KL({self.base} ‖ {self.changed})"

    def truth(self, variant: Variant | None) -> str:
        """The variant and what really runs of it; "" for the base."""
        if variant is None or variant.truth == self.base:
            return ""
        return f"{variant.label}. {self.truths.get(variant.truth, '')}".rstrip()
