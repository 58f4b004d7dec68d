"""Colours that all sections of the `quantization` page share."""

from __future__ import annotations

from widgets.bar_table import Series

WEIGHT: Series = 1
OUTPUT: Series = 2
MODEL: Series = 3
"""Series of the three errors: of weights, of a layer's outputs, of the whole model. The same colours everywhere."""
CHOSEN = "--lab-series-1"
BESIDE = "--lab-series-4"
"""Colours of the run's own setting, and of those that stand beside it to compare."""
