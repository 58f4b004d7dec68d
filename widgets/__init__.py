"""The views: `from widgets import dashboard; dashboard("kv_cache")`.

Nothing here loads torch: models run behind `lab.backend`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from widgets.dashboard import Dashboard

__all__ = ["dashboard"]


def dashboard(experiment: str, **options: Any) -> Dashboard:
    """The page of `experiment`, for a notebook cell; options as for `widgets.dashboard.Dashboard`."""
    from widgets.dashboard import Dashboard

    return Dashboard(experiment, **options)
