"""What the pages' server answers: a closed list of handlers, each with the headers, the pages with their limits."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

from jupyter_server.auth.decorator import allow_unauthenticated
from jupyter_server.auth.login import LoginFormHandler
from jupyter_server.auth.logout import LogoutHandler
from jupyter_server.base.handlers import APIHandler, FileFindHandler, JupyterHandler
from jupyter_server.services.kernels.handlers import KernelHandler
from jupyter_server.utils import url_path_join
from jupyterlab_server.themes_handler import ThemesHandler
from tornado.web import HTTPError, RequestHandler
from voila.shutdown_kernel_handler import VoilaShutdownKernelHandler
from voila.static_file_handler import MultiStaticFileHandler, TemplateStaticFileHandler
from voila.tornado.handler import TornadoVoilaHandler
from voila.tornado.kernel_websocket_handler import VoilaKernelWebsocketHandler
from voila.voila_identity_provider import VoilaLoginHandler

from lab.backend.headers import DATA
from lab.backend.hosting import HostedSettings
from lab.backend.limits import MIB
from lab.backend.rates import Rate
from widgets.voila.headers import page_headers
from widgets.voila.seats import Full

LAB = "lab"
"""Key of the tornado settings under which the handlers find `Rules`."""
FULL_RETRY_S = 30
STARTING_S = 90
"""A kernel that has said nothing for so long has died: Voila itself would wait for ever."""
HEARTBEAT = "voila_heartbeat()"
"""Stands in the parts that Voila sends while nothing happens."""
MESSAGE_BYTES = 256
"""What a message counts beside its own bytes, so that many small ones count too."""
_TEMPLATE = re.compile(r"[A-Za-z0-9_-]+/static/[^\\\0]+")


class Rules:
    """What visitors may do.

    Args:
        notebooks: paths of the pages below the server's root.
        front: path of the index page, likewise.
        headers: of all answers that are no data.
        pages, logins, uploads: how often; None: as often as they like. Uploads are bytes of one kernel's messages.
    """

    def __init__(
        self,
        *,
        notebooks: frozenset[str],
        headers: dict[str, str],
        front: str = "index.ipynb",
        pages: Rate | None = None,
        logins: Rate | None = None,
        uploads: Rate | None = None,
    ) -> None:
        self.notebooks = notebooks
        self.front = front
        self.headers = headers
        self.pages = pages
        self.logins = logins
        self.uploads = uploads


class Later(HTTPError):
    """Not now: 429 or 503, with when to try again."""

    def __init__(self, status: int, retry_after_s: int) -> None:
        super().__init__(status, "the visitor was told to come back in %d s", retry_after_s)
        self.retry_after_s = retry_after_s


class Ruled(RequestHandler):
    """Mixin: the headers of every answer, and what `Later` says."""

    @property
    def rules(self) -> Rules:
        found: Rules = self.settings[LAB]
        return found

    def set_default_headers(self) -> None:
        super().set_default_headers()
        for name, value in (DATA if isinstance(self, APIHandler) else self.rules.headers).items():
            self.set_header(name, value)
        self.clear_header("Server")

    def write_error(self, status_code: int, **more: Any) -> None:
        error = (more.get("exc_info") or (None, None))[1]
        if isinstance(error, Later):
            self.set_header("Retry-After", str(error.retry_after_s))
            self.set_header("Cache-Control", "no-store")
        super().write_error(status_code, **more)

    def limit(self, rate: Rate | None) -> None:
        """Count one more of this address; raises `Later` where it is one too many."""
        wait_s = rate.take(_address(self.request.remote_ip or "")) if rate is not None else 0
        if wait_s:
            raise Later(429, wait_s)


def _address(text: str) -> str:
    """Whom to count: an IPv4 address, or an IPv6 network, which one customer has whole."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return text
    return str(found) if found.version == 4 else str(ipaddress.ip_network(f"{found}/64", strict=False))


