"""The first lines of a page: what the task does, on which texts, and the mistake of a run broken on purpose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from widgets.numbers import capital
from widgets.run_state import TaskState

BROKEN = "Broken on purpose: {}. The proof at the foot of the page should catch it."


def intro(state: TaskState, intros: Mapping[str, str], mistakes: Mapping[Any, str]) -> list[str]:
    """Those lines.

    Args:
        intros: what each task does.
        mistakes: words for the values of `break_run`.
    """
    said = [intros[state.task]]
    texts = state.texts.texts if state.texts else ()
    if texts:
        parts = [f"{t.role} text: {t.tokens:,} tokens of {t.name} ({t.hash})" for t in texts]
        said.append(f"{capital('; '.join(parts))}.")
    mistake = state.param("break_run", "nothing")
    if mistake in mistakes and mistake != "nothing":
        said.append(BROKEN.format(mistakes[mistake]))
    return said
