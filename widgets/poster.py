"""The still of a recorded run that a page shows before any kernel starts: plain HTML and SVG.

It has the layout of the live page, so that nothing jumps when that takes its place. What stands in the picture is
the experiment's own (`widgets/NAME/poster.py`). All text of the model is escaped.
"""

from __future__ import annotations

from html import escape
from importlib import import_module

from lab.events import Recording
from lab.experiments.registry import EXPERIMENTS, get_experiment
from widgets.page_links import page_name


def poster_html(experiment: str, recording: Recording) -> str:
    """The poster of one recording.

    Args:
        experiment: names the page's title, its question, and the module that draws the picture.
    """
    described = get_experiment(experiment)
    model = escape(recording.started.facts.name)
    picture: str = import_module(f"widgets.{experiment}.poster").body(recording)
    return f"""<div class="lab-page" data-poster>
<div class="lab-header"><span class="lab-brand"><p>Inference Lab</p></span>{_links(experiment)}
<span class="lab-poster-mode"><span class="lab-poster-badge">RECORDED</span> {model}</span></div>
<div class="lab-title"><h1>{escape(described.title)}</h1><p>{escape(described.summary)}</p></div>
<div class="lab-main">
<div class="lab-controls lab-poster-lines" aria-hidden="true"><span></span><span></span><span></span><span></span></div>
<div class="lab-picture">
{picture}
</div>
<div class="lab-side lab-poster-lines" aria-hidden="true"><span></span></div>
</div></div>
"""


def _links(here: str) -> str:
    links = "".join(
        f'<a aria-current="page">{escape(e.label)}</a>'
        if e.name == here
        else f'<a href="{page_name(e.name)}">{escape(e.label)}</a>'
        for e in EXPERIMENTS.values()
    )
    return f'<nav class="lab-pages" aria-label="Experiments">{links}</nav>'


def visible(text: str) -> str:
    """A token's text for a chip, escaped: a leading space as a dot, a line's end as an arrow."""
    return escape(text.replace(" ", "·", 1) if text.startswith(" ") else text.replace("\n", "↵") or "∅")
