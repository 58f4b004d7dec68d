"""The lesson beside the picture: the idea, the rule, the worked example, when it pays, what this is not.

Its figures come from the code that runs: the answer to the question `worked_example`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.events import ModelFacts
from widgets.format import format_bytes

Section = dict[str, Any]
BY_HAND = ("p", "q", "acceptance", "kept", "replaced")
"""Columns of the worked example."""
NEEDED = ("residual", "total_acceptance")


def sections(facts: ModelFacts | None, example: Mapping[str, Any] | None) -> list[Section]:
    """The lesson's sections as the lesson widget shows them.

    Args:
        example: the answer to `worked_example`; without it the section that needs its figures is left out.
    """
    worked = [_by_hand(example)] if example and example.keys() >= {*BY_HAND, *NEEDED} else []
    return [_idea(facts), _round(), _why(), *worked, _exact(), _predict(), _pays(), _try(), _not(), _references()]


def _idea(facts: ModelFacts | None) -> Section:
    weights = f" ({format_bytes(facts.weight_bytes)} here)" if facts and facts.weight_bytes else ""
    return {
        "title": "The idea",
        "paragraphs": [
            f"For each token it writes, the model reads all its weights{weights}. To check several given tokens it "
            "reads them once.",
            "So a cheap draft guesses the next few tokens, and the model, the target, checks all of them in one "
            "pass. The rule of acceptance leaves the text with the target's own probabilities: a bad draft makes "
            "it slower, never different.",
        ],
    }


def _round() -> Section:
    return {
        "title": "One round",
        "paragraphs": [
            "The draft proposes γ tokens from its distribution q. One pass of the target gives its own, p, at each "
            "place. From left to right a token stands if a draw u between 0 and 1 is below p / q. At the first "
            "rejection the rest is thrown away and a replacement drawn from what p has more than q. If all stand, "
            "the same pass gives one more for nothing: the bonus.",
        ],
        "math": ["accept with min(1, p / q)", "else draw from max(0, p − q) / Σ max(0, p − q)"],
    }


def _why() -> Section:
    return {
        "title": "Why a token is rejected",
        "paragraphs": [
            "Because the draft proposes it more often than the target would write it. With 0.5 against 0.2, "
            "accepting it 0.2 / 0.5 = 0.4 of the time puts it there as often as the target wants; whether it is "
            "this time is a toss. What the target likes at least as much as the draft does is never rejected. "
            "Greedy there is no toss: a token stands if it is the target's top token.",
        ],
    }


def _by_hand(example: Mapping[str, Any]) -> Section:
    names = "ABCDEFGH"
    rows = [[names[i % 8], *(_number(example[key][i]) for key in BY_HAND)] for i in range(len(example["p"]))]
    residual = ", ".join(_number(value) for value in example["residual"])
    total = float(example["total_acceptance"])
    return {
        "title": "By hand",
        "paragraphs": [
            f"Three tokens. {_number(total)} of all guesses are accepted: α. The others are always A, and the "
            f"replacement is drawn from the residual ({residual}): never A again. Kept and put in, added up, are p.",
        ],
        "table": {"head": ["", "p", "q", "accept", "kept", "put in"], "rows": rows},
    }


def _number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") if value else "0"


def _exact() -> Section:
    return {
        "title": "Why the result is exactly p",
        "paragraphs": [
            "Proposed and accepted: q · min(1, p / q) = min(p, q). What is missing from p is max(0, p − q), the "
            "shape of the residual, and it adds up to 1 − α, the probability of a rejection. So it fills exactly "
            "the gap, for any q.",
        ],
        "math": ["min(p, q) + max(0, p − q) = p"],
    }


def _predict() -> Section:
    return {
        "title": "Predict first",
        "question": {
            "text": "A draft proposes 3 tokens, each accepted with probability 0.5 if it is judged. How many new "
            "tokens does a pass of the target give on average?",
            "choices": ["1.5", "1.88", "2.5"],
            "answer": 1,
            "reply": "1 + 0.5 + 0.25 + 0.125 = 1.875: the target's own token always, and each guess only if all before "
            "it were accepted.",
        },
    }


def _pays() -> Section:
    return {
        "title": "When it pays",
        "paragraphs": [
            "c is the cost of one guess and v the cost of checking a round, both in plain steps of the target. "
            "Papers take v = 1; on a CPU it is more, and grows with γ.",
        ],
        "math": [
            "α = Σ min(p, q) = 1 − ½ Σ |p − q|",
            "tokens a pass = (1 − α^(γ+1)) / (1 − α)",
            "speed-up = tokens a pass / (γ c + v)",
        ],
    }


def _try() -> Section:
    return {
        "title": "Try",
        "paragraphs": [
            "Sweep γ from 1 to 16: later guesses are rarely reached, and each still costs c.",
            "Take the model's first layers as the draft, or the model in int8: one agrees seldom, the other costs "
            "half a step.",
            "Break it: draw from p, not the residual, and run the trial. The text reads well; only counting shows "
            "that it is wrong.",
        ],
    }


def _not() -> Section:
    return {
        "title": "This is not",
        "paragraphs": [
            "another text: same tokens when greedy (but for a near tie), same probabilities when sampling. The "
            "words of a seed differ, since other random numbers are used.",
            "less memory or arithmetic: it pays where reading the weights is the limit; on a server with large "
            "batches the gain shrinks or turns.",
        ],
    }


def _references() -> Section:
    return {
        "title": "References",
        "paragraphs": [
            "Leviathan et al. 2023, Fast Inference from Transformers via Speculative Decoding; Chen et al. 2023, "
            "Accelerating Large Language Model Decoding with Speculative Sampling; Miao et al. 2024, SpecInfer; Li "
            "et al. 2024, EAGLE; He et al. 2024, REST; Saxena 2023, Prompt Lookup Decoding; Elhoushi et al. 2024, "
            "LayerSkip; Cai et al. 2024, Medusa.",
        ],
    }
