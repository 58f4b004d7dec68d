"""Sends the state of a page's widgets once more, as soon as a browser shows the page.

Jupyter's widget manager asks the kernel for all states at once and then builds its models. What changes between the two
is sent to models that are not there yet, and lost: a page of many widgets on a busy machine would keep an old picture
until the same trait changes again. States are small, and one that is as it was draws nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import ipywidgets as ipw

from widgets.view import View


def resend(root: ipw.DOMWidget) -> None:
    """Send what may change of `root` and all in it. Call it with the lock held under which the page is drawn."""
    for widget in _walk(root):
        for name in widget.changing if isinstance(widget, View) else ("children",):
            widget.send_state(name)
        widget.layout.send_state("display")


def _walk(widget: ipw.DOMWidget) -> Iterator[ipw.DOMWidget]:
    for child in getattr(widget, "children", ()):
        yield from _walk(child)
    yield widget
