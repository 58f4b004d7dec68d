"""A run's log as an event loop reads it."""

from __future__ import annotations

import asyncio
import threading

from backend.toys import until
from lab.backend.log import RunLog, Subscription
from lab.events import Event, Progress, RunCancelled, RunFailed

END = RunFailed(code="backend", message="over")


def step(number: int) -> Progress:
    return Progress(stage="a", done=number, total=1)


async def read(reader: Subscription, heard: list[list[Event]], quiet_s: float | None = None) -> None:
    async for batch in reader.batches(quiet_s):
        heard.append(batch)


def test_an_event_loop_gets_every_event_in_order_and_the_end() -> None:
    log, heard = RunLog("r"), list[list[Event]]()
    log.publish(step(0))
    reader, late = log.subscribe(), log.subscribe()

    def publish() -> None:
        for number in range(1, 2000):
            log.publish(step(number))
        log.publish(END)

    worker = threading.Thread(target=publish)
    worker.start()
    asyncio.run(read(reader, heard))
    worker.join()
    assert [event for batch in heard for event in batch] == [*map(step, range(2000)), END]
    assert all(heard)  # without `quiet_s` no batch is empty
    backlog: list[list[Event]] = []
    asyncio.run(read(late, backlog))
    assert backlog == [list(log.events)]


def test_silence_is_said_and_reading_goes_on() -> None:
    log, heard = RunLog("r"), list[list[Event]]()
    reader = log.subscribe()

    def publish() -> None:
        until(lambda: [] in heard, "silence was told")
        log.publish(step(1))
        log.publish(END)

    worker = threading.Thread(target=publish)
    worker.start()
    asyncio.run(read(reader, heard, 0.01))
    worker.join()
    assert heard[0] == []
    assert [event for batch in heard for event in batch] == [step(1), END]


def test_a_reader_that_is_closed_elsewhere_is_woken_and_ends() -> None:
    left: list[str] = []
    log, heard = RunLog("r", on_abandoned=lambda: left.append("left")), list[list[Event]]()
    reader = log.subscribe()
    log.publish(step(1))

    def close() -> None:
        until(lambda: heard == [[step(1)]], "it waits for more")
        reader.close()

    worker = threading.Thread(target=close)
    worker.start()
    asyncio.run(asyncio.wait_for(read(reader, heard), 10))
    worker.join()
    assert heard[1:] == [[RunCancelled(reason="stopped, unproven")]]
    assert left == ["left"]


def test_a_loop_that_is_gone_harms_no_one() -> None:
    log, heard = RunLog("r"), list[list[Event]]()
    reader, other = log.subscribe(), log.subscribe()
    log.publish(step(1))

    async def leave() -> None:
        async for batch in reader.batches():
            heard.append(batch)
            break

    asyncio.run(leave())
    log.publish(END)  # its loop has closed
    assert list(other) == [step(1), END]
    assert heard == [[step(1)]]
