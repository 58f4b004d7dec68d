"""The model process under supervision: killed, started again, found, ended with its parent."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lab.backend.connect import connect, running_backend
from lab.backend.http import HttpBackend
from lab.backend.local import LocalBackend
from lab.backend.lockfile import Running, read_lock, remove_lock, this_process, write_lock
from lab.backend.process import ModelProcess
from lab.backend.protocol import RunRequest
from lab.backend.serve import check_host, listen
from lab.errors import BadInput
from lab.events import Progress, RunFailed, RunFinished
from lab.settings import lock_path

from .toys import until

TESTS = Path(__file__).resolve().parents[1]
TOYS = (sys.executable, "-m", "backend.toy_server")
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{TESTS.parent}{os.pathsep}{TESTS}"}


def ask_for(**params: object) -> RunRequest:
    return RunRequest(experiment="count", model="toy", params=dict(params))


@pytest.fixture
def process() -> Iterator[ModelProcess]:
    said: list[str] = []
    with ModelProcess(TOYS, environment=ENVIRONMENT, restarted=said.append, backoff_s=(0.0,)) as process:
        process.said = said  # type: ignore[attr-defined]
        process.wait_ready(30)
        yield process


def test_a_process_killed_in_mid_run_ends_the_run_and_is_started_again(process: ModelProcess) -> None:
    backend = HttpBackend(process.url, process.token)
    stream = iter(backend.run(ask_for(hold=True)))
    while not isinstance(next(stream), Progress):
        pass
    old = process.pid
    assert old is not None
    os.kill(old, signal.SIGKILL)
    end = list(stream)[-1]
    assert isinstance(end, RunFailed)
    assert end.code == "backend"
    assert end.remedy
    # Who asks meanwhile waits in the socket's backlog, which this process holds.
    assert isinstance(list(backend.run(ask_for()))[-1], RunFinished)
    assert process.pid not in (old, None)
    assert process.restarts == 1
    assert "SIGKILL" in process.said[0]  # type: ignore[attr-defined]
    assert backend.health().pid == process.pid
    backend.close()


def test_the_token_is_in_no_argument_and_malloc_is_set(process: ModelProcess) -> None:
    child = psutil.Process(process.pid)
    assert process.token not in " ".join(child.cmdline())
    environment = child.environ()
    assert environment["MALLOC_TRIM_THRESHOLD_"] == "100000000000"
    assert environment["OMP_WAIT_POLICY"] == "passive"


def test_stopping_ends_the_process_and_frees_the_port() -> None:
    process = ModelProcess(TOYS, environment=ENVIRONMENT)
    process.start()
    process.wait_ready(30)
    pid, port = process.pid, int(process.url.rpartition(":")[2])
    process.stop()
    assert pid is not None
    assert not psutil.pid_exists(pid)
    assert process.pid is None
    listen("127.0.0.1", port).close()


def test_a_command_that_cannot_run_is_tried_again_with_a_pause() -> None:
    said: list[str] = []
    process = ModelProcess(
        (sys.executable, "-c", "raise SystemExit(7)"), restarted=said.append, backoff_s=(0.0, 0.0, 60.0)
    )
    process.start()
    until(lambda: process.restarts == 3, "it was started three times more")
    assert "exit code 7" in said[0]
    process.stop()
    assert process.restarts == 3


PARENT = """
import sys, threading
from lab.backend.process import ModelProcess
process = ModelProcess((sys.executable, "-m", "backend.toy_server"))
process.start()
process.wait_ready(30)
print(process.pid, flush=True)
threading.Event().wait()
"""


def test_the_process_ends_when_its_parent_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, env=ENVIRONMENT, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert psutil.pid_exists(child)
    parent.kill()
    parent.wait(10)
    until(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie", "the child ended")
    parent.stdout.close()


def test_the_lock_file_is_private_and_believed_only_while_its_process_lives(tmp_path: Path) -> None:
    path = tmp_path / "up.json"
    mine = this_process(url="http://127.0.0.1:1", token="t" * 20, page="http://localhost:8866/")
    write_lock(path, mine)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_lock(path) == mine
    assert [p.name for p in tmp_path.iterdir()] == ["up.json"]
    remove_lock(path, pid=1)
    assert path.exists()
    remove_lock(path, pid=os.getpid())
    assert not path.exists()
    assert read_lock(path) is None
    write_lock(path, Running(pid=os.getpid(), started=mine.started - 1000, url="", token=""))
    assert read_lock(path) is None  # the pid was reused
    for damaged in ("", "{", "[]", '{"pid": 1}', '{"pid": "x", "started": 1, "url": "", "token": ""}'):
        path.write_text(damaged)
        assert read_lock(path) is None


def test_connect_prefers_the_environment_then_a_running_lab_then_this_process(
    process: ModelProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("LAB_BACKEND_URL", raising=False)
    monkeypatch.delenv("LAB_BACKEND_TOKEN", raising=False)
    alone = connect()
    assert isinstance(alone, LocalBackend)
    alone.close()
    write_lock(lock_path(), this_process(url=process.url, token=process.token))
    joined = connect()
    assert isinstance(joined, HttpBackend)
    assert joined.health().pid == process.pid
    joined.close()
    forced = connect("local")
    assert isinstance(forced, LocalBackend)
    forced.close()
    write_lock(lock_path(), this_process(url=process.url, token="wrong"))
    assert running_backend() is None
    monkeypatch.setenv("LAB_BACKEND_URL", process.url)
    with pytest.raises(BadInput, match="needs a token"):
        connect()
    monkeypatch.setenv("LAB_BACKEND_TOKEN", process.token)
    named = connect()
    assert isinstance(named, HttpBackend)
    named.close()
    with pytest.raises(BadInput, match="is not a backend"):
        connect("somewhere")


def test_listening_beyond_this_machine_needs_a_flag_and_a_token() -> None:
    check_host("127.0.0.1", allow_remote=False, token="")
    check_host("::1", allow_remote=False, token="")
    check_host("localhost", allow_remote=False, token="")
    for host in ("0.0.0.0", "192.168.0.1", "example.org", "::"):  # noqa: S104
        with pytest.raises(BadInput, match="other machines"):
            check_host(host, allow_remote=False, token="t" * 30)
        with pytest.raises(BadInput, match="at least 16"):
            check_host(host, allow_remote=True, token="short")
        check_host(host, allow_remote=True, token="t" * 30)


def test_a_port_in_use_is_said() -> None:
    sock = listen("127.0.0.1", 0)
    with pytest.raises(BadInput, match="in use"):
        listen("127.0.0.1", sock.getsockname()[1])
    sock.close()
