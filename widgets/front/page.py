"""The index page as one piece of HTML, which needs no kernel. All text of a model is escaped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from importlib import import_module

from lab.events import Recording
from lab.experiments.registry import EXPERIMENTS
from lab.strings import ENGLISH, Strings, language_links
from widgets.front.card import Cost, card_html, cost_of
from widgets.front.path import PATH, Station
from widgets.front.prediction import Prediction, prediction_html
from widgets.page_links import INDEX, page_name
from widgets.poster import page_nav

SCRIPT = ("start_over", "count", "right", "wrong", "no_number")
"""Texts that the index's script fills in."""


def front_html(recordings: Mapping[str, Recording], words: Strings) -> str:
    """The whole page: header, title, a card for each experiment, and the path.

    Args:
        recordings: the recorded run of each experiment that has one, by its name.
        words: the page's language.
    """
    cards = "".join(card_html(e, recordings.get(e.name), words) for e in EXPERIMENTS.values())
    stations = "".join(_station(station, recordings.get(station.experiment), words) for station in PATH)
    said = {name: escape(words(f"front.{name}")) for name in ("title", "summary", "experiments", "predict")}
    minutes = sum(station.minutes for station in PATH)
    script = escape(json.dumps(words.of("front", *SCRIPT), ensure_ascii=False))
    return f"""<div class="lab-page">
<header class="lab-header"><span class="lab-brand"><p>Inference Lab</p></span>{page_nav(INDEX, words)}
<span id="lab-tools" class="lab-root lab-tools">{_languages(words)}</span></header>
<main><div class="lab-front lab-root" data-words="{script}">
<div class="lab-title"><h1>{said["title"]}</h1><p>{said["summary"]}</p></div>
<ul class="lab-tiles" aria-label="{said["experiments"]}">{cards}</ul>
{"".join(f'<p class="lab-front-note">{escape(note)}</p>' for note in _notes(recordings, words))}
<section class="lab-path" aria-labelledby="lab-path-title"><div class="lab-path-head">
<h2 id="lab-path-title">{escape(words("front.path", minutes=minutes))}</h2><p>{said["predict"]}</p>
<p class="lab-path-count" role="status"></p></div>
<ol>{stations}</ol></section>
</div></main>
</div>
"""


def _languages(words: Strings) -> str:
    links = "".join(
        f'<a class="lab-language" href="{link["href"]}" lang="{link["lang"]}" hreflang="{link["lang"]}">'
        f"{escape(link['label'])}</a>"
        for link in language_links(words.language)
    )
    return f'<nav class="lab-languages" aria-label="{escape(words("page.language"))}">{links}</nav>'


def _notes(recordings: Mapping[str, Recording], words: Strings) -> Iterator[str]:
    """Where the figures of the cards come from, each machine named once; and what is in English."""
    costs = [cost for recording in recordings.values() if (cost := cost_of(recording))]
    places = sorted({words("front.place", model=cost.model, where=_where(cost, words)) for cost in costs})
    if places:
        yield words("front.note", places="; ".join(places))
    if words.language != ENGLISH:
        yield words("page.english")


def _where(cost: Cost, words: Strings) -> str:
    device, threads, dtype = cost.where
    return f"{device}, {threads} {words('front.threads')}, {dtype}"


def _station(station: Station, recording: Recording | None, words: Strings) -> str:
    name = station.experiment
    asked: Prediction | None = (
        import_module(f"widgets.{name}.predict").prediction(recording, words) if recording else None
    )
    question = prediction_html(name, asked, words) if asked else ""
    return (
        f'<li class="lab-station"><div class="lab-station-what"><h3><a href="{page_name(name)}">'
        f"{escape(words(f'{name}.label'))}</a> <small>{escape(words('front.minutes', minutes=station.minutes))}</small>"
        f"</h3><p>{escape(words(f'{name}.task'))}</p></div>{question}</li>\n"
    )
