"""The form that every lesson has; its words come from the catalogue of the page's language (`lab/strings`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.experiments.registry import get_experiment
from lab.strings import ENGLISH, Strings

Part = dict[str, Any]


class LessonForm:
    """Makes the sections of one lesson, as the lesson widget shows them: idea, formula, worked example, question to
    answer first, what else the page needs, what to try, what this is not, references.

    Args:
        words: the page's language.
        name: of the experiment.
    """

    def __init__(self, words: Strings, name: str) -> None:
        self.words = words
        self._name = name
        self._key = f"{name}.lesson"

    def say(self, key: str, /, **values: object) -> str:
        """A text of this lesson."""
        return self.words(f"{self._key}.{key}", **values)

    def all(self, key: str, /, **values: object) -> tuple[str, ...]:
        """A list of texts of this lesson."""
        return self.words.all(f"{self._key}.{key}", **values)

    def idea(self) -> Part:
        """The idea in five sentences; on a page of another language also what is in English there."""
        said = [" ".join(self.all("idea"))]
        if self.words.language != ENGLISH:
            said.append(self.words("page.english"))
        return {"title": self.words("lesson.idea"), "paragraphs": said}

    def formula(self, math: Sequence[str], **values: object) -> Part:
        """Lines of formulas, and what their letters mean."""
        return {
            "title": self.words("lesson.formula"),
            "paragraphs": [self.say("formula", **values)],
            "math": list(math),
        }

    def worked(self, paragraphs: Sequence[str], table: Part | None) -> Part:
        """The worked example; without figures the words that they are still to come."""
        part: Part = {"title": self.words("lesson.worked"), "paragraphs": list(paragraphs)}
        return {**part, "table": table} if table else {**part, "paragraphs": [self.words("lesson.worked_later")]}

    def predict(self, choices: Sequence[str], answer: int, *, text: str = "", reply: str = "") -> Part:
        """A question to answer before looking.

        Args:
            answer: index of the right choice.
            text, reply: where they are not the lesson's `ask` and `reply`.
        """
        question = {
            "text": text or self.say("ask"),
            "choices": list(choices),
            "answer": answer,
            "reply": reply or self.say("reply"),
        }
        return {"title": self.words("lesson.predict"), "question": question}

    def more(self, key: str, math: Sequence[str] = ()) -> Part:
        """A section of this lesson's own: the table `key` of the catalogue with `title` and `text`."""
        part: Part = {"title": self.say(f"{key}.title"), "paragraphs": list(self.all(f"{key}.text"))}
        return {**part, "math": list(math)} if math else part

    def tries(self, *presets: str) -> Part:
        """Presets to start from here, each with what to look at.

        Raises:
            ValueError: the experiment has no preset of that name.
        """
        names = [preset.name for preset in get_experiment(self._name).presets]
        found = [
            {
                "preset": names.index(name),
                "label": self.words(f"{self._name}.presets.{name}"),
                "note": self.say(f"try.{name}"),
            }
            for name in presets
        ]
        return {"title": self.words("lesson.try"), "tries": found}

    def not_this(self) -> Part:
        """What could be taken for it."""
        return {"title": self.words("lesson.not"), "paragraphs": list(self.all("not"))}

    def references(self, *papers: str) -> Part:
        """Authors, year and title of each."""
        return {"title": self.words("lesson.references"), "paragraphs": [f"{'; '.join(papers)}."]}
