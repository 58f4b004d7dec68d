"""Reading a catalogue, and comparing one with the English."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any

from lab.errors import BadInput

ENGLISH = "en"
FOLDER = Path(__file__).parent


class Strings:
    """All texts of one language.

    Args:
        language: its code, as in the file's name and in `<html lang>`.
        texts: by key; the key of a text in a list ends with its place, from 0.
    """

    def __init__(self, language: str, texts: Mapping[str, str]) -> None:
        self.language = language
        self._texts = texts

    def __call__(self, key: str, /, **values: object) -> str:
        """The text, with `values` in its placeholders.

        Raises:
            KeyError: there is no such key, or a placeholder has no value.
        """
        text = self._texts[key]
        return text.format_map(values) if values or "{" in text else text

    def all(self, key: str, /, **values: object) -> tuple[str, ...]:
        """The texts of a list, in order.

        Raises:
            KeyError: there is no such list, or a placeholder has no value.
        """
        found: list[str] = []
        while f"{key}.{len(found)}" in self._texts:
            found.append(self(f"{key}.{len(found)}", **values))
        if not found:
            raise KeyError(key)
        return tuple(found)

    def of(self, key: str, *names: str) -> dict[str, str]:
        """Some texts of a table as they are, placeholders and all, for a page that fills them itself."""
        return {name: self._texts[f"{key}.{name}"] for name in names}

    def __iter__(self) -> Iterator[str]:
        """All keys, in the file's order."""
        return iter(self._texts)


@cache
def languages() -> tuple[str, ...]:
    """The codes of the languages that there are, English first."""
    return ENGLISH, *sorted(path.stem for path in FOLDER.glob("*.toml") if path.stem != ENGLISH)


def known_language(language: str) -> str:
    """The code of a language that there is.

    Raises:
        BadInput: there is no such language; the error names those there are.
    """
    if language not in languages():
        raise BadInput(f"There is no language {language!r}.", remedy=f"There is: {', '.join(languages())}.")
    return language


@cache
def strings(language: str = ENGLISH) -> Strings:
    """The texts of a language, compared with the English once.

    Raises:
        BadInput: there is no such language, or its file has not exactly the keys and placeholders of the English.
    """
    known_language(language)
    texts = read_texts(FOLDER / f"{language}.toml")
    english = texts if language == ENGLISH else read_texts(FOLDER / f"{ENGLISH}.toml")
    wrong = differences(english, texts)
    if wrong:
        raise BadInput(
            f"The texts of {language!r} are not those of the English: {'; '.join(wrong[:3])}.",
            remedy=f"`python -m lab.strings {language}` lists all {len(wrong)}.",
        )
    return Strings(language, texts)


def read_texts(path: Path) -> dict[str, str]:
    """The texts of a file by key.

    Raises:
        BadInput: it is no TOML, holds something else than texts, or a text has a placeholder that is no plain name.
    """
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
        texts = dict(_flat("", tree))
        for key, text in texts.items():
            placeholders(key, text)
    except (OSError, ValueError) as error:
        raise BadInput(f"{path.name} cannot be used: {error}.", remedy="Mend that line.") from None
    except RecursionError:
        raise BadInput(
            f"{path.name} cannot be used: it is nested too deep.", remedy="Write texts in tables as en.toml does."
        ) from None
    return texts


def _flat(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for name, item in items:
            yield from _flat(f"{key}.{name}" if key else str(name), item)
    else:
        raise ValueError(f"{key} is no text")


def placeholders(key: str, text: str) -> set[str]:
    """The names in braces.

    Raises:
        ValueError: braces that do not close, or more in them than a name.
    """
    found = set()
    for _, name, spec, conversion in Formatter().parse(text):
        if name is None:
            continue
        if not name.isidentifier() or spec or conversion:
            raise ValueError(f"{key} has a placeholder {{{name}}} that is no plain name")
        found.add(name)
    return found


def differences(english: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """What the other catalogue lacks, has too much, or fills differently; each in a few words."""
    found = [f"{key} is missing" for key in english if key not in other]
    for key, text in other.items():
        if key not in english:
            found.append(f"{key} is unknown")
            continue
        wanted, there = placeholders(key, english[key]), placeholders(key, text)
        if wanted != there:
            found.append(f"{key} has {_names(there)} where the English has {_names(wanted)}")
        if not text.strip():
            found.append(f"{key} is empty")
    return found


def _names(names: set[str]) -> str:
    return " ".join(f"{{{name}}}" for name in sorted(names)) or "no placeholder"
