"""What every request passes before the app sees it: the token, the content type, the size of the body."""

from __future__ import annotations

import asyncio
import hmac
import logging
from typing import ClassVar

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lab.backend.limits import Limits
from lab.backend.wire import encode_error
from lab.errors import BadInput, Busy, LabError, Unauthorized

log = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/live"})
BODY_TIMEOUT_S = 20.0
BODY = "lab.body"
"""Key of the ASGI scope under which the app finds the whole body."""


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
    """

    def __init__(self, app: ASGIApp, *, token: str, limits: Limits) -> None:
        self._app = app
        self._token = token.encode()
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        try:
            if scope["path"] not in OPEN_PATHS:
                self._check_token(scope)
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
    return TooLarge(f"The body has {size:,} bytes or more; the limit is {limit:,}.", remedy="Shorten the prompt.")


def _header(scope: Scope, name: bytes) -> bytes | None:
    found: bytes | None = next((value for key, value in scope["headers"] if key == name), None)
    return found


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
