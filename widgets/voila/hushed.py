"""Lines of Jupyter's server that say nothing to whoever started the lab, kept for its debug log."""

from __future__ import annotations

import logging

from tornado.websocket import WebSocketClosedError

HARMLESS = (
    # The pages are the lab's own notebooks, without stored outputs; Voila runs them whatever their signature.
    "Notebook %s is not trusted",
    # Jupyter's server gives milliseconds to tornado, which reads seconds; it pings by a clock of its own.
    "The websocket_ping_timeout",
)


class Hushed(logging.Filter):
    """Lets a harmless line through as a message for debugging, if at all."""

    def filter(self, record: logging.LogRecord) -> bool:
        warned = record.levelno == logging.WARNING and str(record.msg).startswith(HARMLESS)
        if not warned and not _left(record):
            return True
        record.levelno, record.levelname = logging.DEBUG, "DEBUG"
        return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


def _left(record: logging.LogRecord) -> bool:
    """Whether somebody closed a page while something was on its way there: asyncio tells the whole traceback."""
    failed = record.exc_info[1] if record.exc_info else None
    return isinstance(failed, WebSocketClosedError)


def hush(*loggers: logging.Logger | logging.LoggerAdapter[logging.Logger]) -> None:
    """Let these loggers keep harmless lines to themselves."""
    for logger in loggers:
        plain = logger.logger if isinstance(logger, logging.LoggerAdapter) else logger
        plain.addFilter(Hushed())
