"""The lesson of the `speculative` page. Its figures come from the code that runs: the question `worked_example`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.strings import Strings
from widgets.lesson_form import LessonForm, Part

BY_HAND = ("p", "q", "acceptance", "kept", "replaced")
"""Columns of the worked example."""
NEEDED = ("residual", "total_acceptance")
REFERENCES = (
    "Leviathan et al. 2023, Fast Inference from Transformers via Speculative Decoding",
    "Chen et al. 2023, Accelerating Large Language Model Decoding with Speculative Sampling",
    "Miao et al. 2024, SpecInfer",
    "Li et al. 2024, EAGLE",
    "He et al. 2024, REST",
    "Saxena 2023, Prompt Lookup Decoding",
    "Elhoushi et al. 2024, LayerSkip",
    "Cai et al. 2024, Medusa",
)


def sections(words: Strings, example: Mapping[str, Any] | None) -> list[Part]:
    """The lesson's sections as the lesson widget shows them.

    Args:
        example: the answer to `worked_example`; without it the section says that its figures are still to come.
    """
    form = LessonForm(words, "speculative")
    return [
        form.idea(),
        form.formula(form.all("math")),
        _worked(form, example),
        form.predict(["1.5", "1.875", "2.5"], 1),
        form.more("exact", ["min(p, q) + max(0, p − q) = p"]),
        form.more("pays", form.all("pays.math")),
        form.tries("lookup", "drafts", "no_residual"),
        form.not_this(),
        form.references(*REFERENCES),
    ]


def _worked(form: LessonForm, example: Mapping[str, Any] | None) -> Part:
    if not example or not example.keys() >= {*BY_HAND, *NEEDED}:
        return form.worked((), None)
    names = "ABCDEFGH"
    rows = [[names[i % 8], *(_number(example[key][i]) for key in BY_HAND)] for i in range(len(example["p"]))]
    residual = ", ".join(_number(value) for value in example["residual"])
    told = form.say("worked", total=_number(float(example["total_acceptance"])), residual=residual)
    return form.worked([told], {"head": ["", *form.all("head")], "rows": rows})


def _number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") if value else "0"
