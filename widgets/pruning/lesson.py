"""The lesson of the `pruning` page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.events import ModelFacts
from widgets.pruning.example_section import checked

Part = dict[str, Any]


def sections(facts: ModelFacts | None, example: Mapping[str, Any] | None) -> list[Part]:
    """The lesson's sections as the lesson widget shows them.

    Args:
        example: the answer to `worked_example`; without it the section that needs its figures is left out.
    """
    worked = _by_hand(example) if example else []
    return [_idea(facts), _scores(), *worked, _predict(), _savings(), _try(), _not(), _references()]


def _idea(facts: ModelFacts | None) -> Part:
    count = f" of {facts.parameters / 1e6:.0f} million" if facts and facts.parameters else ""
    return {
        "title": "The idea",
        "paragraphs": [
            f"Not all{count} weights matter alike: many can be set to zero, and the model still speaks. Magnitude "
            "removes the smallest. A small weight that meets large inputs can matter more than a large one that meets "
            "small ones, so Wanda multiplies both. SparseGPT also moves the weights that stay, to make up for those "
            "that go. A zero saves nothing by itself: only a form that leaves zeros out saves bytes, and only a kernel "
            "that skips them saves time.",
        ],
    }


def _scores() -> Part:
    return {
        "title": "What goes first",
        "paragraphs": ["The least score goes. X: inputs of the layer; H = X Xᵀ + damping; U: Cholesky factor of H⁻¹."],
        "math": [
            "magnitude: |w|",
            "Wanda: |w| · ‖X‖₂ of its input",
            "SparseGPT: w² / [U]²",
            "N:M: the N best of each M",
        ],
    }


def _by_hand(example: Mapping[str, Any]) -> list[Part]:
    try:
        found = checked(dict(example))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        return []
    rows = [
        [f"{w:g}", f"{found['magnitudes'][r][c]:g}", f"{found['ranks'][r][c]}", f"{found['became'][r][c]:g}"]
        for r, row in enumerate(found["weights"])
        for c, w in enumerate(row)
    ]
    words = f"{found['pruned']} of {len(rows)} go: all up to |w| = {found['threshold']:g}."
    table = {"head": ["w", "|w|", "place", "w′"], "rows": [[cell.replace("-", "−") for cell in row] for row in rows]}
    return [{"title": "By hand", "paragraphs": [words], "table": table}]


def _predict() -> Part:
    return {
        "title": "Predict first",
        "question": {
            "text": "Half of all weights are zero, in place. How much faster is a decode step?",
            "choices": ["Twice", "A quarter", "Not at all"],
            "answer": 2,
            "reply": "A dense kernel reads zeros like other numbers. Remove whole rows, and the matrices are smaller: "
            "the task “what it saves” measures both.",
        },
    }


def _savings() -> Part:
    return {
        "title": "Bytes",
        "paragraphs": [
            "b: bytes of a value, s: sparsity, of n weights in rows of d. With 4 bytes a bitmap pays from 3.1 % on, "
            "CSR with 2-byte columns from a third.",
        ],
        "math": ["dense: n · b", "bitmap: n / 8 + (1 − s) · n · b", "CSR: (1 − s) · n · (b + 2) + 4 · (n / d + 1)"],
    }


def _try() -> Part:
    return {
        "title": "Try",
        "paragraphs": [
            "Zoom in on two masks: Wanda keeps whole columns that magnitude drops. Why columns?",
            "Drag the sparsity to 90 % and watch the strip beside the matrix.",
            "Choose 2:4, then check along the outputs: why does it fail?",
            "Set loss against sparsity: where does magnitude break, where Wanda?",
            "Break it: let a pruned weight come back, and see the proof catch it.",
        ],
    }


def _not() -> Part:
    return {
        "title": "This is not",
        "paragraphs": [
            "saved memory, where a figure says SIMULATED: zeros stand in dense tensors.",
            "a benchmark of a method: a small model and little text. The order of methods tells more than the digits.",
            "distillation, or pruning while training: the recovery here takes a minute, papers take days.",
        ],
    }


def _references() -> Part:
    return {
        "title": "References",
        "paragraphs": [
            "Han et al. 2015, Learning both Weights and Connections; Frantar and Alistarh 2023, SparseGPT; Sun et al. "
            "2024, A Simple and Effective Pruning Approach for LLMs (Wanda); Ma et al. 2023, LLM-Pruner (whole heads "
            "and channels); Mishra et al. 2021, Accelerating Sparse Deep Neural Networks (2:4).",
        ],
    }
