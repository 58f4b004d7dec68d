"""What `lab up` does not alarm anybody with, and what it still tells."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from tornado.websocket import WebSocketClosedError

from widgets.voila.hushed import hush
from widgets.voila.server import transport

UNTRUSTED = "Notebook %s is not trusted"
PING = "The websocket_ping_timeout (90000) cannot be longer than the websocket_ping_interval (30000).\nSetting it."


class Kept(logging.Handler):
    """A handler that keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelname, record.getMessage()))


@pytest.fixture
def logger() -> Iterator[tuple[logging.Logger, Kept]]:
    made, kept = logging.getLogger("test_hushed"), Kept()
    made.propagate = False
    made.setLevel(logging.WARNING)
    made.addHandler(kept)
    yield made, kept
    made.removeHandler(kept)
    made.filters.clear()


def test_harmless_warnings_are_kept_for_debugging_and_others_told(logger: tuple[logging.Logger, Kept]) -> None:
    log, kept = logger
    log.warning(UNTRUSTED, "index.ipynb")
    assert kept.lines == [("WARNING", "Notebook index.ipynb is not trusted")]  # as it was
    kept.lines.clear()
    hush(logging.LoggerAdapter(log, {}))
    log.warning(UNTRUSTED, "index.ipynb")
    log.warning(PING)
    assert kept.lines == []
    log.warning("Notebook %s cannot be read", "index.ipynb")
    log.error(UNTRUSTED, "index.ipynb")
    assert kept.lines == [
        ("WARNING", "Notebook index.ipynb cannot be read"),
        ("ERROR", "Notebook index.ipynb is not trusted"),
    ]
    log.setLevel(logging.DEBUG)
    log.warning(UNTRUSTED, "lora.ipynb")
    assert kept.lines[-1] == ("DEBUG", "Notebook lora.ipynb is not trusted")


@pytest.mark.parametrize("failed", [WebSocketClosedError(), RuntimeError("no")])
def test_a_tab_that_was_closed_leaves_no_traceback(logger: tuple[logging.Logger, Kept], failed: Exception) -> None:
    log, kept = logger
    hush(log)
    told = ("ERROR", "Task exception was never retrieved")
    log.error(told[1], exc_info=failed)  # as asyncio tells it
    assert kept.lines == ([] if isinstance(failed, WebSocketClosedError) else [told])
    log.setLevel(logging.DEBUG)
    log.error(told[1], exc_info=failed)
    level = "DEBUG" if isinstance(failed, WebSocketClosedError) else "ERROR"
    assert kept.lines[-1] == (level, told[1])


def test_kernels_are_talked_to_encrypted_where_that_can_be() -> None:
    import zmq
    from jupyter_client.manager import KernelManager

    can = zmq.has("curve") and hasattr(KernelManager, "transport_encryption")
    assert transport() == ({"transport_encryption": "auto"} if can else {})
