"""The one writer: events fold under one lock, one thread writes to the page.

A widget's comm drops messages above about a thousand a second, and two threads that write to one
plot lose points silently. So whoever changes state only marks it as changed, and the pump writes
what is true now, at most `rate_hz` times a second, and once more at the end. The rate is low: where the
browser shares the processors with the model, each drawing slows the run that it shows.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

RATE_HZ = 6.0


class Pump:
    """Calls `render` from its own thread while holding `lock`, soon after `touch`.

    Args:
        render: writes the current state to the widgets. Called by the pump alone.
        on_error: told in words when `render` raises; the pump goes on.
    """

    def __init__(
        self,
        render: Callable[[], None],
        *,
        rate_hz: float = RATE_HZ,
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self._render = render
        self._interval_s = 1.0 / rate_hz
        self._on_error = on_error
        self._changed = threading.Event()
        self._idle = threading.Condition()
        self._pending = 0
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="lab-pump", daemon=True)
        self._thread.start()

    def touch(self) -> None:
        """Something changed: render soon. May be called from any thread, also while holding `lock`."""
        with self._idle:
            self._pending += 1
        self._changed.set()

    def drain(self, timeout_s: float = 10.0) -> bool:
        """Wait until all that was touched is on the page. Never call it while holding `lock`."""
        with self._idle:
            return self._idle.wait_for(lambda: self._pending == 0, timeout_s)

    def close(self) -> None:
        """Render what is pending, then end the thread."""
        self._closed = True
        self._changed.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(5.0)

    def _loop(self) -> None:
        while True:
            self._changed.wait()
            self._changed.clear()
            closing = self._closed
            with self._idle:
                seen = self._pending
            started = time.monotonic()
            if seen:
                self._render_once()
                with self._idle:
                    self._pending -= seen
                    self._idle.notify_all()
            if closing:
                return
            took = time.monotonic() - started
            # A slow drawing waits longer, so that it never takes more than a quarter of a processor.
            time.sleep(max(self._interval_s, 4 * took) - took)

    def _render_once(self) -> None:
        try:
            with self.lock:
                self._render()
        except Exception as error:
            log.exception("a view could not be drawn")
            if self._on_error is not None:
                self._on_error(error)
