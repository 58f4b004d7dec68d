"""Questions to a run or a model, each with one bounded answer."""

from __future__ import annotations

import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from lab.errors import Busy, LabError
from lab.events.codec import from_json, to_json

log = logging.getLogger(__name__)

Answer = dict[str, Any]

SLOW_MS = 100.0
CACHED_ANSWERS = 128


def bounded_answer(name: str, compute: Callable[[], Answer], max_bytes: int) -> Answer:
    """Compute an answer and check it.

    Raises:
        LabError: it is too large, or computing it failed.
    """
    began = time.perf_counter()
    try:
        plain = to_json(compute())
    except LabError:
        raise
    except Exception as error:
        log.exception("the question %r failed", name)
        raise LabError(
            f"The question {name!r} failed with an internal error ({type(error).__name__}).",
            remedy="The log of the model process has the details.",
        ) from None
    took_ms = (time.perf_counter() - began) * 1e3
    if took_ms > SLOW_MS:
        log.debug("the question %r took %.0f ms; runs waited for it", name, took_ms)
    size = len(json.dumps(plain, separators=(",", ":"), allow_nan=False).encode())
    if size > max_bytes:
        raise LabError(
            f"The answer to {name!r} has {size:,} bytes; the limit is {max_bytes:,}.", remedy="Ask for a smaller part."
        )
    answer: Answer = from_json(plain)
    return answer


class Question:
    """One question on its way through the worker."""

    def __init__(self, compute: Callable[[], Answer]) -> None:
        self._compute = compute
        self._future: Future[Answer] = Future()

    def answer(self) -> None:
        """Compute the answer, on the worker's thread; nothing is raised here."""
        if not self._future.set_running_or_notify_cancel():
            return
        try:
            self._future.set_result(self._compute())
        except BaseException as error:  # noqa: BLE001 - the worker goes on, whatever a question raises
            self._future.set_exception(error if isinstance(error, LabError) else LabError("The question failed."))

    def refuse(self, error: LabError) -> None:
        """Answer with an error instead."""
        try:
            self._future.set_exception(error)
        except InvalidStateError:
            log.debug("a question was answered or given up before it was refused")

    def wait(self, timeout_s: float) -> Answer:
        """The answer.

        Raises:
            Busy: it did not come in time.
            LabError: what computing it raised.
        """
        try:
            return self._future.result(timeout_s)
        except FutureTimeout:
            self._future.cancel()
            raise Busy(
                f"The question was not answered within {timeout_s:g} s: the model process is loading or busy.",
                remedy="Ask again in a moment.",
            ) from None


class AnswerCache:
    """The latest answers of runs that have ended, and of models. Not safe between threads: its owner locks."""

    def __init__(self, limit: int = CACHED_ANSWERS) -> None:
        self._limit = limit
        self._answers: OrderedDict[str, Answer] = OrderedDict()

    def get(self, key: str) -> Answer | None:
        """The answer, if it is still there."""
        found = self._answers.get(key)
        if found is not None:
            self._answers.move_to_end(key)
        return found

    def put(self, key: str, answer: Answer) -> None:
        """Remember an answer, dropping the least recently used."""
        self._answers[key] = answer
        self._answers.move_to_end(key)
        while len(self._answers) > self._limit:
            self._answers.popitem(last=False)
