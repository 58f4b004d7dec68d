"""Questions of one section: each asked once, its answer kept, the last answer shown until a newer one comes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from widgets.experiment import Desk

T = TypeVar("T")
Answer = dict[str, Any]


class Asked(Generic[T]):
    """Answers to one kind of question. The desk keeps only the newest question of a name, so one is waited for at most.

    Args:
        name: of the question.
        read: makes of an answer what the section draws; KeyError, TypeError, ValueError or IndexError mean that it
            cannot be read.
        of_run: whether the questions are about the run on screen rather than the model alone.
    """

    def __init__(self, desk: Desk, name: str, read: Callable[[Answer], T], *, of_run: bool = False) -> None:
        self._desk = desk
        self._name = name
        self._read = read
        self._of_run = of_run
        self._known: dict[str, T] = {}
        self._refused: dict[str, str] = {}
        self._waiting = ""
        self._turn = 0
        self.last: T | None = None

    def clear(self) -> None:
        """The model may be another one: forget the answers; the last one stays on screen until a newer comes."""
        self._known.clear()
        self._refused.clear()
        self._waiting = ""
        self._turn += 1

    def known(self, question: Mapping[str, Any]) -> T | None:
        """The answer, if it is there."""
        return self._known.get(_key(question))

    def why_not(self, question: Mapping[str, Any]) -> str:
        """Why there is none; "" if there is one or it is on its way."""
        return self._refused.get(_key(question), "")

    def ask(self, question: Mapping[str, Any]) -> T | None:
        """The answer; asks for it where it is neither there, nor refused, nor on its way. Callers hold the lock."""
        key = _key(question)
        # A refusal stands while its question does; whoever comes back to it later asks again.
        self._refused = {k: why for k, why in self._refused.items() if k == key}
        if key not in self._known and key not in self._refused and key != self._waiting:
            self._waiting, turn = key, self._turn
            self._desk.ask(
                self._name, dict(question), lambda answer, why: self._take(key, answer, why, turn), of_run=self._of_run
            )
        found = self._known.get(key)
        self.last = self.last if found is None else found
        return found

    def _take(self, key: str, answer: Answer | None, why: str, turn: int) -> None:
        with self._desk.lock:
            if turn != self._turn:  # asked before `clear`: perhaps of another model
                return
            if self._waiting == key:
                self._waiting = ""
            if answer is None:
                self._refused[key] = why or "There is no answer."
            else:
                try:
                    self._known[key] = self._read(answer)
                except (KeyError, TypeError, ValueError, IndexError):
                    self._refused[key] = "The answer could not be read."
        self._desk.touch()


def _key(question: Mapping[str, Any]) -> str:
    return json.dumps(question, sort_keys=True, default=list)
