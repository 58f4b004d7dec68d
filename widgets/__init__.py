"""The views: `from widgets import dashboard; dashboard("kv_cache")`, and the index of all: `front_page()`.

Nothing here loads torch: models run behind `lab.backend`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from widgets.dashboard import Dashboard
    from widgets.front.view import FrontPage

__all__ = ["dashboard", "front_page"]


def dashboard(experiment: str, **options: Any) -> Dashboard:
    """The page of `experiment`, for a notebook cell; options as for `widgets.dashboard.Dashboard`."""
    from widgets.dashboard import Dashboard

    return Dashboard(experiment, **options)


def front_page() -> FrontPage:
    """The index of all pages, for a notebook cell."""
    from widgets.front.view import FrontPage

    return FrontPage()
