"""What is sent once more when a browser shows a page."""

from __future__ import annotations

import ipywidgets as ipw
import pytest
from pages import send, walk

from widgets.page import Dashboard
from widgets.plot import BokehLoader
from widgets.view import View


class NoBackend:
    """A machine on which no model runs."""

    def __getattr__(self, name: str) -> object:
        from lab.errors import BackendUnavailable

        raise BackendUnavailable("The model process is not there.")


@pytest.mark.parametrize("experiment", ["kv_cache", "beam_search", "pruning"])
def test_all_that_may_change_is_sent_when_the_page_is_shown(experiment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Dashboard(experiment, backend=NoBackend(), autorun=False)  # type: ignore[arg-type]
    assert page.pump.drain(20)
    sent: list[tuple[object, object]] = []
    monkeypatch.setattr(ipw.Widget, "send_state", lambda widget, key=None: sent.append((widget, key)))
    with page.pump.lock:  # nothing is drawn meanwhile
        send(page.parts.heartbeat, type="ping", n=2)
        assert sent == []
        send(page.parts.heartbeat, type="ping", n=1)
        views = list(walk(page))
        loader = next(view for view in views if isinstance(view, BokehLoader))
        missing = [v for v in views if (v, "state") not in sent]
        assert missing == [loader], "a megabyte that never changes"
        boxes = [page.views.widget, page]
        assert all((box, "children") in sent for box in boxes)
        assert all((widget.layout, "display") in sent for widget in (*views, *boxes))
    page.close()


def test_a_view_names_every_trait_of_its_own_that_changes() -> None:
    def below(cls: type[View]) -> set[type[View]]:
        return {cls, *(one for sub in cls.__subclasses__() for one in below(sub))}

    once = {"item"}  # a plot's figure, drawn once
    for cls in below(View):
        synced = cls.class_traits(sync=True).items()
        own = {name for name, trait in synced if trait.this_class.__module__.startswith("widgets.")} - once
        own = {name for name in own if not name.startswith("_")}
        assert set(cls.changing) == (set() if issubclass(cls, BokehLoader) else own), cls
