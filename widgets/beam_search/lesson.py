"""The lesson beside the picture: the idea, the formula, the worked example, what this is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.events import ModelFacts
from widgets.beam_search.state import BeamState

Section = dict[str, Any]


def sections(facts: ModelFacts | None, state: BeamState, example: Mapping[str, Any] | None) -> list[Section]:
    """The lesson's sections as the lesson widget shows them.

    Args:
        example: the answer to `worked_example`; without it its section is left out.
    """
    del facts
    worked = _worked(example) if example else []
    return [_idea(), _formula(state), *worked, _predict(), _try(), _not(), _references()]


def _idea() -> Section:
    return {
        "title": "The idea",
        "paragraphs": [
            "Greedy decoding takes the likeliest token at each step, but the likeliest text may begin with a less "
            "likely token. Beam search keeps the best few partial texts instead of one. Each step extends all of them "
            "by every token, ranks the results by summed log-probability and keeps the best again. A text that "
            "reaches an end token goes to the shelf. The best score on the shelf wins."
        ],
    }


def _formula(state: BeamState) -> Section:
    width = state.num_beams
    candidates = len(state.steps[0].nodes) if state.steps else 2 * width
    return {
        "title": "The score",
        "paragraphs": [
            f"Running texts compare their sums S. Of {candidates} candidates a step, the best {width} that have not "
            "ended go on. A finished text of n new tokens, its end token included, scores"
        ],
        "math": ["S = Σ log p(token | before)", "score = S / n^length_penalty"],
    }


def _worked(example: Mapping[str, Any]) -> list[Section]:
    """The two-step example, from the steps that the same search took on its table."""
    greedy, beam = example["greedy"], example["beam"]
    names: dict[int, str] = {-1: ""}
    rows = []
    for i, step in enumerate(beam["steps"], start=1):
        for node in step:
            names[node["id"]] = f"{names.get(node['parent'], '')} {node['text']}".strip()
            fate = {"kept": "kept", "finished": "finished"}.get(node["fate"], "lost")
            rows.append([str(i), names[node["id"]], f"{node['probability']:.2f}", fate])
    table = "; ".join(
        (f"after {' '.join(row['after'])}: " if row["after"] else "first: ")
        + ", ".join(f"{name} {p:g}" for name, p in row["next"].items())
        for row in example["table"]
    )
    return [
        {
            "title": "By hand",
            "paragraphs": [
                f"Two steps. {table[:1].upper()}{table[1:]}.",
                f"Greedy takes {_joined(greedy)}: {greedy['probability']:.2f}. {beam['width']} beams keep B as well "
                f"and find {_joined(beam)}: {beam['probability']:.2f}. Greedy threw B away at the first step.",
            ],
            "table": {"head": ["step", "text", "p", "fate"], "rows": rows},
        }
    ]


def _joined(search: Mapping[str, Any]) -> str:
    return "`" + " ".join(search["winner"]) + "`"


def _predict() -> Section:
    return {
        "title": "Predict first",
        "question": {
            "text": "Twice the beams: can the best text get a worse sum?",
            "choices": ["yes", "no"],
            "answer": 0,
            "reply": "Yes. A wider beam keeps more partial texts, and one of them may push out the start of what "
            "would have won. Beam search promises no best text.",
        },
    }


def _try() -> Section:
    return {
        "title": "Try",
        "paragraphs": [
            "Point at a grey token: its rank says why it lost. Click one to follow its path.",
            "Set the length penalty to −1, then to 2: other texts win from the same tree.",
            "Break it: leave the cache's rows as they were. Each beam then reads another beam's past.",
        ],
    }


def _not() -> Section:
    return {
        "title": "This is not",
        "paragraphs": [
            "a way to better stories. High probability reads bland and repeats; chat models sample. Beams help where "
            "one output is right: translation, transcription."
        ],
    }


def _references() -> Section:
    return {
        "title": "References",
        "paragraphs": [
            "Sutskever et al. 2014, Sequence to Sequence Learning; Wu et al. 2016, GNMT (length penalty); Holtzman et "
            "al. 2020, The Curious Case of Neural Text Degeneration; Stahlberg and Byrne 2019, On NMT Search Errors."
        ],
    }
