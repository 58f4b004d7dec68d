"""Start a program that ends when its parent dies: `python -m lab.backend.tether PARENT_PID COMMAND...`.

For programs of others (Voila), which do not watch their parent. On Linux the kernel sends SIGTERM; elsewhere
the program simply starts.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> int:
    """Tie this process to its parent, then become the command."""
    parent, command = int(argv[0]), argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before the line above
        return 1
    os.execvp(command[0], command)  # noqa: S606 - no shell; the command comes from `lab up`
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
