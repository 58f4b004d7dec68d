"""Which words change? The dense model and the pruned one."""

from __future__ import annotations

from widgets.pruning.state import NAMING, PruningState
from widgets.words import section as words


class WordsSection(words.WordsSection[PruningState]):
    """The shared section."""

    naming = NAMING
