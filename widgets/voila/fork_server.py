"""A process from which pages' kernels are forked: `python -m widgets.voila.fork_server FD`.

Four fifths of a kernel's start are imports, the same for every page. Here they are done once; a fork has them at once
and shares their memory until it writes to it. On the Unix socket FD comes a JSON line for each kernel, and one goes
back; see `widgets.voila.forked`. The process ends with its socket; its kernels watch it and end too.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

PRELOADED = ("ipykernel.ipkernel", "ipykernel.kernelapp", "widgets.page", "widgets.front.view")


def preload() -> None:
    """Import what pages need. No thread may be started here: a fork would not have it."""
    from widgets.experiment import VIEWS

    for name in (*PRELOADED, *(place.split(":")[0] for place in VIEWS.values())):
        import_module(name)
    # ipywidgets does it when it is imported, but only inside of a kernel: where a browser asks for all states at once.
    import_module("ipywidgets").register_comm_target()
    gc.collect()
    gc.freeze()  # a collection in a fork would write to all that is shared


def serve(connection: socket.socket) -> Mapping[str, Any] | None:
    """Fork a process for each request.

    Returns:
        In a forked process the request it was forked for; in this one None, when the other side has closed.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who ended needs no farewell
    with connection, connection.makefile("rw", encoding="utf-8", newline="\n") as stream:
        for line in stream:
            request = json.loads(line)
            ready, tell = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(ready)
                os.setsid()  # a group of its own, so that a signal reaches what it starts
                os.close(tell)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.close(connection.detach())  # else it would stay open when this server is gone
                return {**request, "parent": os.getppid()}
            os.close(tell)
            os.read(ready, 1)  # ends when the fork has its group
            os.close(ready)
            stream.write(json.dumps({"pid": pid}) + "\n")
            stream.flush()
    return None


def become_kernel(request: Mapping[str, Any]) -> None:
    """Be what `python -m ipykernel_launcher` would be with these arguments, in this folder and environment."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    from ipykernel.kernelapp import IPKernelApp

    # The class read the parent's number from the environment when it was imported.
    IPKernelApp.launch_instance(argv=[*request["argv"], f"--IPKernelApp.parent_handle={request['parent']}"])


def main() -> None:
    """Serve until the socket closes, or be a kernel until it ends."""
    if Path(sys.path[0]) == Path.cwd():  # as ipykernel's launcher does: where it starts is no place for modules
        del sys.path[0]
    connection = socket.socket(fileno=int(sys.argv[1]))
    preload()
    request = serve(connection)
    if request is not None:
        become_kernel(request)


if __name__ == "__main__":
    main()
