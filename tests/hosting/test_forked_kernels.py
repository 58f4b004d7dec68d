"""Kernels forked from a process with the imports: whole, apart from each other, ended with what started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_client.manager import KernelManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory

from widgets.voila import forked
from widgets.voila.forked import NAME, SERVER, ForkedProcess, ForkedProvisioner, fork_kernels

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux alone")
READY_S = 60.0
Kernel = Callable[..., "Running"]


class Running:
    """A kernel with a client."""

    def __init__(self, **options: Any) -> None:
        self.manager = KernelManager(kernel_name="python3", transport_encryption="auto")
        self.manager.start_kernel(**options)
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=READY_S)

    @property
    def process(self) -> Any:
        return self.manager.provisioner.process

    def say(self, code: str) -> str:
        """What an expression is in the kernel, as Python writes it."""
        asked = self.client.execute("", user_expressions={"said": code})
        while True:  # what was asked while it started may be answered twice
            reply = self.client.get_shell_msg(timeout=READY_S)
            if reply["parent_header"].get("msg_id") == asked:
                break
        said: str = reply["content"]["user_expressions"]["said"]["data"]["text/plain"]
        return said

    def end(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module", autouse=True)
def _forking() -> Iterator[None]:
    factory = KernelProvisionerFactory.instance()
    before = factory.default_provisioner_name
    assert fork_kernels()
    yield
    SERVER.stop()
    factory.default_provisioner_name = before
    factory.provisioners.pop(NAME)


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    started: list[Running] = []

    def start(**options: Any) -> Running:
        started.append(Running(**options))
        return started[-1]

    yield start
    for one in started:
        one.end()


def gone(pid: int) -> None:
    """Wait until no such process runs."""
    try:
        psutil.Process(pid).wait(READY_S)
    except psutil.NoSuchProcess:
        return


def test_a_forked_kernel_has_its_folder_its_environment_and_the_imports(kernel: Kernel, tmp_path: Path) -> None:
    mine = {**os.environ, "A_QUERY": "?theme=dark"}
    one = kernel(env=mine, cwd=str(tmp_path))
    assert isinstance(one.process, ForkedProcess)
    assert isinstance(one.manager.provisioner, ForkedProvisioner)
    assert one.say("__import__('os').getcwd()") == repr(str(tmp_path))
    assert one.say("__import__('os').environ['A_QUERY']") == "'?theme=dark'"
    assert one.say("__import__('os').getsid(0) == __import__('os').getpid()") == "True"
    assert one.say("'widgets.parts' in __import__('sys').modules") == "True"
    targets = one.say("sorted(get_ipython().kernel.comm_manager.targets)")
    assert "'jupyter.widget'" in targets
    assert "'jupyter.widget.control'" in targets
    assert one.say("'torch' in __import__('sys').modules") == "False"
    assert one.say("callable(__import__('widgets').dashboard)") == "True"  # not the module of that name
    assert one.say("__import__('sys').modules['__main__'].__dict__ is globals()") == "True"


def test_kernels_share_nothing_that_they_change(kernel: Kernel) -> None:
    one, other = kernel(), kernel()
    assert one.say("__import__('builtins').__dict__.setdefault('mine', 1)") == "1"
    assert other.say("'mine' in __import__('builtins').__dict__") == "False"
    assert one.say("__import__('random').random()") != other.say("__import__('random').random()")
    assert one.process.pid != other.process.pid


def test_a_kernel_does_not_hold_the_line_to_what_forked_it(kernel: Kernel) -> None:
    one = kernel()
    parent = psutil.Process(one.process.pid).parent()
    assert parent is not None
    line = str(Path(f"/proc/{parent.pid}/fd/{parent.cmdline()[-1]}").readlink())
    assert line.startswith("socket:")
    held = [str(place.readlink()) for place in Path(f"/proc/{one.process.pid}/fd").iterdir() if place.is_symlink()]
    assert line not in held


def test_a_process_of_the_kernel_can_be_waited_for(kernel: Kernel) -> None:
    assert kernel().say("__import__('subprocess').run(['false']).returncode") == "1"


def test_a_killed_kernel_is_seen_and_a_running_one_is_not_over(kernel: Kernel) -> None:
    one = kernel()
    assert one.process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        one.process.wait(0.01)
    assert one.manager.is_alive()
    os.kill(one.process.pid, signal.SIGKILL)
    assert one.process.wait(READY_S) == -1
    assert not one.manager.is_alive()
    one.process.terminate()  # of what has ended: nothing happens


def test_kernels_end_with_the_process_that_forked_them_and_the_next_one_starts(kernel: Kernel) -> None:
    one = kernel()
    parent = psutil.Process(one.process.pid).parent()
    assert parent is not None
    parent.kill()
    assert one.process.wait(READY_S) == -1
    other = kernel()
    assert isinstance(other.process, ForkedProcess)
    assert other.say("1 + 1") == "2"


def test_where_nothing_can_be_forked_a_kernel_starts_by_itself(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    def no(*_: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(SERVER, "fork", no)
    one = kernel()
    assert isinstance(one.process, subprocess.Popen)
    assert one.say("1 + 1") == "2"


def test_a_fork_server_that_dies_while_it_is_asked_is_an_error_and_not_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    server = forked.ForkServer()
    monkeypatch.setattr(forked.sys, "executable", "/bin/false")
    with pytest.raises(OSError, match=r"ended|reset|pipe"):
        server.fork(["-f", "none"], "/", {})
    server.stop()


def test_all_end_when_the_program_that_uses_them_is_killed() -> None:
    code = (
        "from tests.hosting.test_forked_kernels import Running, fork_kernels\n"
        "assert fork_kernels()\n"
        "one = Running()\n"
        "print(one.process.pid, flush=True)\n"
        "__import__('signal').pause()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        server = psutil.Process(pid).ppid()
        program.kill()
    gone(pid)
    gone(server)
    assert not psutil.pid_exists(pid)
    assert not psutil.pid_exists(server)
