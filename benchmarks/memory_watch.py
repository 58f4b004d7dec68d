"""A limit on the memory of a tree of processes: its proportional set size is summed, and who passes it is killed.

It stands in for a container's limit where no control group is at hand. Proportional set size (PSS) counts a page that
several processes share once in all; pages of files that are mapped count too, so it is rather more than a container is
charged with. Between two looks (50 ms) a peak can be missed; the kernel's own limit would not miss it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from pathlib import Path

import psutil

LOOK_S = 0.05
MIB = 2**20


def pss_bytes(pid: int) -> int:
    """Proportional set size of one process, 0 if it has gone.

    Source: `Pss` in /proc/PID/smaps_rollup (Linux 4.14 or newer).
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def kind_of(command: list[str]) -> str:
    """What a process of the lab is, by its command line."""
    words = " ".join(command)
    if "ipykernel" in words:
        return "kernel"
    if "lab serve" in words or "lab.backend.serve" in words:
        return "model process"
    if "jupyter" in words:
        return "server"
    return "other"


class MemoryWatch:
    """Watches the tree below a process from the start on; use it as a context.

    Args:
        pid: the root, a leader of its own process group.
        limit_bytes: what the tree may take.

    Attributes:
        peak_bytes: the largest sum so far.
        peak_parts: that sum by kind of process.
        passed: whether the limit was passed; the tree was then killed.
        parts: the sums by kind at the last look.
    """

    def __init__(self, pid: int, limit_bytes: int) -> None:
        self._pid = pid
        self.limit_bytes = limit_bytes
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory-watch", daemon=True)
        self.peak_bytes = 0
        self.peak_parts: Counter[str] = Counter()
        self.parts: Counter[str] = Counter()
        self.passed = False
        self.looks = 0

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.is_set():
            tree = self._tree()
            parts: Counter[str] = Counter()
            for process in tree:
                try:
                    parts[kind_of(process.cmdline())] += pss_bytes(process.pid)
                except psutil.Error:
                    continue
            self.parts, total = parts, parts.total()
            self.looks += 1
            if total > self.peak_bytes:
                self.peak_bytes, self.peak_parts = total, parts
            if total > self.limit_bytes:
                self.passed = True
                for process in tree:
                    try:
                        os.kill(process.pid, signal.SIGKILL)
                    except ProcessLookupError:
                        continue
                return
            self._stop.wait(LOOK_S)

    def _tree(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self._pid)
            return [root, *root.children(recursive=True)]
        except psutil.Error:
            return []


def in_words(parts: Counter[str]) -> str:
    """Such as "model process 812 MiB, kernel 180 MiB"."""
    return ", ".join(f"{kind} {size / MIB:,.0f} MiB" for kind, size in parts.most_common())
