"""The kernels of a lab among its processes: forked ones bear the name of the process that they were forked from."""

from __future__ import annotations

import psutil

FORKING = "widgets.voila.fork_server"


def kernels_of(pid: int) -> list[psutil.Process]:
    """Kernels below a process; what forks them is none."""
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        try:
            words = " ".join(process.cmdline())
            parent = process.parent()
            forked = FORKING in words and parent is not None and FORKING in " ".join(parent.cmdline())
            if forked or "ipykernel_launcher" in words:
                found.append(process)
        except psutil.Error:  # it has just ended
            continue
    return found
