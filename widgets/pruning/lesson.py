"""The lesson of the `pruning` page. Its figures come from the code that runs: the question `worked_example`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.strings import Strings
from widgets.lesson_form import LessonForm, Part
from widgets.pruning.example_section import checked

REFERENCES = (
    "Han et al. 2015, Learning both Weights and Connections",
    "Frantar, Alistarh 2023, SparseGPT",
    "Sun et al. 2024, A Simple and Effective Pruning Approach for LLMs (Wanda)",
    "Ma et al. 2023, LLM-Pruner (whole heads and channels)",
    "Mishra et al. 2021, Accelerating Sparse Deep Neural Networks (2:4)",
)


def sections(words: Strings, example: Mapping[str, Any] | None) -> list[Part]:
    """The lesson's sections as the lesson widget shows them.

    Args:
        example: the answer to `worked_example`; without it the section says that its figures are still to come.
    """
    form = LessonForm(words, "pruning")
    return [
        form.idea(),
        form.formula(form.all("math")),
        _worked(form, example or {}),
        form.predict(form.all("choices"), 2),
        form.more("bytes", form.all("bytes.math")),
        form.tries("kept", "curve", "savings"),
        form.not_this(),
        form.references(*REFERENCES),
    ]


def _worked(form: LessonForm, example: Mapping[str, Any]) -> Part:
    try:
        found = checked(dict(example))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        return form.worked((), None)
    rows = [
        [f"{w:g}", f"{found['magnitudes'][r][c]:g}", f"{found['ranks'][r][c]}", f"{found['became'][r][c]:g}"]
        for r, row in enumerate(found["weights"])
        for c, w in enumerate(row)
    ]
    told = form.say("worked", pruned=found["pruned"], count=len(rows), threshold=f"{found['threshold']:g}")
    rows = [[cell.replace("-", "−") for cell in row] for row in rows]
    return form.worked([told], {"head": form.all("head"), "rows": rows})
