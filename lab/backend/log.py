"""A run's events in memory, for any number of readers, early or late."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator

from lab.events import Event, Proof, RunCancelled, is_final

STOPPED = "stopped"


class RunLog:
    """All events of one run. The worker publishes; each reader gets every event in order, the backlog first.

    Args:
        on_abandoned: called (with no lock held) when the last reader left before the end.
    """

    def __init__(self, run_id: str, on_abandoned: Callable[[], None] | None = None) -> None:
        self.run_id = run_id
        self._on_abandoned = on_abandoned
        self._changed = threading.Condition()
        self._events: list[Event] = []
        self._readers: list[Subscription] = []
        self._ended = False

    @classmethod
    def of(cls, run_id: str, events: Iterable[Event]) -> RunLog:
        """A log that has ended: of a recorded run."""
        log = cls(run_id)
        log._events = list(events)
        log._ended = True
        return log

    @property
    def events(self) -> tuple[Event, ...]:
        """What was published so far."""
        with self._changed:
            return tuple(self._events)

    @property
    def ended(self) -> bool:
        """Whether the final event was published."""
        with self._changed:
            return self._ended

    @property
    def readers(self) -> int:
        """How many read now."""
        with self._changed:
            return len(self._readers)

    def publish(self, event: Event) -> None:
        """Append one event and wake the readers. After a final event nothing more is taken."""
        with self._changed:
            if self._ended:
                return
            self._events.append(event)
            self._ended = is_final(event)
            self._changed.notify_all()
            readers = list(self._readers)
        for reader in readers:
            reader._wake()

    def subscribe(self) -> Subscription:
        """A new reader, at the first event."""
        with self._changed:
            reader = Subscription(self)
            self._readers.append(reader)
            return reader

    def _leave(self, reader: Subscription) -> None:
        with self._changed:
            if reader not in self._readers:
                return
            self._readers.remove(reader)
            abandoned = not self._readers and not self._ended
            self._changed.notify_all()
        if abandoned and self._on_abandoned is not None:
            self._on_abandoned()


class Subscription:
    """One reader of a run; implements `RunStream`.

    Closing it before the end gives the run up, unless others read it too. An iteration that is under way, in
    another thread or in an event loop, then ends with `RunCancelled`.
    """

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._next = 0
        self._closed = False
        self._told_end = False
        self._news: Callable[[], None] | None = None

    @property
    def run_id(self) -> str:
        """Names the run for `inspect`."""
        return self._log.run_id

    def _take(self) -> list[Event]:
        """What came since the last call, under the log's lock. After `close` a last `RunCancelled`."""
        if self._told_end:
            return []
        events = self._log._events[self._next :]
        self._next += len(events)
        if self._closed and not self._log._ended:
            events = [*events, RunCancelled(reason=stop_reason(self._log._events))]
        self._told_end = any(is_final(event) for event in events)
        return events

    def __iter__(self) -> Iterator[Event]:
        while not self._told_end:
            with self._log._changed:
                self._log._changed.wait_for(
                    lambda: self._closed or self._log._ended or self._next < len(self._log._events)
                )
                events = self._take()
            yield from events
        self.close()

    async def batches(self, quiet_s: float | None = None) -> AsyncGenerator[list[Event], None]:
        """The events for a reader in an event loop: as many at a time as there are, none lost, up to the final one.

        Args:
            quiet_s: seconds without an event after which an empty batch says so; None: never. The caller closes
                the subscription; leaving the loop early closes nothing.
        """
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(news.set)

        self._news = wake
        while not self._told_end:
            news.clear()  # before taking: what comes in between is heard
            with self._log._changed:
                batch = self._take()
            if batch:
                yield batch
                continue
            try:
                await asyncio.wait_for(news.wait(), quiet_s)
            except TimeoutError:
                yield []

    def _wake(self) -> None:
        """Tell an event loop that there is something to take. Called from the worker's thread."""
        news = self._news
        if news is not None:
            with contextlib.suppress(RuntimeError):  # the reader's event loop has closed: it is going away
                news()

    def close(self) -> None:
        """Stop reading. May be called from any thread, more than once."""
        with self._log._changed:
            self._closed = True
            self._log._changed.notify_all()
        self._wake()
        self._log._leave(self)


def stop_reason(events: Iterable[Event]) -> str:
    """What a stopped run says of itself: whether its proof had come."""
    return STOPPED if any(isinstance(event, Proof) for event in events) else f"{STOPPED}, unproven"
