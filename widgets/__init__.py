"""The views: `from widgets import dashboard; dashboard("kv_cache")`, and the index of all: `front_page()`.

Nothing here loads torch: models run behind `lab.backend`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    import ipywidgets as ipw

    from lab.events import Recording
    from widgets.front.view import FrontPage
    from widgets.page import Dashboard

__all__ = ["compare", "dashboard", "export_html", "front_page"]


def compare(a: Dashboard | Recording | Path | str, b: Dashboard | Recording | Path | str) -> ipw.VBox:
    """Two runs of one experiment side by side, for a notebook cell: what differs, figures, pictures on the same axes.

    Args:
        a, b: recordings, their files, or pages whose runs have ended.

    Raises:
        Unavailable: a page's run has not ended.
        LabError: a file cannot be read, both are the same run, or they are of different experiments.
    """
    from widgets.comparison.page import comparison_page

    return comparison_page(a, b)


def dashboard(experiment: str, **options: Any) -> Dashboard:
    """The page of `experiment`, for a notebook cell; options as for `widgets.page.Dashboard`."""
    from widgets.page import Dashboard

    return Dashboard(experiment, **options)


def front_page(language: str | None = None) -> FrontPage:
    """The index of all pages, for a notebook cell, in a language such as "de"; None is the lab's own.

    Raises:
        BadInput: there is no such language.
    """
    from widgets.front.view import FrontPage

    return FrontPage(language)


def export_html(run: Dashboard | Recording | Path | str, out: Path | str) -> int:
    """Write a run as one HTML file that opens from disk, its pictures interactive; its size in bytes.

    Args:
        run: a page whose run has ended, a recording, or a recording's file.

    Raises:
        Unavailable: the page's run has not ended.
        LabError: the recording cannot be read, the page would be too large, or `out` cannot be written.
    """
    from pathlib import Path

    from lab.errors import Unavailable
    from lab.events import Recording
    from lab.exporting import write_html
    from widgets.page import Dashboard

    found = run.session.recording() if isinstance(run, Dashboard) else run
    if found is None:
        raise Unavailable("The run has not ended, so it has no file yet.", remedy="Stop it or wait for its end.")
    return write_html(found if isinstance(found, Recording) else Recording.load(Path(found)), Path(out))
