"""One replica: a `LocalBackend` of its own, asked by the front."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any

from ray import serve

from lab.backend.local import LocalBackend
from lab.backend.protocol import InspectRequest, RunRequest
from lab.backend.wire import decode_error, encode_error
from lab.errors import LabError
from lab.events import encode_line

MakeBackend = Callable[[], LocalBackend]

Refusal = tuple[int, bytes, str | None]
"""An error: its status, its body, and when to retry."""


class ModelReplica:
    """Runs experiments for the front. All answers are plain values.

    Args:
        make_backend: called in the replica's own process.
        model: loaded ahead.
    """

    def __init__(self, make_backend: MakeBackend, model: str) -> None:
        self._backend = make_backend()
        self._model = model
        self._id = serve.get_replica_context().replica_id.unique_id
        self._backend.warm(model)

    async def run(self, request: RunRequest, prefer: str = "") -> AsyncGenerator[Any, None]:
        """First ("started", id of this replica, id of the run) or ("refused", error); then lines of events.

        Closing the generator, or cancelling the call, gives the run up.
        """
        del prefer  # the router reads it
        try:
            events = await asyncio.to_thread(self._backend.run, request)
        except LabError as error:
            yield "refused", refusal(error)
            return
        try:
            yield "started", self._id, events.run_id
            async with contextlib.aclosing(events.batches()) as batches:
                async for batch in batches:
                    yield "".join(encode_line(event) for event in batch)
        finally:
            events.close()

    async def inspect(self, request: InspectRequest, prefer: str = "") -> tuple[str, Any]:
        """("answer", the answer) or ("refused", error)."""
        del prefer
        return await _told(lambda: self._backend.inspect(request))

    async def facts(self) -> tuple[str, Any]:
        """("answer", the model's facts) or ("refused", error)."""
        return await _told(lambda: self._backend.facts(self._model))

    async def experiments(self) -> tuple[str, Any]:
        """("answer", what `Backend.experiments` gives) or ("refused", error)."""
        return await _told(lambda: self._backend.experiments(self._model))

    def check_health(self) -> None:
        """Asked by Ray now and then; an exception would have the replica replaced."""
        self._backend.health()


async def _told(call: Callable[[], Any]) -> tuple[str, Any]:
    try:
        return "answer", await asyncio.to_thread(call)
    except LabError as error:
        return "refused", refusal(error)


def refusal(error: LabError) -> Refusal:
    """`error` as the wire has it: what crosses processes must not depend on how exceptions are pickled."""
    retry = getattr(error, "retry_after_s", None)
    return error.http_status, encode_error(error), None if retry is None else str(retry)


def raised(told: Refusal) -> LabError:
    """The error that a replica told."""
    return decode_error(*told)
