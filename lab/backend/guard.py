"""What every request passes before the app sees it: the token, the rate, the content type, the size of the body."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
from typing import ClassVar

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lab.backend.headers import DATA
from lab.backend.hosting import HostedSettings
from lab.backend.limits import Limits
from lab.backend.rates import Rate
from lab.backend.wire import encode_error
from lab.errors import BadInput, Busy, LabError, TooMany, Unauthorized

log = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/live"})
BODY_TIMEOUT_S = 20.0
BODY = "lab.body"
"""Key of the ASGI scope under which the app finds the whole body."""
VISITOR = b"x-lab-visitor"
"""Header in which a page's kernel says whose request this is. Believed of this machine's processes alone."""


class TooLarge(BadInput):
    """The request's body is larger than allowed."""

    http_status: ClassVar[int] = 413


class WrongType(BadInput):
    """The request's body is not declared to be JSON."""

    http_status: ClassVar[int] = 415


class Guard:
    """ASGI middleware. Everything but a bare liveness needs the token; bodies are JSON within the limit.

    Args:
        token: what `Authorization: Bearer` must carry; compared in constant time.
        hosting: how often one visitor may run and ask; None: as often as it likes.
    """

    def __init__(self, app: ASGIApp, *, token: str, limits: Limits, hosting: HostedSettings | None = None) -> None:
        self._app = app
        self._token = token.encode()
        self._limits = limits
        self._rates: dict[str, tuple[Rate, str]] = {}
        if hosting is not None:
            self._rates = {
                "/runs": (Rate(hosting.runs_per_minute), f"{hosting.runs_per_minute} runs"),
                "/inspect": (Rate(hosting.questions_per_minute), f"{hosting.questions_per_minute} questions"),
            }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        send = _with_headers(send)
        try:
            if scope["path"] not in OPEN_PATHS:
                self._check_token(scope)
                self._check_rate(scope)
            if scope["method"] in ("POST", "PUT", "PATCH"):
                scope[BODY] = await asyncio.wait_for(self._body(scope, receive), BODY_TIMEOUT_S)
        except TimeoutError:
            late = f"The body did not arrive within {BODY_TIMEOUT_S:g} s."
            await send_error(send, BadInput(late, remedy="Send it again."))
        except LabError as error:
            await send_error(send, error)
        except ConnectionError:
            log.debug("a client left before its request was whole")
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the app answer. An exception that it did not expect ends here, not in the server, which would
        cut the connection that the client uses for its next request."""
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if begun:
                raise  # half an answer must not look like a whole one
            await send_error(send, unexpected(error))

    def _check_token(self, scope: Scope) -> None:
        given = _header(scope, b"authorization") or b""
        kind, _, token = given.partition(b" ")
        if kind.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self._token):
            raise Unauthorized(
                "The token is missing or wrong.", remedy="Send the header `Authorization: Bearer TOKEN`."
            )

    def _check_rate(self, scope: Scope) -> None:
        rate, allowed = self._rates.get(scope["path"], (None, ""))
        wait_s = rate.take(_visitor(scope)) if rate is not None else 0
        if wait_s:
            raise TooMany(
                f"This page asked for more than {allowed} a minute.",
                remedy=f"Try again in {wait_s} s.",
                retry_after_s=wait_s,
            )

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        limit = self._limits.body_bytes
        kind = (_header(scope, b"content-type") or b"").split(b";")[0].strip().lower()
        if kind != b"application/json":
            shown = kind.decode("latin-1")[:60] or "missing"
            raise WrongType(f"The content type is {shown}.", remedy="Send application/json.")
        declared = _header(scope, b"content-length")
        if declared is not None and declared.isdigit() and int(declared) > limit:
            raise _too_large(int(declared), limit)
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionResetError
            part: bytes = message.get("body", b"")
            size += len(part)
            if size > limit:
                raise _too_large(size, limit)
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)


def unexpected(error: Exception) -> LabError:
    """What a client is told of an internal error: its kind, no path and no traceback."""
    return LabError(
        f"The request failed with an internal error ({type(error).__name__}).",
        remedy="The log of the model process has the details.",
    )


def _too_large(size: int, limit: int) -> TooLarge:
    return TooLarge(f"The body has {size:,} bytes or more; the limit is {limit:,}.", remedy="Send shorter texts.")


def _header(scope: Scope, name: bytes) -> bytes | None:
    found: bytes | None = next((value for key, value in scope["headers"] if key == name), None)
    return found


def _visitor(scope: Scope) -> str:
    """Whose request it is: what a page's kernel says of itself, else the address that it comes from."""
    address = str((scope.get("client") or ("",))[0])
    try:
        loopback = ipaddress.ip_address(address).is_loopback
    except ValueError:
        loopback = False
    said = _header(scope, VISITOR) if loopback else None
    return said[:64].decode("latin-1") if said else address


def _with_headers(send: Send) -> Send:
    """`send` with the headers that every answer has; what the app says itself comes first."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ())]
            said = {name for name, _ in headers}
            headers += [(k.encode(), v.encode()) for k, v in DATA.items() if k.encode() not in said]
            message = {**message, "headers": headers}
        await send(message)

    return sending


async def send_error(send: Send, error: LabError) -> None:
    """Answer with the one shape of an error."""
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    if isinstance(error, Busy):
        headers.append((b"retry-after", str(error.retry_after_s).encode()))
    if isinstance(error, Unauthorized):
        headers.append((b"www-authenticate", b"Bearer"))
    body = encode_error(error)
    start: Message = {"type": "http.response.start", "status": error.http_status, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": body})
