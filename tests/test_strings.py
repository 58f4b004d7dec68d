"""The catalogue of texts: each language whole, what is missing in one found, the language of a page chosen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab.errors import BadInput
from lab.settings import LANGUAGE
from lab.strings import (
    Strings,
    chosen_language,
    default_language,
    differences,
    in_language,
    language_links,
    languages,
    read_texts,
    strings,
)
from lab.strings import __main__ as command
from lab.strings.catalogue import FOLDER

HOSTILE = "<img src=x onerror=alert(1)>"


def texts(language: str) -> dict[str, str]:
    return read_texts(FOLDER / f"{language}.toml")


def test_there_is_english_and_another_language_each_with_its_name() -> None:
    assert languages()[0] == "en"
    assert len(languages()) >= 2
    assert [strings(code)("language.name") for code in languages()][:2] != []
    assert len({strings(code)("language.name") for code in languages()}) == len(languages())


@pytest.mark.parametrize("language", languages())
def test_every_language_has_exactly_the_texts_and_placeholders_of_the_english(language: str) -> None:
    assert differences(texts("en"), texts(language)) == []


@pytest.mark.parametrize("language", [code for code in languages() if code != "en"])
def test_a_translation_is_one(language: str) -> None:
    """Sentences that were only copied would pass the comparison of keys."""
    english, own = texts("en"), texts(language)
    sentences = [key for key, text in english.items() if len(re.findall(r"[a-z]{3,}", text)) >= 4]
    assert len(sentences) > 100
    assert [key for key in sentences if own[key] == english[key]] == []


@pytest.mark.parametrize("language", languages())
def test_quotes_and_apostrophes_are_typographic(language: str) -> None:
    assert [key for key, text in texts(language).items() if re.search(r"['\"]", text)] == []
    opened = "„" if language == "de" else "“"
    for key, text in texts(language).items():
        assert text.count("“") == text.count("„" if language == "de" else "”"), key
        assert opened in text or "“" not in text, key


@pytest.mark.parametrize(
    ("key", "text", "found"),
    [
        ("front.minutes", None, "front.minutes is missing"),
        ("lora.lesson.idea.4", None, "lora.lesson.idea.4 is missing"),
        ("front.hours", "x", "front.hours is unknown"),
        ("lora.lesson.idea.5", "One more.", "lora.lesson.idea.5 is unknown"),
        ("front.minutes", "{minute} min", "front.minutes has {minute} where the English has {minutes}"),
        ("front.minutes", "some", "front.minutes has no placeholder where the English has {minutes}"),
        ("front.check", " ", "front.check is empty"),
    ],
)
def test_what_is_missing_too_much_or_filled_otherwise_is_found(key: str, text: str | None, found: str) -> None:
    """The mutation."""
    other = texts("de")
    if text is None:
        del other[key]
    else:
        other[key] = text
    assert differences(texts("en"), other) == [found]


@pytest.mark.parametrize(
    "line",
    [
        'a = "{x.__class__}"',
        'a = "{x!r}"',
        'a = "{x:9}"',
        'a = "{0}"',
        'a = "{}"',
        'a = "{x"',
        "a = 3",
        "a = ",
        "[a",
        "a = " + "[" * 5000,
    ],
)
def test_a_file_that_holds_anything_but_texts_with_named_placeholders_is_refused(line: str, tmp_path: Path) -> None:
    path = tmp_path / "xx.toml"
    path.write_text('ok = "{name} is fine"\n')
    assert read_texts(path) == {"ok": "{name} is fine"}
    path.write_text(f"{line}\n")
    with pytest.raises(BadInput, match=r"xx\.toml cannot be used"):
        read_texts(path)


def test_an_incomplete_file_is_refused_when_it_is_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = (FOLDER / "de.toml").read_text(encoding="utf-8").replace('check = "Prüfen"\n', "")
    (tmp_path / "de.toml").write_text(lines, encoding="utf-8")
    (tmp_path / "en.toml").write_bytes((FOLDER / "en.toml").read_bytes())
    monkeypatch.setattr("lab.strings.catalogue.FOLDER", tmp_path)
    with pytest.raises(BadInput, match=r"front\.check is missing.*python -m lab\.strings de"):
        strings.__wrapped__("de")


def test_the_command_lists_what_a_file_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["lab.strings"])
    assert command.main() == 0
    assert re.fullmatch(r"(\w+: complete, \d+ texts\n){2,}", capsys.readouterr().out)
    (tmp_path / "en.toml").write_bytes((FOLDER / "en.toml").read_bytes())
    (tmp_path / "de.toml").write_text('[front]\nminutes = "{n} min"\n')
    monkeypatch.setattr(command, "FOLDER", tmp_path)
    monkeypatch.setattr("sys.argv", ["lab.strings", "de"])
    assert command.main() == 1
    told = capsys.readouterr().out.splitlines()
    assert len(told) == len(texts("en"))
    assert "de: front.minutes has {n} where the English has {minutes}" in told
    monkeypatch.setattr("sys.argv", ["lab.strings", "xx"])
    assert command.main() == 1
    assert "There is: en, de." in capsys.readouterr().err


def test_a_text_is_filled_and_a_list_is_in_order() -> None:
    words = Strings("en", {"a": "{n} of {all}", "b.0": "one", "b.1": "two {n}", "c": "plain"})
    assert words("a", n=1, all=2) == "1 of 2"
    assert words.all("b", n=2) == ("one", "two 2")
    assert words("c") == "plain"
    assert words("a", n="{all}", all=2) == "{all} of 2"  # what is filled in is no text of the catalogue
    assert words.of("b", "0", "1") == {"0": "one", "1": "two {n}"}
    for missing in (lambda: words("a", n=1), lambda: words("d"), lambda: words.all("a", n=1, all=2)):
        with pytest.raises(KeyError):
            missing()


@pytest.mark.parametrize("language", ["xx", "", "DE", "../de", HOSTILE])
def test_a_language_that_there_is_not_is_an_error_that_names_those_there_are(
    language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadInput, match="There is: en, de"):
        strings(language)
    if language:
        monkeypatch.setenv(LANGUAGE, language)
        with pytest.raises(BadInput, match="There is: en, de"):
            default_language()


@pytest.mark.parametrize(
    ("query", "language"),
    [
        ("lang=de", "de"),
        ("theme=dark&lang=de&autorun=0", "de"),
        ("lang=en", "en"),
        ("", "en"),
        ("lang=", "en"),
        ("lang=xx", "en"),
        ("lang=DE", "en"),
        ("lang=../de", "en"),
        ("lang=%3Cimg+src%3Dx+onerror%3Dalert(1)%3E", "en"),
        ("lang=de&lang=xx", "en"),
        ("lang=%ff%fe&&&=;;%", "en"),
    ],
)
def test_the_address_chooses_among_the_languages_that_there_are(
    query: str, language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(LANGUAGE, raising=False)
    assert chosen_language(query) == language


def test_the_lab_s_own_language_needs_no_word_in_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LANGUAGE, raising=False)
    assert [in_language("lora.ipynb", code) for code in ("en", "de")] == ["lora.ipynb", "lora.ipynb?lang=de"]
    monkeypatch.setenv(LANGUAGE, "de")
    assert chosen_language("") == chosen_language("lang=xx") == "de"
    assert chosen_language("lang=en") == "en"
    assert [in_language("lora.ipynb", code) for code in ("en", "de")] == ["lora.ipynb?lang=en", "lora.ipynb"]


def test_a_page_links_to_itself_in_the_other_languages() -> None:
    assert language_links("en") == [{"label": "Deutsch", "lang": "de", "href": "?lang=de"}]
    assert language_links("de") == [{"label": "English", "lang": "en", "href": "?lang=en"}]
