"""The one writer: coalesces, never loses the end, survives a view that raises."""

from __future__ import annotations

import threading

from widgets.pump import Pump


def test_the_last_state_is_always_written() -> None:
    seen: list[int] = []
    value = 0
    pump = Pump(lambda: seen.append(value), rate_hz=200)
    for value in range(1, 5001):  # noqa: B007 - read by the pump
        pump.touch()
    assert pump.drain(10)
    assert seen[-1] == 5000
    assert len(seen) < 500
    pump.close()


def test_writers_of_many_threads_end_as_one_picture() -> None:
    points: set[int] = set()
    drawn: list[int] = []
    threads_seen: set[str] = set()

    def render() -> None:
        threads_seen.add(threading.current_thread().name)
        drawn.append(len(points))

    pump = Pump(render, rate_hz=500)

    def add(start: int) -> None:
        for i in range(start, start + 500):
            with pump.lock:
                points.add(i)
            pump.touch()

    threads = [threading.Thread(target=add, args=(n * 500,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert pump.drain(10)
    assert drawn[-1] == 2000
    assert threads_seen == {"lab-pump"}
    pump.close()


def test_a_view_that_raises_is_reported_and_the_next_drawing_works() -> None:
    errors: list[Exception] = []
    drawn: list[str] = []
    broken = True

    def render() -> None:
        if broken:
            raise ValueError("no picture")
        drawn.append("picture")

    pump = Pump(render, rate_hz=500, on_error=errors.append)
    pump.touch()
    assert pump.drain(10)
    assert [str(e) for e in errors] == ["no picture"]
    broken = False
    pump.touch()
    assert pump.drain(10)
    assert drawn == ["picture"]
    pump.close()


def test_closing_writes_what_is_pending() -> None:
    drawn: list[int] = []
    pump = Pump(lambda: drawn.append(1), rate_hz=1)
    pump.touch()
    assert pump.drain(10)
    pump.touch()
    pump.close()
    assert len(drawn) == 2
