"""Showing and hiding a widget that stays where it is."""

from __future__ import annotations

import ipywidgets as ipw


def show_if(there: object, *widgets: ipw.DOMWidget) -> None:
    """Show these widgets if `there` is true, else take them off the page; they keep their places.

    The layout's `display` does it, in JupyterLab as in Voila. A CSS class would not: a view of anywidget reads its
    classes once, when the browser draws it, and hears of no later `add_class` or `remove_class`. Nor would other
    children of the box around it: the browser draws all children after the first change anew.
    """
    display = None if there else "none"
    for widget in widgets:
        widget.layout.display = display
