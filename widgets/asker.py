"""Questions to the backend that are no run: answered in a thread, the newest of each topic wins."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from typing import Any

from lab.backend.protocol import Backend, InspectRequest
from lab.errors import LabError
from lab.events.recording import Inspection
from widgets.session import Session

log = logging.getLogger(__name__)

NEVER_ASKED = "This was never asked while the run was recorded."
RUN_AGAIN = "Press Run to ask it here."
"""Said too where a run can be started: a live one has answers to all questions."""
Answer = dict[str, Any]
Reply = Callable[[Answer | None, str], None]


class Asker:
    """Asks `inspect`, remembers the answers, and adds them to the run's recording.

    Args:
        backend: gives the backend; called in the asking thread.
        session: the run that is asked about; in a replay only recorded answers are given.
    """

    def __init__(
        self, experiment: str, backend: Callable[[], Backend], session: Session, lock: threading.RLock
    ) -> None:
        self._experiment = experiment
        self._backend = backend
        self._session = session
        self._lock = lock
        self._known: dict[str, Answer] = {}
        self._wanted: dict[str, tuple[str, InspectRequest, list[Reply]]] = {}
        self._wake = threading.Condition()
        self._closed = False
        threading.Thread(target=self._loop, name="lab-ask", daemon=True).start()

    def ask(
        self,
        name: str,
        params: dict[str, Any],
        reply: Reply,
        *,
        of_run: bool,
        model: str,
        live: bool = False,
    ) -> None:
        """Ask `name`; `reply(answer, "")` or `reply(None, why not)` comes at once or from the asking thread.

        Args:
            of_run: whether the question is about the run on screen rather than the model alone.
            live: the backend is there, so what is not about the run is asked of `model` on this machine,
                whatever a recording of some model on some machine answered; and what was never asked of a
                recorded run can be asked of another run.
        """
        with self._lock:
            kept = self._session.inspections if of_run or not live else []
            recorded = next((i.answer for i in kept if i.name == name and i.params == params), None)
            started = self._session.started
            dead = of_run and (self._session.replaying or bool(started and started.recorded))
        if recorded is not None:
            reply(recorded, "")
            return
        if dead:
            reply(None, f"{NEVER_ASKED} {RUN_AGAIN}" if live else NEVER_ASKED)
            return
        run_id = started.run_id if of_run and started else None
        request = InspectRequest(experiment=self._experiment, name=name, params=params, run_id=run_id, model=model)
        key = json.dumps([name, run_id, model, params], sort_keys=True)
        if key in self._known:
            self._record(request, self._known[key])
            reply(self._known[key], "")
            return
        with self._wake:
            held = self._wanted.get(name)
            replies = held[2] if held and held[0] == key else []  # two parts of a page may ask the same
            self._wanted[name] = (key, request, [*replies, reply])
            self._wake.notify()

    def close(self) -> None:
        """End the asking thread."""
        with self._wake:
            self._closed = True
            self._wake.notify()

    def _loop(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._wanted or self._closed)
                if self._closed:
                    return
                name = next(iter(self._wanted))
                key, request, replies = self._wanted.pop(name)
            answer, why = self._answer(key, request)
            if answer is not None:
                self._record(request, answer)
            for reply in replies:
                reply(answer, why)

    def _answer(self, key: str, request: InspectRequest) -> tuple[Answer | None, str]:
        """The answer, or None and why there is none."""
        answer = self._known.get(key)
        if answer is not None:  # it was in flight when this was asked
            return answer, ""
        try:
            answer = self._backend().inspect(request)
        except LabError as error:
            return None, str(error)
        except Exception:
            log.exception("a question could not be answered")
            return None, "This could not be answered; the server's log says why."
        self._known[key] = answer
        if len(self._known) > 256:
            self._known.pop(next(iter(self._known)))
        return answer, ""

    def _record(self, request: InspectRequest, answer: Answer) -> None:
        """Keep the answer with the run on screen, if it is about that run or about that run's model."""
        with self._lock:
            started = self._session.started
            if started is None or self._session.replaying:
                return
            own = started.run_id == request.run_id if request.run_id else started.card.model == request.model
            item = Inspection(name=request.name, params=request.params, answer=answer)
            if own and item not in self._session.inspections:
                self._session.inspections.append(item)
