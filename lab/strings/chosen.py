"""Which language a page is in: its address's `lang` where that is known, else the lab's own."""

from __future__ import annotations

import os
from urllib.parse import parse_qsl

from lab.settings import LANGUAGE
from lab.strings.catalogue import ENGLISH, known_language, languages, strings

ADDRESS = "lang"
"""Name in a page's address: "?lang=de"."""


def default_language() -> str:
    """The lab's language: the environment's `LAB_LANGUAGE`, else English.

    Raises:
        BadInput: the environment names one that there is not.
    """
    return known_language(os.environ.get(LANGUAGE, "").strip() or ENGLISH)


def in_language(address: str, language: str) -> str:
    """A page's address, so that it opens in a language; the lab's own needs no word in it."""
    return address if language == default_language() else f"{address}?{ADDRESS}={language}"


def language_links(language: str) -> list[dict[str, str]]:
    """Name ("label"), code ("lang") and address ("href") of the same page in each other language."""
    return [
        {"label": strings(other)("language.name"), "lang": other, "href": f"?{ADDRESS}={other}"}
        for other in languages()
        if other != language
    ]


def chosen_language(query: str) -> str:
    """The language that the query of a page's address asks for; one that there is not is the lab's own."""
    asked = dict(parse_qsl(query)).get(ADDRESS, "")
    return asked if asked in languages() else default_language()
