"""Keeping transformers' own progress bars and advice out of the lab's output."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any

_lock = threading.Lock()
_unpacking = threading.Lock()
_before: list[tuple[int, bool]] = []
_inside = 0


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Errors only, no bars, while a model is read.

    The settings are global: the first to come in changes them and the last to go restores them, and nobody waits.
    """
    global _inside
    from transformers.utils import logging as module

    logging: Any = module  # its functions carry no types

    with _lock:
        _inside += 1
        if _inside == 1:
            _before.append((logging.get_verbosity(), logging.is_progress_bar_enabled()))
            logging.set_verbosity_error()
            logging.disable_progress_bar()
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                verbosity, bars = _before.pop()
                logging.set_verbosity(verbosity)
                if bars:
                    logging.enable_progress_bar()


@contextlib.contextmanager
def report_gguf_tensors(report: Callable[[float], None]) -> Iterator[None]:
    """Tell `report` the share of a GGUF file's tensors that transformers has unpacked, instead of its own bar.

    That bar is a plain tqdm which no setting silences, so its name is replaced in the one module that uses it.
    """
    from transformers import modeling_gguf_pytorch_utils

    module: Any = modeling_gguf_pytorch_utils

    def counted(items: Iterable[Any], **options: Any) -> Iterator[Any]:
        del options
        total = len(items) if isinstance(items, Sized) else 0
        for done, item in enumerate(items):
            if total:
                report(done / total)
            yield item

    with _unpacking:
        original = getattr(module, "tqdm", None)
        if original is None:  # another version of transformers: its bar, if any, stays
            yield
            return
        module.tqdm = counted
        try:
            yield
        finally:
            module.tqdm = original
