"""The still of a recorded run that a page shows before any kernel starts: plain HTML and SVG.

It has the layout of the live page, so that nothing jumps when that takes its place. What stands in the picture is
the experiment's own (`widgets/NAME/poster.py`). All text of the model is escaped. The index page shows the same
pictures smaller: each of those modules draws its `thumbnail` too.
"""

from __future__ import annotations

from html import escape
from importlib import import_module

from lab.events import Recording
from lab.strings import ENGLISH, Strings
from widgets.page_links import page_links

THUMBNAIL = (360, 200)
"""Width and height that a thumbnail is drawn for, pixels."""


def poster_html(experiment: str, recording: Recording, words: Strings) -> str:
    """The poster of one recording.

    Args:
        experiment: names the page's title, its question, and the module that draws the picture.
        words: the page's language; the picture is in English.
    """
    model = escape(recording.started.facts.name)
    picture: str = import_module(f"widgets.{experiment}.poster").body(recording)
    title, summary = (escape(words(f"{experiment}.{part}")) for part in ("title", "summary"))
    recorded = escape(words("page.recorded"))
    # The link of the live page keeps its room; the still has no lesson to lead to.
    lesson = f'<span class="lab-to-lesson" style="visibility:hidden">{escape(words("lesson.show"))}\u00a0↓</span>'
    return f"""<div class="lab-page" data-poster>
<div class="lab-header"><span class="lab-brand"><p>Inference Lab</p></span>{page_nav(experiment, words)}
<span class="lab-poster-mode"><span class="lab-poster-badge">{recorded}</span> {model}</span></div>
<div class="lab-title"><h1>{title}</h1><p>{summary} {lesson}</p></div>
<div class="lab-main">
<div class="lab-controls lab-poster-lines" aria-hidden="true"><span></span><span></span><span></span><span></span></div>
<div class="lab-picture" lang="{ENGLISH}">
{picture}
</div>
<div class="lab-side lab-poster-lines" aria-hidden="true"><span></span></div>
</div></div>
"""


def page_nav(here: str, words: Strings) -> str:
    """The links to all pages as HTML, the page `here` marked. The server adds the language to them."""
    links = "".join(
        f'<a aria-current="page">{escape(page["label"])}</a>'
        if page["here"]
        else f'<a href="{escape(page["href"])}">{escape(page["label"])}</a>'
        for page in page_links(here, words)
    )
    return f'<nav class="lab-pages" aria-label="{escape(words("page.pages"))}">{links}</nav>'


def thumbnail_html(experiment: str, recording: Recording) -> str:
    """The picture of a recorded run, made for a card of about `THUMBNAIL`'s size."""
    picture: str = import_module(f"widgets.{experiment}.poster").thumbnail(recording)
    return picture


def visible(text: str) -> str:
    """A token's text for a chip, escaped: a leading space as a dot, a line's end as an arrow."""
    return escape(text.replace(" ", "·", 1) if text.startswith(" ") else text.replace("\n", "↵") or "∅")
