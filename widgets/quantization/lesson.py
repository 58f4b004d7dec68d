"""The lesson of the `quantization` page. Its figures come from the code that runs: the question `worked_example`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.events import ModelFacts
from lab.strings import Strings
from widgets.lesson_form import LessonForm, Part
from widgets.numbers import number, signed

REFERENCES = (
    "Jacob et al. 2018, Quantization and Training of Neural Networks for Integer-Arithmetic-Only Inference",
    "Dettmers et al. 2022, LLM.int8()",
    "Frantar et al. 2023, GPTQ",
    "Lin et al. 2024, AWQ",
    "Dettmers et al. 2023, QLoRA (NF4)",
    "Xiao et al. 2023, SmoothQuant",
    "Micikevicius et al. 2022, FP8 Formats for Deep Learning",
    "Liu et al. 2024, KIVI",
)


def sections(words: Strings, facts: ModelFacts | None, example: Mapping[str, Any] | None) -> list[Part]:
    """The lesson's sections as the lesson widget shows them.

    Args:
        example: the answer to `worked_example`; without it the section says that its figures are still to come.
    """
    form = LessonForm(words, "quantization")
    return [
        form.idea(),
        form.formula(form.all("math")),
        _worked(form, example or {}),
        form.predict(form.all("choices"), 1),
        form.more("errors", form.all("errors.math")),
        form.more("methods"),
        _own(form, facts),
        form.tries("smaller_group", "no_error", "words"),
        form.not_this(),
        form.references(*REFERENCES),
    ]


def _worked(form: LessonForm, example: Mapping[str, Any]) -> Part:
    try:
        group = example["four"][0]
        rows = [
            [f"{w:g}", number(r), str(q), number(b), signed(b - w, 2)]
            for w, r, q, b in zip(group["weights"], group["ratios"], group["codes"], group["became"], strict=True)
        ]
        told = form.say("worked", bits=group["bits"], scale=number(group["scale"]))
    except (KeyError, IndexError, TypeError, ValueError):
        return form.worked((), None)
    rows = [[cell.replace("-", "−") for cell in row] for row in rows]
    return form.worked([told], {"head": form.all("head"), "rows": rows})


def _own(form: LessonForm, facts: ModelFacts | None) -> Part:
    """What it means that a model was stored in few bits before."""
    grid = facts.grid if facts else None
    said = form.say("grid_here", model=facts.name, grid=grid) if facts and grid else form.say("grid_absent")
    return {"title": form.say("grid"), "paragraphs": [said]}
