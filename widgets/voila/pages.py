"""Voila with the lab's front door: the index page at the root, pages of our own look for what is not there.

Voila's list of files, its view of a folder and its file server are left out: the index has the links, and nothing else
of the folder is a visitor's business.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from jupyter_server.log import log_request
from jupyter_server.utils import url_path_join
from tornado.web import HTTPError
from voila.app import Voila
from voila.handler import BaseVoilaHandler

from lab.backend.hosting import hosted
from lab.backend.limits import MIB
from widgets.voila.handlers import LAB, ToFront, ruled, ruled_handlers, rules_of
from widgets.voila.server import page_resources


class NotThere(BaseVoilaHandler):  # type: ignore[misc]  # voila has no types
    """The page for an address that has none."""

    async def prepare(self) -> None:
        await super().prepare()
        raise HTTPError(404)


class Pages(Voila):  # type: ignore[misc]
    """The pages' server."""

    def init_settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = super().init_settings()
        settings["voila_jinja2_env"].globals["lab"] = page_resources()
        options = {"voila_configuration": self.voila_configuration}
        missing = {"default_handler_class": ruled(NotThere), "default_handler_args": options}
        return {**settings, **missing, **self._hosting()}

    def _hosting(self) -> dict[str, Any]:
        """Tornado's settings for a hosted lab, or for one user on this machine: then no other name leads here."""
        hosting = hosted()
        # Jupyter's own log line leaves tokens out of addresses.
        log = partial(log_request, record_prometheus_metrics=False)
        rules = {LAB: rules_of(Path(self.root_dir), hosting), "log_function": log}
        if hosting is None:
            return {**rules, "allow_remote_access": False}
        return {**rules, "websocket_max_message_size": hosting.message_mib * MIB}

    def listen(self) -> None:
        hosting = hosted()
        # Nothing large is ever posted; what a page sends goes through its websocket.
        more = {"max_body_size": MIB, "xheaders": hosting is not None and hosting.behind_proxy}
        self.app.listen = partial(self.app.listen, **more)
        super().listen()

    def init_handlers(self) -> list[Any]:
        fronts = [(url_path_join(self.server_url, address), ToFront) for address in ("/", "/voila/?")]
        return ruled_handlers([*fronts, *super().init_handlers()], self.server_url)
