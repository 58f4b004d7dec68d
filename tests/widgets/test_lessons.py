"""The lesson of each experiment in each language has its form, its figures from a run, and presets that can be run."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from lab.errors import BadInput
from lab.events import Recording
from lab.experiments.registry import EXPERIMENTS
from lab.strings import ENGLISH, Strings, languages, strings
from widgets.experiment import Desk, build_views
from widgets.front.page import front_html
from widgets.front.path import PATH
from widgets.front.view import FrontPage
from widgets.lesson import Lesson
from widgets.lesson_form import LessonForm
from widgets.page import Dashboard
from widgets.stills import FOLDER, read_stills

PAGES = [(name, language) for name in EXPERIMENTS for language in languages()]
ORDER = ("idea", "formula", "worked", "predict", "try", "not", "references")
each_page = pytest.mark.parametrize(("name", "language"), PAGES)


@cache
def recorded(name: str) -> Recording:
    return Recording.load(FOLDER / f"{name}.safetensors")


@cache
def lesson(name: str, language: str, *, answered: bool = True) -> list[dict[str, Any]]:
    """The lesson as the page of the packaged recording has it; unless `answered`, before the model process did."""
    recording = recorded(name)

    def ask(question: str, params: dict[str, Any], reply: Callable[..., None], *, of_run: bool) -> None:
        del of_run
        known = (i.answer for i in recording.inspections if i.name == question and i.params == params)
        found = next(known, None) if answered else None
        reply(found, "" if found is not None else "not asked")

    desk = Desk(ask=ask, touch=lambda: None, lock=threading.RLock(), words=strings(language))
    views = build_views(name, desk)
    for event in recording.events:
        views.fold(event)
    views.settle()
    return views.lesson(recording.started.facts)


def sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.?!])\s+(?=[A-ZÄÖÜ])", text.strip())


def part(shown: list[dict[str, Any]], language: str, key: str) -> dict[str, Any]:
    (found,) = (section for section in shown if section.get("title") == strings(language)(f"lesson.{key}"))
    return found


@each_page
def test_a_lesson_has_its_parts_in_order(name: str, language: str) -> None:
    titles = [section["title"] for section in lesson(name, language)]
    wanted = [strings(language)(f"lesson.{key}") for key in ORDER]
    assert [title for title in titles if title in wanted] == wanted
    assert len(titles) <= 10


@each_page
def test_the_idea_is_told_in_five_sentences(name: str, language: str) -> None:
    text, *notes = part(lesson(name, language), language, "idea")["paragraphs"]
    assert notes == ([] if language == ENGLISH else [strings(language)("page.english")])
    assert len(sentences(text)) == 5, sentences(text)
    assert [s for s in strings(language).all(f"{name}.lesson.idea") if sentences(s) != [s] or s[-1] not in ".?!"] == []


def test_four_or_six_sentences_would_be_seen() -> None:
    """The mutation."""
    told = list(strings("de").all("lora.lesson.idea"))
    assert len(sentences(" ".join(told[:4]))) == 4
    assert len(sentences(" ".join([*told, "Und noch einer."]))) == 6


@each_page
def test_the_worked_example_is_the_recorded_answer_or_still_to_come(name: str, language: str) -> None:
    worked = part(lesson(name, language), language, "worked")
    rows, head = worked["table"]["rows"], worked["table"]["head"]
    assert len(rows) >= 3
    assert {len(row) for row in rows} == {len(head)}
    assert len(part(lesson(name, language), language, "formula")["math"]) >= 1
    later = part(lesson(name, language, answered=False), language, "worked")
    assert later == {"title": worked["title"], "paragraphs": [strings(language)("lesson.worked_later")]}


@each_page
def test_there_is_a_question_to_answer_first(name: str, language: str) -> None:
    question = part(lesson(name, language), language, "predict")["question"]
    assert question["text"].endswith("?")
    assert len(set(question["choices"])) == len(question["choices"]) >= 2
    assert 0 <= question["answer"] < len(question["choices"])
    assert question["reply"]


@each_page
def test_three_presets_can_be_started_and_say_what_to_look_at(name: str, language: str) -> None:
    tries = part(lesson(name, language), language, "try")["tries"]
    assert len({item["preset"] for item in tries}) == len(tries) == 3
    experiment = EXPERIMENTS[name]
    for item in tries:
        preset = experiment.presets[item["preset"]]
        experiment.params(**preset.params)
        assert item["label"] == strings(language)(f"{name}.presets.{preset.name}")
        assert item["label"].endswith("?")
        assert item["note"]
    with pytest.raises(ValueError, match="nowhere"):
        LessonForm(strings(), name).tries("nowhere")


@each_page
def test_what_it_is_not_and_references_end_the_lesson(name: str, language: str) -> None:
    shown = lesson(name, language)
    assert len(part(shown, language, "not")["paragraphs"]) >= 2
    references = shown[-1]["paragraphs"]
    assert len(re.findall(r"\b20\d\d\b", references[0])) >= 3
    assert references[1:] == []


def test_where_every_query_head_has_its_own_keys_another_question_is_asked() -> None:
    from widgets.kv_cache.lesson import sections

    for language in languages():
        question = part(sections(strings(language), None, "float32", None), language, "predict")["question"]
        assert question["answer"] == 1
        assert strings(language)("kv_cache.lesson.ask_alone") == question["text"]


def test_only_presets_that_stand_there_are_started_and_none_without_a_lab() -> None:
    heard: list[int] = []
    for starts in (True, False):
        view = Lesson(strings("de"), starts=starts)
        view.on_try(heard.append)
        view.show([{"tries": [{"preset": 2, "label": "?", "note": "."}]}, {"title": "x"}])
        for preset in (2, 1, "2", None):
            view._receive(view, {"type": "try", "preset": preset}, [])
    assert heard == [2]


class Refusing:
    """A machine on which no model runs."""

    def __getattr__(self, name: str) -> Any:
        def refuse(*_: Any, **__: Any) -> Any:
            raise BadInput("not here", remedy="never")

        return refuse


def test_a_preset_of_the_lesson_is_one_of_the_controls() -> None:
    page = Dashboard("lora", backend=Refusing(), autorun=False, language="de")  # type: ignore[arg-type]
    try:
        assert page.pump.drain(20)
        tries = part(page.parts.lesson.state["sections"], "de", "try")["tries"]
        runs: list[dict[str, Any]] = []
        page.run = lambda: runs.append(dict(page._state.params))  # type: ignore[method-assign]
        page.parts.lesson._receive(page.parts.lesson, {"type": "try", "preset": tries[2]["preset"]}, [])
        defaults = page._described.params().model_dump(mode="json")
        assert runs == [{**defaults, "task": "merge"}]
        assert page.parts.controls.state["presets"][4]["question"] == tries[2]["label"]
        assert page.parts.controls.state["words"]["lang"] == "de"
    finally:
        page.close()


def test_the_page_takes_its_language_from_its_argument_its_address_and_the_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    def language(**options: Any) -> str:
        page = Dashboard("kv_cache", backend=Refusing(), autorun=False, **options)  # type: ignore[arg-type]
        page.close()
        return page.language

    monkeypatch.setenv("QUERY_STRING", "lang=de&autorun=0")
    assert (language(), language(language="en")) == ("de", "en")
    monkeypatch.setenv("QUERY_STRING", "lang=%3Cimg%3E")
    assert language() == "en"
    monkeypatch.setenv("LAB_LANGUAGE", "de")
    assert language() == "de"
    with pytest.raises(BadInput, match="There is: en, de"):
        language(language="xx")


@pytest.mark.parametrize("language", languages())
def test_the_index_is_in_the_language_and_the_figures_are_the_same(language: str) -> None:
    recordings = {name: recorded(name) for name in EXPERIMENTS}
    pages = {code: front_html(recordings, strings(code)) for code in ("en", language)}
    words = strings(language)
    for name in EXPERIMENTS:
        assert pages[language].count(words(f"{name}.title")) == 1
        assert words(f"{name}.task") in pages[language]
    for pattern in (r"<b>[\d.,]+ \w+</b>", r'data-value="[^"]+"', r"<svg.*?</svg>"):
        found = {code: re.findall(pattern, page, re.DOTALL) for code, page in pages.items()}
        assert len(found[language]) >= 1
        assert found[language] == found["en"]
    assert FrontPage(language).state["lang"] == language


def test_stills_of_a_language_lead_on_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    german = read_stills("de")
    assert set(german) == {*EXPERIMENTS, "index"}
    assert german["index"].count('href="lora.ipynb?lang=de"') == 3  # header, card, station
    assert not [name for name, html in german.items() if re.search(r'href="\w+\.ipynb"', html)]
    assert "?lang=de" not in read_stills("en")["lora"]
    monkeypatch.setenv("LAB_LANGUAGE", "de")
    assert 'href="index.ipynb"' in read_stills("de")["lora"]
    assert 'href="index.ipynb?lang=en"' in read_stills("en")["lora"]


def test_the_path_s_tasks_are_all_there() -> None:
    assert {station.experiment for station in PATH} == set(EXPERIMENTS)


SELDOM = {
    "kv_cache.prediction.other",  # a run whose cache is not the formula's
    "speculative.prediction.turns",  # one that was not faster, or was
    "speculative.prediction.average",
    "pruning.prediction.because",
    "saved.defaults",
}
"""Texts that not every packaged recording leads to."""


def test_no_text_lies_in_the_catalogue_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    used: set[str] = set()
    say, of = Strings.__call__, Strings.of

    def spy(self: Strings, key: str, /, **values: object) -> str:
        used.add(key)
        return say(self, key, **values)

    def spy_of(self: Strings, key: str, *names: str) -> dict[str, str]:
        used.update(f"{key}.{name}" for name in names)
        return of(self, key, *names)

    monkeypatch.setattr(Strings, "__call__", spy)
    monkeypatch.setattr(Strings, "of", spy_of)
    words = strings("de")
    from widgets.exported.still import StillPage
    from widgets.kv_cache.lesson import sections as kv_sections
    from widgets.quantization.lesson import sections as quantization_sections
    from widgets.voila.server import page_resources

    for name in EXPERIMENTS:
        for answered in (True, False):
            lesson.__wrapped__(name, "de", answered=answered)
        StillPage(recorded(name), words)
    kv_sections(words, None, "float32", None)
    quantization_sections(words, None, None)
    front_html({name: recorded(name) for name in EXPERIMENTS}, words)
    page_resources.__wrapped__()
    page = Dashboard("kv_cache", backend=Refusing(), autorun=False, language="de")  # type: ignore[arg-type]
    page.close()
    assert sorted(set(words) - used - SELDOM) == []
