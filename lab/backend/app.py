"""The HTTP app around a backend.

    GET  /live                   {"ok": true}; needs no token and says nothing else
    GET  /health                 how the model process is
    GET  /models                 facts of the models
    GET  /experiments?model=ID   experiments with their JSON schema, narrowed to a model
    POST /runs                   a run: newline-delimited JSON events until the final one; a blank line says only
                                 that the run lives. Closing the connection gives the run up.
    POST /inspect                one bounded answer

All but /live need `Authorization: Bearer TOKEN`. Errors have one shape: {"code", "message", "remedy"}. In a hosted
lab the operator's list holds for all that comes this way: see `lab.backend.hosted`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from lab import __version__
from lab.backend.guard import BODY, Guard, send_error
from lab.backend.hosted import HostedBackend
from lab.backend.hosting import HostedSettings
from lab.backend.log import Subscription
from lab.backend.protocol import DEFAULT_MODEL, InspectRequest, RunRequest
from lab.backend.served import Served
from lab.backend.wire import HEARTBEAT, encode, parse_request
from lab.errors import LabError, NotFound
from lab.events import encode_line

log = logging.getLogger(__name__)

JSON = "application/json"
NDJSON = "application/x-ndjson"
MAX_CHUNK_EVENTS = 64


def create_app(local: Served, token: str, hosting: HostedSettings | None = None) -> FastAPI:
    """The app. No documentation pages: they would load scripts from elsewhere.

    Args:
        token: the bearer token that every request but /live must carry.
        hosting: what visitors may do; None: whoever has the token may do what this machine's user may.
    """
    backend: Served | HostedBackend = local if hosting is None else HostedBackend(local, hosting)
    app = FastAPI(title="Inference Lab", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    limits = local.limits

    async def answer(call: Callable[[], Any]) -> Response:
        return Response(encode(await run_in_threadpool(call)), media_type=JSON, headers={"cache-control": "no-store"})

    @app.get("/live")
    async def live() -> Response:
        return Response(encode({"ok": True}), media_type=JSON)

    @app.get("/health")
    async def health() -> Response:
        # Not in the pool: it must answer even when every thread of the pool waits.
        return Response(encode(backend.health()), media_type=JSON, headers={"cache-control": "no-store"})

    @app.get("/models")
    async def models() -> Response:
        return await answer(backend.models)

    @app.get("/experiments")
    async def experiments(request: Request) -> Response:
        model = request.query_params.get("model", DEFAULT_MODEL)
        return await answer(lambda: backend.experiments(model))

    @app.post("/runs")
    async def runs(request: Request) -> Response:
        asked = parse_request(RunRequest, request.scope[BODY], limits.json_depth)
        return EventStream(await run_in_threadpool(backend.run, asked), limits.heartbeat_s)

    @app.post("/inspect")
    async def inspect(request: Request) -> Response:
        asked = parse_request(InspectRequest, request.scope[BODY], limits.json_depth)
        return await answer(lambda: backend.inspect(asked))

    app.add_exception_handler(LabError, _lab_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_middleware(Guard, token=token, limits=limits, hosting=hosting)
    return app


class _ErrorResponse(Response):
    def __init__(self, error: LabError, status: int | None = None) -> None:
        super().__init__(status_code=status or error.http_status)
        self._error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send_error(send, self._error)


async def _lab_error(request: Request, error: Exception) -> Response:
    del request
    return _ErrorResponse(error if isinstance(error, LabError) else LabError("The request failed."))


async def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return _ErrorResponse(
        NotFound(
            f"{request.method} {request.url.path[:100]} is not offered ({status}).",
            remedy="There are /health, /models, /experiments, /runs and /inspect.",
        )
    )


class EventStream(Response):
    """A run's events as they come. When the client is gone, the subscription is closed at once."""

    media_type = NDJSON

    def __init__(self, events: Subscription, heartbeat_s: float) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._heartbeat_s = heartbeat_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        gone = asyncio.create_task(_disconnected(receive))
        writing = asyncio.create_task(self._write(send))
        try:
            await asyncio.wait({gone, writing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._events.close()
            for task in (gone, writing):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, OSError):
                    await task

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with contextlib.aclosing(self._events.batches(self._heartbeat_s)) as batches:
            async for batch in batches:
                for start in range(0, len(batch), MAX_CHUNK_EVENTS):
                    lines = "".join(encode_line(event) for event in batch[start : start + MAX_CHUNK_EVENTS])
                    await send({"type": "http.response.body", "body": lines.encode(), "more_body": True})
                if not batch:
                    await send({"type": "http.response.body", "body": HEARTBEAT, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
