"""The backend over HTTP: the client of `lab.backend.app`."""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import socket
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx

from lab.backend.protocol import DEFAULT_MODEL, Health, InspectRequest, RunRequest
from lab.backend.wire import EXPERIMENTS, HEALTH, MODELS, decode, decode_error, encode
from lab.errors import BackendUnavailable, BadInput, LabError
from lab.events import Event, ModelFacts, Proof, RunCancelled, RunFailed, RunFinished, decode_line, is_final
from lab.events.codec import from_json
from lab.experiments.base import ExperimentInfo

log = logging.getLogger(__name__)

REMEDY = "A lab that is up starts it again: try once more in a moment. If it stays away, run `lab doctor`."
SILENCE_S = 20.0
"""A stream says every few seconds that its run lives; silence for so long means that it does not."""


class HttpBackend:
    """A backend at an address; implements `Backend`.

    Args:
        url: "http://127.0.0.1:PORT".
        token: its bearer token.
        connect_s, answer_s: how long to wait for a connection, and for an answer (loading takes time).
    """

    def __init__(self, url: str, token: str, *, connect_s: float = 5.0, answer_s: float = 90.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise BadInput(f"{url!r} is not the address of a backend.", remedy="Write http://HOST:PORT.")
        self.url = url.rstrip("/")
        # No proxy from the environment: the token must go nowhere but to this address.
        self._client = httpx.Client(
            base_url=self.url,
            # The name is this client's alone: a hosted lab counts by it, so that no page takes another's turn.
            headers={"authorization": f"Bearer {token}", "x-lab-visitor": secrets.token_hex(8)},
            timeout=httpx.Timeout(answer_s, connect=connect_s),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=4),
            trust_env=False,
        )

    def health(self, timeout_s: float | None = None) -> Health:
        """How the model process is.

        Raises:
            BackendUnavailable: it cannot be reached; `Unauthorized`: the token is wrong.
        """
        found: Health = decode(HEALTH, self._get("/health", timeout_s=timeout_s))
        return found

    def models(self) -> list[ModelFacts]:
        """The models that can be asked for by name."""
        found: list[ModelFacts] = decode(MODELS, self._get("/models"))
        return found

    def experiments(self, model: str = DEFAULT_MODEL) -> list[ExperimentInfo]:
        """All experiments, their schemas narrowed to `model`."""
        found: list[ExperimentInfo] = decode(EXPERIMENTS, self._get("/experiments", {"model": model}))
        return found

    def run(self, request: RunRequest) -> HttpStream:
        """Start a run. Errors before its start are raised; later ones are its final event."""
        asked = self._client.build_request(
            "POST", "/runs", content=encode(request), headers={"content-type": "application/json"}
        )
        try:
            response = self._client.send(asked, stream=True)
            if response.status_code != httpx.codes.OK:
                body = response.read()
                response.close()
                raise decode_error(response.status_code, body, response.headers.get("retry-after"))
        except httpx.HTTPError as error:
            raise _unreachable(error) from None
        return HttpStream(response)

    def inspect(self, request: InspectRequest) -> dict[str, Any]:
        """Answer one question."""
        try:
            response = self._client.post(
                "/inspect", content=encode(request), headers={"content-type": "application/json"}
            )
        except httpx.HTTPError as error:
            raise _unreachable(error) from None
        body = _checked(response)
        try:
            answer = from_json(json.loads(body))
        except (ValueError, RecursionError):
            raise BackendUnavailable("The model process's answer is not JSON.", remedy=REMEDY) from None
        if not isinstance(answer, dict):
            raise BackendUnavailable("The model process's answer is not an object.", remedy=REMEDY)
        return answer

    def close(self) -> None:
        """Close all connections; runs that are under way are given up."""
        self._client.close()

    def _get(self, path: str, query: dict[str, str] | None = None, timeout_s: float | None = None) -> bytes:
        timeout = httpx.USE_CLIENT_DEFAULT if timeout_s is None else httpx.Timeout(timeout_s)
        try:
            return _checked(self._client.get(path, params=query, timeout=timeout))
        except httpx.HTTPError as error:
            raise _unreachable(error) from None


def _checked(response: httpx.Response) -> bytes:
    if response.status_code != httpx.codes.OK:
        raise decode_error(response.status_code, response.content, response.headers.get("retry-after"))
    return response.content


def _unreachable(error: Exception) -> BackendUnavailable:
    log.info("the model process cannot be reached: %r", error)
    return BackendUnavailable("The model process cannot be reached.", remedy=REMEDY)


class HttpStream:
    """A run's events over HTTP; implements `RunStream`. Always ends with a final event.

    A connection that breaks, or is silent for 20 s, ends with `RunFailed(code="backend")`.
    """

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        # Until the run has its place a long wait is in order; from then on there are heartbeats.
        response.request.extensions["timeout"]["read"] = SILENCE_S
        self._lines = response.iter_lines()
        self._closed = threading.Event()
        self._reading = False
        self._proved = False
        self._ended = False

    def __iter__(self) -> Iterator[Event]:
        while not self._ended:
            yield self._next()

    def _next(self) -> Event:
        self._reading = True
        try:
            event = self._read()
        except LabError as error:
            event = RunFailed(code=error.code, message=error.message, remedy=error.remedy)
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            log.info("a run's stream broke: %r", error)
            event = self._broken()
        finally:
            self._reading = False
        self._proved = self._proved or isinstance(event, Proof)
        if self._closed.is_set() and not isinstance(event, RunFinished):
            event = RunCancelled(reason="stopped" if self._proved else "stopped, unproven")
        if is_final(event):
            self._ended = True
            self._response.close()
        return event

    def _read(self) -> Event:
        for line in self._lines:
            if line.strip() or self._closed.is_set():
                return decode_line(line)
        return self._broken()

    def close(self) -> None:
        """Give the run up."""
        self._closed.set()
        stream = self._response.extensions.get("network_stream")
        connection = stream.get_extra_info("socket") if stream is not None else None
        if connection is not None:
            # Closing alone would not wake a thread that reads.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        if not self._reading:
            self._response.close()

    @staticmethod
    def _broken() -> RunFailed:
        return RunFailed(code="backend", message="The model process went away during the run.", remedy=REMEDY)
