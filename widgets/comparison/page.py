"""Two runs side by side in a notebook's cell. No backend is asked."""

from __future__ import annotations

from pathlib import Path

import ipywidgets as ipw

from lab.errors import Unavailable
from lab.events import Recording
from widgets.comparison.reading import compare_recordings
from widgets.comparison.view import ComparisonView
from widgets.page import Dashboard
from widgets.plot import BokehLoader
from widgets.section import heading

Comparable = Dashboard | Recording | Path | str


def comparison_page(a: Comparable, b: Comparable) -> ipw.VBox:
    """The comparison of two recordings, recordings' files or pages whose runs have ended.

    Raises:
        Unavailable: a page's run has not ended.
        LabError: a file cannot be read, both are the same run, or they are of different experiments.
    """
    found = compare_recordings(_recording(a), _recording(b), (_name(a, "A"), _name(b, "B")))
    view = ComparisonView()
    view.show(found)
    card = ipw.VBox([heading(f"Two runs of {found.experiment}"), view.widget])
    card.add_class("lab-picture")
    page = ipw.VBox([BokehLoader(), card])
    page.add_class("lab-page")
    return page


def _recording(run: Comparable) -> Recording:
    if isinstance(run, Dashboard):
        found = run.session.recording()
        if found is None:
            raise Unavailable("The run has not ended, so it cannot be kept yet.", remedy="Stop it or wait for its end.")
        return found
    return run if isinstance(run, Recording) else Recording.load(Path(run))


def _name(run: Comparable, otherwise: str) -> str:
    return Path(run).name if isinstance(run, Path | str) else otherwise
