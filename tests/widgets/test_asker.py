"""Questions to the backend: which are kept, who gets the answer."""

from __future__ import annotations

import threading
from typing import Any, cast

from quantization_whole import started

from lab.backend.protocol import Backend, InspectRequest
from widgets.asker import NEVER_ASKED, RUN_AGAIN, Asker
from widgets.page import Dashboard
from widgets.session import Session


class Alone:
    """A backend without anything."""

    def models(self) -> list[Any]:
        return []

    def experiments(self, model: str | None = None) -> list[Any]:
        del model
        return []

    def inspect(self, request: InspectRequest) -> dict[str, Any]:
        return {"model": request.model}


class Held:
    """A backend that answers when it is let."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.begun, self.go = threading.Semaphore(0), threading.Semaphore(0)

    def inspect(self, request: InspectRequest) -> dict[str, Any]:
        self.asked.append(dict(request.params))
        self.begun.release()
        assert self.go.acquire(timeout=10)
        return {"answer": request.params.get("bits")}


def test_two_parts_of_a_page_that_ask_the_same_are_both_answered() -> None:
    lock, backend, came = threading.RLock(), Held(), threading.Semaphore(0)
    asker = Asker(
        "quantization",
        lambda: cast(Backend, backend),
        Session(lock, lambda _event: None, lambda: None),
        lock,
    )
    heard: list[tuple[str, Any]] = []

    def ask(who: str, bits: int) -> None:
        def reply(answer: dict[str, Any] | None, why: str) -> None:
            assert (answer is None) == bool(why)
            heard.append((who, answer and answer["answer"]))
            came.release()

        asker.ask("histogram", {"bits": bits}, reply, of_run=False, model="toy", live=True)

    try:
        ask("first", 4)
        assert backend.begun.acquire(timeout=10)
        ask("displaced", 6)
        ask("lesson", 5)
        ask("section", 5)
        backend.go.release(2)
        for _ in range(3):
            assert came.acquire(timeout=10)
        assert heard == [("first", 4), ("lesson", 5), ("section", 5)]
        ask("again", 4)  # known, so at once
        assert heard[-1] == ("again", 4)
        assert [params["bits"] for params in backend.asked] == [4, 5]
    finally:
        asker.close()


def test_what_was_never_asked_of_a_recording_can_be_asked_of_a_run_where_there_is_a_backend() -> None:
    lock = threading.RLock()
    session = Session(lock, lambda _event: None, lambda: None)
    session.replaying = True
    asker = Asker("lora", lambda: cast(Backend, Alone()), session, lock)
    try:
        said: list[str] = []
        for live in (True, False):
            asker.ask("scale", {}, lambda _a, why: said.append(why), of_run=True, model="toy", live=live)
        assert said == [f"{NEVER_ASKED} {RUN_AGAIN}", NEVER_ASKED]
    finally:
        asker.close()


def test_a_model_that_is_only_chosen_is_not_asked_while_another_s_run_is_on_screen() -> None:
    page = Dashboard("quantization", backend=cast(Backend, Alone()), autorun=False)
    try:
        asked: list[str] = []
        page._asker.ask = lambda *_a, model, **_k: asked.append(model)  # type: ignore[method-assign]
        page._state.model = "/models/other"
        page._ask("group", {}, None, of_run=False)  # a recording is on screen: the chosen model answers
        run = started()
        with page.pump.lock:
            page.session._begin()
            page.session._take(run)
        asked.clear()
        page._ask("group", {}, None, of_run=False)
        assert asked == [run.card.model] != ["/models/other"]
        page.session.replaying = True
        page._ask("group", {}, None, of_run=False)
        assert asked[-1] == "/models/other"
    finally:
        page.close()
