"""What the model process asks of glibc's malloc, and of threads: as environment of a child, or of the process itself.

glibc gives big buffers back to the system on each free; keeping them made elementwise work 1.3 to 2.2 x faster.
"""

from __future__ import annotations

import ctypes
import os

MALLOC = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "100000000000",
    "MALLOC_TOP_PAD_": "268435456",
}
THREADS = {
    # Threads that spin at barriers starve the page's own processes on a small machine.
    "OMP_WAIT_POLICY": "passive",
    "TOKENIZERS_PARALLELISM": "false",
}

_PARAMETER = {"MALLOC_TRIM_THRESHOLD_": -1, "MALLOC_TOP_PAD_": -2, "MALLOC_MMAP_MAX_": -4}
"""The numbers of M_TRIM_THRESHOLD, M_TOP_PAD and M_MMAP_MAX in malloc.h."""
_MOST = 2**31 - 1
"""mallopt takes an int."""


def settle_this_process() -> bool:
    """Make the settings in a process that has already started, for which the environment's come too late.

    What the environment does set is left as it is. Call it before torch is imported.

    Returns:
        Whether malloc took them: only glibc does.
    """
    for name, value in THREADS.items():
        os.environ.setdefault(name, value)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    wanted = {name: value for name, value in MALLOC.items() if name not in os.environ}
    return all(mallopt(_PARAMETER[name], min(int(value), _MOST)) == 1 for name, value in wanted.items())
