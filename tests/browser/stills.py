"""A page's pictures without a kernel: the tree of its widgets as one document, each view drawn by the stand-in."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from gallery import as_drawn

from lab.events import Event
from widgets import assets
from widgets.experiment import Desk, ExperimentViews, build_views
from widgets.lesson import Lesson
from widgets.plot import bokehjs_source
from widgets.view import View

_HTML = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Still of a page</title><link rel="icon" href="data:,">
<link rel="stylesheet" href="/all.css"><script src="/bokeh.js"></script>
<body class="lab-body"><div class="lab-page"><div class="lab-main"><div class="lab-controls"></div>
<div class="lab-picture" id="root"></div><div class="lab-side" id="side"></div></div></div>
<script type="module">
  import { mount } from "/stand_in.js";
  const { tree, side, views } = await (await fetch("/page.json")).json();
  document.body.dataset.jpThemeLight = String(new URLSearchParams(location.search).get("theme") !== "dark");
  window.views = {};
  async function draw(node, parent) {
    const el = document.createElement("div");
    el.className = node.classes.join(" ");
    el.style.display = node.display;
    parent.append(el);
    if (node.view === undefined) { for (const child of node.children) await draw(child, el); return; }
    const { module, state, traits } = views[node.view];
    el.id = `view-${node.view}`;
    window.views[node.view] = await mount(await import(`/module/${module}.js`), el, state, { traits });
  }
  await draw(tree, document.getElementById("root"));
  await draw(side, document.getElementById("side"));
  document.body.dataset.ready = "true";
</script></body></html>"""


def views_of(experiment: str, events: Iterable[Event], answers: dict[str, Any]) -> ExperimentViews:
    """A page's views after a run; a question is answered by its name, or refused."""

    def ask(name: str, _params: dict[str, Any], reply: Any, *, of_run: bool) -> None:
        del of_run
        reply(answers.get(name), "" if name in answers else "This was never asked while the run was recorded.")

    views = build_views(experiment, Desk(ask=ask, touch=lambda: None, lock=threading.RLock()))
    for event in events:
        views.fold(event)
    views.settle()
    views.render(live=False)
    return views


def document(root: Any, lesson: list[dict[str, Any]]) -> tuple[dict[str, Any], set[str]]:
    """The tree as JSON, and the modules that it needs."""
    found: list[View] = []

    def node(widget: Any) -> dict[str, Any]:
        own = {"classes": list(widget._dom_classes), "display": widget.layout.display or ""}
        if isinstance(widget, View):
            found.append(widget)
            return {**own, "view": len(found) - 1}
        return {**own, "children": [node(child) for child in widget.children]}

    side = Lesson()
    side.show(lesson)
    page = {"tree": node(root), "side": node(side)}
    views = [as_drawn(view) for view in found]
    return {**page, "views": views}, {view.module for view in found}


@contextmanager
def still(experiment: str, events: Iterable[Event], answers: dict[str, Any]) -> Iterator[str]:
    """The address of such a page on loopback."""
    views = views_of(experiment, events, answers)
    page, modules = document(views.widget, views.lesson(None))
    found = {
        "/": (_HTML, "text/html"),
        "/page.json": (json.dumps(page), "application/json"),
        "/stand_in.js": (assets.stand_in(), "text/javascript"),
        "/bokeh.js": (bokehjs_source(), "text/javascript"),
        "/all.css": ("\n".join([*(assets.css(m) for m in sorted(modules)), assets.read("page.css")]), "text/css"),
        **{f"/module/{module}.js": (assets.esm(module), "text/javascript") for module in modules},
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text, kind = found.get(self.path.partition("?")[0], ("", ""))
            self.send_response(200 if kind else 404)
            self.send_header("Content-Type", f"{kind or 'text/plain'}; charset=utf-8")
            self.end_headers()
            self.wfile.write(text.encode("utf-8", "replace"))

        def log_message(self, *_args: Any) -> None:
            """Tests need no log of requests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
