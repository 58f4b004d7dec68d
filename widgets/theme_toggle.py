"""A quiet button that switches the page between light and dark; nothing in Python depends on it."""

from __future__ import annotations

from typing import ClassVar

from widgets.view import View


class ThemeToggle(View):
    """Shown on pages of their own; inside JupyterLab its theme rules and the button hides."""

    module: ClassVar[str] = "theme_toggle"
