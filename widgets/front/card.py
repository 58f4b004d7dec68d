"""What the index says of one experiment: its question, its picture, what its recorded run took."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from lab.events import Recording, RunFinished
from lab.experiments.base import Experiment
from lab.strings import ENGLISH, Strings
from widgets.format import format_bytes, format_ms
from widgets.page_links import page_name
from widgets.poster import thumbnail_html


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a recorded run took, as texts. All but the size of the weights was measured in that run.

    Attributes:
        time: in the run's own slices.
        weights: size of the model's weights.
        memory: peak resident memory of the process that ran it.
        where: device, number of threads, dtype.
    """

    time: str
    model: str
    weights: str
    memory: str
    where: tuple[str, int, str]


def cost_of(recording: Recording) -> Cost | None:
    """What the run took; None where it did not finish."""
    end, started = recording.events[-1], recording.started
    if not isinstance(end, RunFinished):
        return None
    card = started.card
    return Cost(
        time=format_ms(end.compute_ms),
        model=started.facts.name,
        weights=format_bytes(started.facts.weight_bytes),
        memory=format_bytes(end.peak_bytes or None),
        where=(card.device.upper() if card.device == "cpu" else card.device, card.threads, card.dtype),
    )


def card_html(experiment: Experiment, recording: Recording | None, words: Strings) -> str:
    """The card as HTML. Without a recording it has its question alone."""
    picture = thumbnail_html(experiment.name, recording) if recording else ""
    cost = cost_of(recording) if recording else None
    figures = (
        f'<p class="lab-cost"><span><b>{escape(cost.time)}</b> {escape(words("front.a_run"))}</span> · '
        f"<span><b>{escape(cost.weights)}</b> {escape(words('front.weights'))}</span> · "
        f"<span><b>{escape(cost.memory)}</b> {escape(words('front.peak'))}</span></p>"
        if cost
        else ""
    )
    name, title = (escape(words(f"{experiment.name}.{part}")) for part in ("label", "title"))
    return (
        f'<li class="lab-tile"><div class="lab-thumb" lang="{ENGLISH}">{picture}</div>'
        f'<p class="lab-tile-name">{name}</p>'
        f'<h2><a href="{page_name(experiment.name)}">{title}</a></h2>{figures}</li>\n'
    )
