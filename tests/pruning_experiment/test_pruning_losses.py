"""What a timed variant lost is what the curve measures of the same setting."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from test_pruning_run import events_of, of

from lab.events.pruning import CurvePoint, TimedFigures, VariantLoss

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]


def test_each_variant_that_was_timed_says_what_it_lost(tiny: Tiny) -> None:
    loaded = tiny("llama")
    savings = events_of(loaded, task="savings", sparsity=0.3)
    lost = {event.variant: event for event in of(savings, VariantLoss)}
    timed = {event.variant for event in of(savings, TimedFigures) if event.steps}
    assert set(lost) == timed - {"dense"} == {"zeros", "rows"}
    point = next(p for p in of(events_of(loaded, task="curve", sparsity=0.3), CurvePoint) if p.chosen)
    assert lost["zeros"].setting == point.setting
    assert lost["zeros"].divergence == point.divergence
    assert lost["rows"].divergence.kl != pytest.approx(point.divergence.kl)  # the mutation: another model
    assert lost["rows"].setting.method == "rows"