class Page(Ruled, TornadoVoilaHandler):  # type: ignore[misc]
    """A page: one of the lab's notebooks, never another file."""

    async def get(self, path: str | None = None) -> None:
        """Run the notebook, if there is a seat."""
        if path not in self.rules.notebooks:
            raise HTTPError(404)
        self.limit(self.rules.pages)
        try:
            await super().get(path)  # type: ignore[misc]  # authenticated: a coroutine or, after a redirect, None
        except Full:
            raise Later(503, FULL_RETRY_S) from None

    async def get_generator(self, path: str | None = None) -> AsyncIterator[str]:
        """The page in parts, ended in words where its kernel does not come."""
        silent = 0
        async for part in super().get_generator(path=path):
            silent = silent + 1 if HEARTBEAT in part else 0
            if silent * self.voila_configuration.http_keep_alive_timeout > STARTING_S:
                self.log.error("A page's kernel did not start.")
                yield self.render_template("lab_failed.html") + "<script>window.voila_finish();</script>"
                return
            yield part


class ToFront(Ruled, JupyterHandler):
    """Sends a visitor to the index page; what the address asks for besides, like a theme, goes along."""

    def get(self) -> None:
        query = f"?{self.request.query}" if self.request.query else ""
        self.redirect(url_path_join(self.base_url, "voila", "render", self.rules.front) + query)


class Login(Ruled, VoilaLoginHandler):  # type: ignore[misc]
    """The form for the token."""

    def get_template(self, name: str) -> Any:
        """The lab's own form."""
        return self.settings["voila_jinja2_env"].get_template(name)

    @allow_unauthenticated
    def post(self) -> None:
        """Try a token."""
        self.limit(self.rules.logins)
        super().post()


class Socket(Ruled, VoilaKernelWebsocketHandler):  # type: ignore[misc]
    """A page's connection to its kernel. One that sends too much is cut off."""

    def on_message(self, ws_message: str | bytes) -> None:
        """Pass a message on."""
        uploads = self.rules.uploads
        if uploads is not None and uploads.take(self.kernel_id, len(ws_message) + MESSAGE_BYTES):
            self.log.warning("A page sent more than it may; its connection is closed.")
            self.close(1008, "too much was sent in one minute")
            return
        super().on_message(ws_message)


class TemplateFile(Ruled, TemplateStaticFileHandler):  # type: ignore[misc]
    """The template's static files; an address of another form is a 404, not an error of the server."""

    def parse_url_path(self, url_path: str) -> str:
        if not _TEMPLATE.fullmatch(url_path) or ".." in url_path.split("/"):
            raise HTTPError(404)
        found: str = super().parse_url_path(url_path)
        return found


REPLACED: dict[type[RequestHandler], type[RequestHandler]] = {
    VoilaKernelWebsocketHandler: Socket,
    TemplateStaticFileHandler: TemplateFile,
    TornadoVoilaHandler: Page,
    VoilaLoginHandler: Login,
    LoginFormHandler: Login,
    ToFront: ToFront,
}
KEPT = (
    KernelHandler,
    MultiStaticFileHandler,
    ThemesHandler,
    VoilaShutdownKernelHandler,
    FileFindHandler,  # of lab extensions: the widget manager
    LogoutHandler,
)
"""Of Voila's other handlers those that a page needs. Not kept: files, contents, the tree of folders."""


def ruled(cls: type[RequestHandler]) -> type[RequestHandler]:
    """A handler with the headers of every answer."""
    return REPLACED.get(cls) or type(cls.__name__, (Ruled, cls), {})


def ruled_handlers(handlers: Iterable[tuple[Any, ...]], base_url: str) -> list[tuple[Any, ...]]:
    """Of Voila's handlers those that a visitor needs, ruled."""
    kept = []
    for pattern, cls, *more in handlers:
        if cls in REPLACED or cls in KEPT:
            # Voila leaves these two outside the base address, where no proxy would pass them on.
            address = url_path_join(base_url, pattern) if pattern in ("/login", "/logout") else pattern
            kept.append((address, ruled(cls), *more))
    return kept


def rules_of(notebooks: Path, hosting: HostedSettings | None) -> Rules:
    """The rules of a server of the notebooks in a folder."""
    names = frozenset(path.name for path in notebooks.glob("*.ipynb"))
    if hosting is None:
        return Rules(notebooks=names, headers=page_headers())
    return Rules(
        notebooks=names,
        headers=page_headers(hosting.framed_by),
        pages=Rate(hosting.pages_per_minute),
        logins=Rate(hosting.logins_per_minute),
        uploads=Rate(hosting.upload_mib_per_minute * MIB),
    )
