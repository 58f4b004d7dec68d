"""A page's run without a page: started, stopped, replaced, broken off, replayed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lab.backend.protocol import RunRequest
from lab.errors import BackendUnavailable, BadInput
from lab.events import Event, Progress, Proof, Queued, Recording, RunCancelled, RunFailed, RunFinished, RunStarted
from widgets.proof_words import proof_state
from widgets.session import ACTIVE, Session


class Gate:
    """A stream that the test opens event by event; closing it ends it as the real ones do."""

    def __init__(self, events: list[Event], error: Exception | None = None) -> None:
        self.events = events
        self.error = error
        self.allowed = threading.Semaphore(0)
        self.closed = threading.Event()

    def __iter__(self) -> Iterator[Event]:
        for event in self.events:
            self.allowed.acquire()
            if self.closed.is_set():
                yield RunCancelled()
                return
            yield event
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        self.closed.set()
        self.allowed.release()

    def let(self, n: int) -> None:
        for _ in range(n):
            self.allowed.release()


class Backend:
    def __init__(self, *streams: Gate | Exception) -> None:
        self.streams = list(streams)

    def run(self, request: RunRequest) -> Gate:
        del request
        stream = self.streams.pop(0)
        if isinstance(stream, Exception):
            raise stream
        return stream


class Page:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition()
        self.taken: list[Event | None] = []
        self.session = Session(self.lock, self.taken.append, self.announce)

    def announce(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def wait(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, 10), self.session.phase


@pytest.fixture
def page() -> Page:
    return Page()


def REQUEST(_backend: object) -> RunRequest:  # noqa: N802 - reads as a constant
    return RunRequest(experiment="kv_cache")


def test_a_run_from_start_to_end(page: Page, started: RunStarted) -> None:
    gate = Gate([started, Queued(position=2), Progress(stage="token", done=1, total=4), RunFinished(text="x")])
    page.session.run(lambda: Backend(gate), REQUEST)
    gate.let(2)
    page.wait(lambda: page.session.phase == "queued" and len(page.session.events) == 2)
    assert page.session.note == "2 runs before yours"
    gate.let(1)
    page.wait(lambda: page.session.phase == "running")
    assert (page.session.note, page.session.fraction) == ("token 1 of 4", 0.25)
    gate.let(1)
    page.wait(lambda: page.session.phase == "done")
    recording = page.session.recording()
    assert recording is not None
    assert recording.events == tuple(gate.events)


def test_stop_ends_as_stopped_and_unproven(page: Page, started: RunStarted) -> None:
    gate = Gate([started, Progress(stage="token", done=1, total=4), RunFinished()])
    page.session.run(lambda: Backend(gate), REQUEST)
    gate.let(2)
    page.wait(lambda: page.session.phase == "running" and len(page.session.events) == 2)
    page.session.stop()
    page.wait(lambda: page.session.phase == "stopped")
    assert isinstance(page.session.events[-1], RunCancelled)
    assert proof_state(page.session)["text"] == "Stopped, unproven."
    assert page.session.recording() is not None


def test_a_second_run_replaces_the_first(page: Page, started: RunStarted) -> None:
    first, second = Gate([started, RunFinished(text="first")]), Gate([started, RunFinished(text="second")])
    backend = Backend(first, second)
    page.session.run(lambda: backend, REQUEST)
    first.let(1)
    page.wait(lambda: len(page.session.events) == 1)
    page.session.run(lambda: backend, REQUEST)
    assert first.closed.is_set()
    second.let(2)
    page.wait(lambda: page.session.phase == "done")
    assert page.session.events[-1] == RunFinished(text="second")


@pytest.mark.parametrize(
    ("error", "code"),
    [(BadInput("The prompt is empty.", remedy="Type one."), "bad_input"), (BackendUnavailable("Gone."), "backend")],
)
def test_a_refused_run_says_why_and_the_next_works(
    page: Page, started: RunStarted, error: Exception, code: str
) -> None:
    gate = Gate([started, RunFinished()])
    backend = Backend(error, gate)
    page.session.run(lambda: backend, REQUEST)
    page.wait(lambda: page.session.phase == "failed")
    assert page.session.trouble is not None
    assert page.session.trouble.code == code
    gate.let(2)
    page.session.run(lambda: backend, REQUEST)
    page.wait(lambda: page.session.phase == "done")
    assert page.session.trouble is None


def test_a_stream_that_breaks_is_a_failure_in_words(page: Page, started: RunStarted) -> None:
    gate = Gate([started], error=RuntimeError("/secret/path"))
    page.session.run(lambda: Backend(gate), REQUEST)
    gate.let(1)
    page.wait(lambda: page.session.phase == "failed")
    assert page.session.trouble is not None
    assert "/secret" not in page.session.trouble.message + page.session.trouble.remedy


def test_run_failed_fills_the_panel(page: Page, started: RunStarted) -> None:
    gate = Gate([started, RunFailed(code="deadline", message="Too long.", remedy="Ask for less.")])
    page.session.run(lambda: Backend(gate), REQUEST)
    gate.let(2)
    page.wait(lambda: page.session.phase == "failed")
    assert page.session.trouble is not None
    assert (page.session.trouble.message, page.session.trouble.remedy) == ("Too long.", "Ask for less.")
    assert page.session.phase not in ACTIVE


@pytest.mark.parametrize(("done", "total", "note"), [(2, 8, "words 2 of 8"), (333, 1000, "words 33\u00a0%")])
def test_what_counts_in_thousandths_is_shown_as_a_share(
    page: Page, started: RunStarted, done: int, total: int, note: str
) -> None:
    gate = Gate([started, Progress(stage="words", done=done, total=total), RunFinished()])
    page.session.run(lambda: Backend(gate), REQUEST)
    gate.let(2)
    page.wait(lambda: page.session.phase == "running" and page.session.note == note)
    assert page.session.fraction == done / total
    gate.let(1)
    page.wait(lambda: page.session.phase == "done")


def test_two_hundred_lines_arrive_in_order(page: Page, started: RunStarted) -> None:
    events: list[Event] = [started, *(Progress(stage="line", done=i, total=200) for i in range(200)), RunFinished()]
    gate = Gate(events)
    page.session.run(lambda: Backend(gate), REQUEST)
    gate.let(len(events))
    page.wait(lambda: page.session.phase == "done")
    assert page.taken == [None, *events]


def test_a_recording_is_shown_whole(page: Page, started: RunStarted) -> None:
    proof = Proof(verdict="equal", claim="identical to generate()", compared=3, matched=3)
    page.session.show(Recording((started, proof, RunFinished(text="x"))))
    assert page.session.replaying
    assert page.session.phase == "done"
    assert proof_state(page.session)["text"] == "Identical to generate(): 3 of 3 tokens"


def words(**fields: Any) -> str:
    from widgets.proof_words import words as say

    return say(Proof(**{"claim": "identical to generate()", "compared": 9, "matched": 4, **fields}))


def test_proof_words() -> None:
    assert words(verdict="different", explanation="Layer 15 forgot.") == (
        "Not identical to generate(): 4 of 9 tokens agree. Layer 15 forgot."
    )
    assert words(verdict="tie", explanation="Gap 1e-6.").startswith("Identical to generate() up to a tie: 4 of 9")
    assert words(verdict="unproven", explanation="Stopped.") == "Unproven. Stopped."


def test_the_figures_behind_a_proof_are_rows_of_text(page: Page, started: RunStarted) -> None:
    detail = {
        "tokens": 3,
        "smallest_gap": 0.000123456,
        "prefill_chunk_of_generate": None,
        "findings": [{"kind": "fed_twice", "index": 1, "words": "token 1 was fed twice"}],
        "first_difference": {"index": 1, "gap": None},
    }
    proof = Proof(verdict="different", claim="identical to generate()", compared=3, matched=1, detail=detail)
    page.session.show(Recording((started, proof, RunFinished())))
    assert proof_state(page.session)["detail"] == [
        ["tokens", "3"],
        ["smallest gap", "0.0001235"],
        ["findings", "token 1 was fed twice"],
        ["first difference: index", "1"],
    ]
