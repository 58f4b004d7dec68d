"""The lesson of the `lora` page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.events import ModelFacts
from widgets.lora.example_section import WEIGHT, A, B, X, checked, n, row

Part = dict[str, Any]


def sections(facts: ModelFacts | None, example: Mapping[str, Any] | None) -> list[Part]:
    """The lesson's sections as the lesson widget shows them.

    Args:
        example: the answer to `worked_example`; without it the section that needs its figures is left out.
    """
    worked = _by_hand(example) if example else []
    return [_idea(facts), _formula(), *worked, _count(), _predict(), _merge(), _try(), _not(), _references()]


def _idea(facts: ModelFacts | None) -> Part:
    count = f" {facts.parameters / 1e6:.0f} million" if facts and facts.parameters else ""
    return {
        "title": "The idea",
        "paragraphs": [
            f"To teach a model something new, all of its{count} weights could be trained, and kept once for each "
            "task. LoRA leaves them as they are and learns a small change to some matrices instead. The change is the "
            "product of two thin matrices, so it has few numbers. It can stand beside the weights and be switched, "
            "scaled or taken away, or it can be added into them once and cost nothing more. B begins at zero, so "
            "training begins at exactly the base.",
        ],
    }


def _formula() -> Part:
    return {
        "title": "The formula",
        "paragraphs": ["x: inputs of the matrix, r: rank, f: the slider’s scale, 1 as trained."],
        "math": [
            "y = x W + f · s · (x A) B",
            "s = α / r",
            "rsLoRA: s = α / √r",
            "merged: W′ = W + f · s · A B",
        ],
    }


def _by_hand(example: Mapping[str, Any]) -> list[Part]:
    try:
        found = checked(dict(example))
        scale = f"{float(found['scale']):g}"
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        return []
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
    words = f"Rank 1, alpha 2: s = {scale}. Both ways end in {row(found['merged_output'])}."
    return [{"title": "By hand", "paragraphs": [words], "table": {"head": ["", ""], "rows": rows}}]


def _count() -> Part:
    return {
        "title": "Few numbers",
        "paragraphs": ["Of a matrix of 4096 × 4096 with rank 8, 0.4 % are trained:"],
        "math": ["r · (in + out)", "8 · 8,192 = 65,536", "of 16,777,216"],
    }


def _predict() -> Part:
    return {
        "title": "Predict first",
        "question": {
            "text": "An adapter is merged into 4-bit weights, and the result is rounded to 4 bits again. What is left "
            "of what it learnt?",
            "choices": ["All of it", "Most of it", "Perhaps nothing"],
            "answer": 2,
            "reply": "The update is smaller than one step of the codes: rounding adds an error as large as the update. "
            "The task “merge and lose bits” measures it. QLoRA therefore keeps the adapter beside the codes.",
        },
    }


def _merge() -> Part:
    return {
        "title": "Beside or inside",
        "paragraphs": [
            "Beside: many adapters share one base, switching is naming another; each token costs two thin products "
            "more. Inside: the model has its old form and speed, and one adapter. The way back needs a backup: "
            "subtracting what was rounded does not give the old bits.",
        ],
    }


def _try() -> Part:
    return {
        "title": "Try",
        "paragraphs": [
            "Train on the island, then ask about Paris: what else has changed?",
            "Drag the scale to 0, to 0.5, to 2: where does the new answer win, where does the text fall apart?",
            "Keep 1 of 8 singular values: how much is left?",
            "Swap two adapters: what does switching take beside loading a model?",
            "Break it: divide alpha by another rank, and see the proof catch it.",
        ],
    }


def _not() -> Part:
    return {
        "title": "This is not",
        "paragraphs": [
            "a way to know facts well: a few dozen lines are learnt by heart, and neighbours suffer.",
            "QLoRA: here the base is trained beside in its own number format, and quantized only afterwards.",
            "a benchmark of adapters: a small model, one task, one seed.",
        ],
    }


def _references() -> Part:
    return {
        "title": "References",
        "paragraphs": [
            "Hu et al. 2021, LoRA: Low-Rank Adaptation of Large Language Models; Kalajdzievski 2023, A Rank "
            "Stabilization Scaling Factor for Fine-Tuning with LoRA (rsLoRA); Dettmers et al. 2023, QLoRA: Efficient "
            "Finetuning of Quantized LLMs.",
        ],
    }
