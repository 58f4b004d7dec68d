"""The lesson of the `lora` page. Its figures come from the code that runs: the question `worked_example`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.strings import Strings
from widgets.lesson_form import LessonForm, Part
from widgets.lora.example_section import WEIGHT, A, B, X, checked, n, row

REFERENCES = (
    "Hu et al. 2021, LoRA: Low-Rank Adaptation of Large Language Models",
    "Kalajdzievski 2023, A Rank Stabilization Scaling Factor for Fine-Tuning with LoRA (rsLoRA)",
    "Dettmers et al. 2023, QLoRA: Efficient Finetuning of Quantized LLMs",
)


def sections(words: Strings, example: Mapping[str, Any] | None) -> list[Part]:
    """The lesson's sections as the lesson widget shows them.

    Args:
        example: the answer to `worked_example`; without it the section says that its figures are still to come.
    """
    form = LessonForm(words, "lora")
    return [
        form.idea(),
        form.formula(form.all("math")),
        _worked(form, example or {}),
        form.predict(form.all("choices"), 2),
        form.more("beside"),
        form.tries("file", "facts", "merge"),
        form.not_this(),
        form.references(*REFERENCES),
    ]


def _worked(form: LessonForm, example: Mapping[str, Any]) -> Part:
    try:
        found = checked(dict(example))
        scale = f"{float(found['scale']):g}"
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        return form.worked((), None)
    rows = [
        ["x", row(X)],
        ["W", " ".join(row(r) for r in WEIGHT)],
        ["A, B", f"{row([r[0] for r in A])}ᵀ, {row(B[0])}"],
        ["x W", row(found["base_output"])],
        ["x A", n(found["inner"][0])],
        [f"{scale} (x A) B", row(found["added"])],
        ["y", row(found["unmerged_output"])],
        ["W′", " ".join(row(r) for r in found["merged"])],
        ["x W′", row(found["merged_output"])],
    ]
    told = form.say("worked", scale=scale, output=row(found["merged_output"]))
    return form.worked([told], {"head": ["", ""], "rows": rows})
