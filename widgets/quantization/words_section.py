"""Which words change? The dense model and a quantized one; below, the bytes of a quantized cache."""

from __future__ import annotations

from collections.abc import Sequence

import ipywidgets as ipw

from widgets.experiment import Desk, Table
from widgets.quantization.cache_part import CachePart
from widgets.quantization.state import NAMING, QuantizationState
from widgets.words import section as words


class WordsSection(words.WordsSection[QuantizationState]):
    """The shared section with the quantized cache, where the row on screen has one."""

    naming = NAMING

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._cache = CachePart()

    def more(self, state: QuantizationState, name: str) -> Sequence[ipw.Widget]:
        if name not in state.caches:
            return ()
        self._cache.render(state.caches[name])
        return (self._cache.widget,)

    def more_tables(self, state: QuantizationState) -> Sequence[Table]:
        return (self._cache.table(state),)
