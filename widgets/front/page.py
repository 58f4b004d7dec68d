"""The index page as one piece of HTML, which needs no kernel. All text of a model is escaped."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib import import_module

from lab.events import Recording
from lab.experiments.registry import EXPERIMENTS, get_experiment
from widgets.front.card import card_html, cost_of
from widgets.front.path import PATH, Station
from widgets.front.prediction import Prediction, prediction_html
from widgets.page_links import INDEX, page_name
from widgets.poster import page_nav

TITLE = "What does a language model cost, and what can be saved?"
PREDICT = "Predict first, then open the page and look. Each answer is checked against the recorded run."
SUMMARY = "Experiments on a real model, live on this machine, checked against the plain model on every run."


def front_html(recordings: Mapping[str, Recording]) -> str:
    """The whole page: header, title, a card for each experiment, and the path.

    Args:
        recordings: the recorded run of each experiment that has one, by its name.
    """
    cards = "".join(card_html(e, recordings.get(e.name)) for e in EXPERIMENTS.values())
    stations = "".join(_station(station, recordings.get(station.experiment)) for station in PATH)
    minutes = sum(station.minutes for station in PATH)
    return f"""<div class="lab-page">
<header class="lab-header"><span class="lab-brand"><p>Inference Lab</p></span>{page_nav(INDEX)}
<span id="lab-theme" class="lab-root"></span></header>
<main><div class="lab-front lab-root">
<div class="lab-title"><h1>{escape(TITLE)}</h1><p>{escape(SUMMARY)}</p></div>
<ul class="lab-tiles" aria-label="Experiments">{cards}</ul>
<p class="lab-front-note">{escape(_note(recordings))}</p>
<section class="lab-path" aria-labelledby="lab-path-title"><div class="lab-path-head">
<h2 id="lab-path-title">A path of about {minutes} minutes</h2><p>{escape(PREDICT)}</p>
<p class="lab-path-count" role="status"></p></div>
<ol>{stations}</ol></section>
</div></main>
</div>
"""


def _note(recordings: Mapping[str, Recording]) -> str:
    """Where the figures of the cards come from, in one sentence for each machine."""
    costs = [cost for recording in recordings.values() if (cost := cost_of(recording))]
    places = sorted({f"{cost.model} on {cost.where}" for cost in costs})
    return (
        f"MEASURED in the recorded runs that the pages show first: {'; '.join(places)}. The peak is of the whole "
        "model process's memory."
        if places
        else ""
    )


def _station(station: Station, recording: Recording | None) -> str:
    experiment = get_experiment(station.experiment)
    asked: Prediction | None = (
        import_module(f"widgets.{station.experiment}.predict").prediction(recording) if recording else None
    )
    question = prediction_html(station.experiment, asked) if asked else ""
    return (
        f'<li class="lab-station"><div class="lab-station-what"><h3><a href="{page_name(experiment.name)}">'
        f"{escape(experiment.label)}</a> <small>{station.minutes} min</small></h3><p>{escape(station.task)}</p></div>"
        f"{question}</li>\n"
    )
