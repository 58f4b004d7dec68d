"""The views: `from widgets import dashboard; dashboard("kv_cache")`, and the index of all: `front_page()`.

Nothing here loads torch: models run behind `lab.backend`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from lab.events import Recording
    from widgets.dashboard import Dashboard
    from widgets.front.view import FrontPage

__all__ = ["dashboard", "export_html", "front_page"]


class _Package(ModuleType):
    """Once `widgets/dashboard.py` is loaded, the import system would put that module in the function's place."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def dashboard(experiment: str, **options: Any) -> Dashboard:
    """The page of `experiment`, for a notebook cell; options as for `widgets.dashboard.Dashboard`."""
    from widgets.dashboard import Dashboard

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
    from widgets.dashboard import Dashboard

    found = run.session.recording() if isinstance(run, Dashboard) else run
    if found is None:
        raise Unavailable("The run has not ended, so it has no file yet.", remedy="Stop it or wait for its end.")
    return write_html(found if isinstance(found, Recording) else Recording.load(Path(found)), Path(out))
