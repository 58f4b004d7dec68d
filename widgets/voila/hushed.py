"""Warnings of Jupyter's server that say nothing to whoever started the lab, kept for its debug log."""

from __future__ import annotations

import logging

HARMLESS = (
    # The pages are the lab's own notebooks, without stored outputs; Voila runs them whatever their signature.
    "Notebook %s is not trusted",
    # Jupyter's server gives milliseconds to tornado, which reads seconds; it pings by a clock of its own.
    "The websocket_ping_timeout",
)


class Hushed(logging.Filter):
    """Lets a harmless warning through as a message for debugging, if at all."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING or not str(record.msg).startswith(HARMLESS):
            return True
        record.levelno, record.levelname = logging.DEBUG, "DEBUG"
        return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


def hush(*loggers: logging.Logger | logging.LoggerAdapter[logging.Logger]) -> None:
    """Let these loggers keep harmless warnings to themselves."""
    for logger in loggers:
        plain = logger.logger if isinstance(logger, logging.LoggerAdapter) else logger
        plain.addFilter(Hushed())
