"""Keeping transformers' own progress bars and advice out of the lab's output."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

_lock = threading.RLock()


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Errors only, no bars, while a model is read. The settings are global, hence the lock."""
    from transformers.utils import logging  # noqa: PLC0415

    with _lock:
        verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.set_verbosity(verbosity)
            if bars:
                logging.enable_progress_bar()
