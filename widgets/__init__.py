"""The views: `from widgets import dashboard; dashboard("kv_cache")`, and the index of all: `front_page()`.

Nothing here loads torch: models run behind `lab.backend`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from lab.events import Recording
    from widgets.dashboard import Dashboard
    from widgets.front.view import FrontPage

__all__ = ["dashboard", "export_html", "front_page"]


def dashboard(experiment: str, **options: Any) -> Dashboard:
    """The page of `experiment`, for a notebook cell; options as for `widgets.dashboard.Dashboard`."""
    from widgets.dashboard import Dashboard

    return Dashboard(experiment, **options)


def front_page() -> FrontPage:
    """The index of all pages, for a notebook cell."""
    from widgets.front.view import FrontPage

    return FrontPage()


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
    from widgets.dashboard import Dashboard

    found = run.session.recording() if isinstance(run, Dashboard) else run
    if found is None:
        raise Unavailable("The run has not ended, so it has no file yet.", remedy="Stop it or wait for its end.")
    return write_html(found if isinstance(found, Recording) else Recording.load(Path(found)), Path(out))
