"""What runs with a training have in common: losses by optimizer step."""

from __future__ import annotations

from collections.abc import Sequence

from widgets.comparison.told import Line
from widgets.loss_plot import LossStep

STEP, NATS = "optimizer step", "loss, nats a token"


def loss_lines(steps: Sequence[LossStep], basis: str) -> list[Line]:
    """The loss on held-out text and that of each batch.

    Args:
        basis: the held-out text, in words.
    """
    held = tuple((s.step, s.heldout_loss) for s in steps if s.heldout_loss is not None)
    return [
        Line("heldout_loss", "Loss on held-out text", STEP, NATS, held, basis=basis),
        Line("batch_loss", "Loss of a batch", STEP, NATS, tuple((s.step, s.loss) for s in steps)),
    ]
