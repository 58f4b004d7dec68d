"""The lesson beside the picture: the idea, the grid, the worked example, what each method adds, what this is not.

Its figures come from the code that runs: the answer to the question `worked_example`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.events import ModelFacts
from widgets.format import format_bytes
from widgets.numbers import number, signed

Part = dict[str, Any]


def sections(facts: ModelFacts | None, example: Mapping[str, Any] | None) -> list[Part]:
    """The lesson's sections as the lesson widget shows them.

    Args:
        example: the answer to `worked_example`; without it the section that needs its figures is left out.
    """
    worked = _by_hand(example) if example else []
    return [_idea(facts), _grid(), *worked, _predict(), _bits(), _errors(), _methods(), _own(facts), _try(), _not(),
            _references()]  # fmt: skip


def _idea(facts: ModelFacts | None) -> Part:
    weights = f" ({format_bytes(facts.weight_bytes)} here)" if facts and facts.weight_bytes else ""
    return {
        "title": "The idea",
        "paragraphs": [
            f"A model is mostly weights{weights}, and to write a token it reads all of them. Written with 4 bits, not "
            "32, they take an eighth of the room.",
            "A code of 4 bits has 16 values. A few neighbours, a group, share a scale that says how far apart these "
            "lie. What falls between two of them is rounded: that is the error.",
        ],
    }


def _grid() -> Part:
    return {
        "title": "From a weight to a code and back",
        "paragraphs": [
            "Q is the largest code: 7 at 4 bits. Rounding moves a weight by at most half a step, unless it was "
            "clipped. An asymmetric grid also stores where it begins, and wastes no level on a side without weights.",
        ],
        "math": ["s = max |w| / Q", "q = round(w / s)", "w′ = s · q", "|w′ − w| ≤ s / 2"],
    }


def _by_hand(example: Mapping[str, Any]) -> list[Part]:
    try:
        group = example["four"][0]
        rows = [
            [f"{w:g}", number(r), str(q), number(b), signed(b - w, 2)]
            for w, r, q, b in zip(group["weights"], group["ratios"], group["codes"], group["became"], strict=True)
        ]
        scale = number(group["scale"])
    except (KeyError, IndexError, TypeError, ValueError):
        return []
    rows = [[cell.replace("-", "−") for cell in row] for row in rows]
    return [
        {
            "title": "By hand",
            "paragraphs": [
                f"Four weights at {group['bits']} bits: s = 1.2 / 7 = {scale}. The largest comes back but for the "
                "rounding of s to 2 bytes: hence the peak in the middle of the histograms."
            ],
            "table": {"head": ["w", "w / s", "q", "w′", "error"], "rows": rows},
        }
    ]


def _predict() -> Part:
    return {
        "title": "Predict first",
        "question": {
            "text": "In a group of eight weights one is 10, the others are at most 0.3. At 4 bits, what becomes of the "
            "others?",
            "choices": ["They keep half their value", "All become 0", "They are clipped"],
            "answer": 1,
            "reply": "s = 10 / 7 = 1.43, and 0.3 is nearer to 0 than to 1.43. One outlier takes the levels of its "
            "whole group, so a smaller group keeps the harm to fewer weights.",
        },
    }


def _bits() -> Part:
    return {
        "title": "Bits a weight",
        "paragraphs": [
            "A scale of 2 bytes for every 64 weights is a quarter of a bit each: 4 bits cost 4.25. With groups of 16 "
            "they cost 5, and with a minimum as well 6. Compare settings at what they cost, not by their names.",
        ],
        "math": ["b + (bits of scale and zero point) / group size"],
    }


def _errors() -> Part:
    return {
        "title": "Three errors, three questions",
        "paragraphs": [
            "The weight error asks how far weights moved. The output error weighs each by the inputs that meet it. "
            "KL(dense ‖ quantized) asks what becomes of the next token, after all layers. Each can rank two settings "
            "differently; the last is what a reader notices.",
            "KL is in nats. A flip: another token is the most probable.",
        ],
        "math": ["|W′ − W| / |W|", "|X (W′ − W)ᵀ| / |X Wᵀ|", "Σ p log(p / q)"],
    }


def _methods() -> Part:
    return {
        "title": "Beyond rounding",
        "paragraphs": [
            "GPTQ rounds one column after another and moves the later ones to make up for it.",
            "AWQ scales up the channels that meet large inputs before rounding, and divides the inputs by as much.",
            "NF4 places its 16 levels where weights of a bell curve are many.",
            "LLM.int8() keeps the few input channels with outliers in floating point.",
        ],
    }


def _own(facts: ModelFacts | None) -> Part:
    grid = facts.grid if facts and facts.grid else ""
    said = (
        f"The weights of {facts.name if facts else 'this model'} were stored as {grid} before: 4 bits with a float "
        "minimum in groups of 32 give no error at all. That is true, and says nothing of other models. Every 4-bit "
        "picture here says it. A model that was trained or fetched in full precision has no such grid: where one is "
        "present, choose it on the left and look again."
        if grid
        else "A model that was stored in few bits before lies on that grid: quantized the same way again, nothing "
        f"changes. The page says where that is so{'; it is not so here' if facts else ''}."
    )
    return {"title": "A grid of its own", "paragraphs": [said]}


def _try() -> Part:
    return {
        "title": "Try",
        "paragraphs": [
            "Drag the bits from 8 to 2: each bit less about doubles the step (6 dB); from 3 to 2 bits it triples.",
            "Click a dot: which weight of the group set the scale?",
            "Layer 0 has a few very large weights; look at layer 14.",
            "Break it: take the scale of the next group, and see the proof catch it.",
        ],
    }


def _not() -> Part:
    return {
        "title": "This is not",
        "paragraphs": [
            "saved memory, where a figure says SIMULATED: the rounded weights run as floats. Only the task with packed "
            "kernels holds codes in memory.",
            "a benchmark of a method: a small model and little text. The order of settings tells more than the digits.",
        ],
    }


def _references() -> Part:
    return {
        "title": "References",
        "paragraphs": [
            "Jacob et al. 2018, Quantization and Training of Neural Networks for Integer-Arithmetic-Only Inference; "
            "Dettmers et al. 2022, LLM.int8(); Frantar et al. 2023, GPTQ; Lin et al. 2024, AWQ; Dettmers et al. 2023, "
            "QLoRA (NF4); Xiao et al. 2023, SmoothQuant; Micikevicius et al. 2022, FP8 Formats for Deep Learning; Liu "
            "et al. 2024, KIVI.",
        ],
    }
