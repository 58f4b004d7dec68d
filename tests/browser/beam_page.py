"""The centre of the `beam_search` page drawn from its JSON state alone, as an exported page would, without a kernel."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import ipywidgets as ipw
from beam_toy import Search

from lab.events import Event, RunCancelled, RunFailed
from widgets import assets
from widgets.beam_search.views import BeamSearchViews
from widgets.experiment import Cursor, Desk
from widgets.plot import bokehjs_source
from widgets.view import View


def views_of(events: Sequence[Event], step: int | None = None) -> BeamSearchViews:
    """The views after `events`, looked at after `step`."""
    cursor = Cursor(step=step)
    views = BeamSearchViews(Desk(lambda *_a, **_k: None, lambda: None, threading.RLock(), cursor))
    for event in events:
        views.fold(event)
    views.render(live=False)
    return views


def search(width: int = 4, steps: int = 24, **more: Any) -> list[Event]:
    return Search(**{"num_beams": width, "max_new_tokens": steps, **more}).events()


CASES: dict[str, Callable[[], list[Event]]] = {
    "empty": list,
    "4x24": search,
    "ends": lambda: search(4, 24, end=2.2, seed=3),
    "16x64": lambda: search(16, 64, end=-9.0),
    "pushed": lambda: search(4, 24, seed=3, end=0.5, length_penalty=2.0),
    "greedy": lambda: search(1, 12),
    "one": lambda: search(4, 1),
    "end1": lambda: search(3, 20, end=8.0, early_stopping="true"),
    "stopped": lambda: [*search(4, 24)[:9], RunCancelled()],
    "failed": lambda: [*search(4, 24)[:2], RunFailed(code="bad", message="It failed.")],
}


@cache
def events_of(case: str) -> tuple[Event, ...]:
    """The events of a case, made once."""
    return tuple(CASES[case]())


def describe(widget: ipw.Widget) -> dict[str, Any]:
    classes = list(getattr(widget, "_dom_classes", ()))
    if isinstance(widget, View):
        extra = {name: getattr(widget, name) for name in ("item", "tree") if hasattr(widget, name)}
        return {"module": widget.module, "state": widget.state, "classes": classes, **extra}
    return {"classes": [*classes, "widget-box"], "children": [describe(child) for child in widget.children]}


def _case(query: str) -> str:
    values = {k: v[0] for k, v in parse_qs(query).items()}
    step = int(values["step"]) if "step" in values else None
    return _drawn(values.get("case", "4x24"), step, values.get("only", ""))


@cache
def _drawn(case: str, step: int | None, only: str) -> str:
    page = describe(views_of(events_of(case), step).widget)
    if only:
        page = {"children": [part for part in _leaves(page) if part["module"] in only.split(",")]}
    return json.dumps(page, separators=(",", ":"))


def _leaves(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "module" in part:
        yield part
    for child in part.get("children", ()):
        yield from _leaves(child)


def _body(address: str) -> tuple[str, str] | None:
    path, _, query = address.partition("?")
    if path == "/":
        return (Path(__file__).parent / "beam_page.html").read_text(encoding="utf-8"), "text/html"
    if path == "/case.json":
        return _case(query), "application/json"
    if path == "/stand_in.js":
        return assets.stand_in(), "text/javascript"
    if path == "/bokeh.js":
        return bokehjs_source(), "text/javascript"
    if path == "/all.css":
        modules = ("beam_tree", "beam_shelf", "token_strip", "figure", "words", "plot", "data_table", "page")
        return "\n".join(assets.css(module) for module in modules), "text/css"
    if path.startswith("/module/"):
        return assets.esm(path.removeprefix("/module/").removesuffix(".js")), "text/javascript"
    return None


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = _body(self.path)
        self.send_response(200 if found else 404)
        body, kind = found or ("", "text/plain")
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_args: Any) -> None:
        """Tests need no log of requests."""


@contextmanager
def serve() -> Iterator[str]:
    """The page's address on loopback; `?case=16x64&step=5&theme=dark`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
