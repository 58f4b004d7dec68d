"""The lesson of the `beam_search` page. Its figures come from the code that runs: the question `worked_example`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.strings import Strings
from widgets.beam_search.state import BeamState
from widgets.lesson_form import LessonForm, Part

REFERENCES = (
    "Sutskever et al. 2014, Sequence to Sequence Learning",
    "Wu et al. 2016, GNMT (length penalty)",
    "Holtzman et al. 2020, The Curious Case of Neural Text Degeneration",
    "Stahlberg, Byrne 2019, On NMT Search Errors",
)


def sections(words: Strings, state: BeamState, example: Mapping[str, Any] | None) -> list[Part]:
    """The lesson's sections as the lesson widget shows them.

    Args:
        example: the answer to `worked_example`; without it the section says that its figures are still to come.
    """
    form = LessonForm(words, "beam_search")
    width = state.num_beams
    candidates = len(state.steps[0].nodes) if state.steps else 2 * width
    return [
        form.idea(),
        form.formula(form.all("math"), candidates=candidates, width=width),
        _worked(form, example),
        form.predict(form.all("choices"), 0),
        form.tries("beats_greedy", "duller", "length"),
        form.not_this(),
        form.references(*REFERENCES),
    ]


def _worked(form: LessonForm, example: Mapping[str, Any] | None) -> Part:
    """The two-step example, from the steps that the same search took on its table."""
    if not example:
        return form.worked((), None)
    greedy, beam = example["greedy"], example["beam"]
    names: dict[int, str] = {-1: ""}
    rows = []
    for i, step in enumerate(beam["steps"], start=1):
        for node in step:
            names[node["id"]] = f"{names.get(node['parent'], '')} {node['text']}".strip()
            fate = form.say(node["fate"] if node["fate"] in ("kept", "finished") else "lost")
            rows.append([str(i), names[node["id"]], f"{node['probability']:.2f}", fate])
    following = {" ".join(row["after"]): _listed(row["next"]) for row in example["table"]}
    told = form.all(
        "worked",
        first=following.pop(""),
        after=" ".join(form.say("after", text=text, next=listed) for text, listed in following.items()),
        greedy=_joined(greedy),
        greedy_p=f"{greedy['probability']:.2f}",
        width=beam["width"],
        beam=_joined(beam),
        beam_p=f"{beam['probability']:.2f}",
    )
    return form.worked(told, {"head": form.all("head"), "rows": rows})


def _listed(probabilities: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {p:g}" for name, p in probabilities.items())


def _joined(search: Mapping[str, Any]) -> str:
    return "`" + " ".join(search["winner"]) + "`"
