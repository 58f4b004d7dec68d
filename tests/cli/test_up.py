"""`lab up`: two processes, one lock file, one lab at a time, nothing left behind."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from backend.toys import until

from lab.backend.http import HttpBackend
from lab.backend.lockfile import Running, read_lock
from lab.backend.protocol import RunRequest
from lab.backend.serve import listen
from lab.cli.page import choose_port, page_environment, voila_command
from lab.errors import BadInput
from lab.events import RunFinished

from .conftest import Lab, start


def lock_of(cache: Path) -> Path:
    return cache / "runtime" / "up.json"


def wait_for_lab(cache: Path, process: subprocess.Popen[str]) -> Running:
    def there() -> bool:
        assert process.poll() is None, process.communicate()
        return read_lock(lock_of(cache)) is not None

    until(there, "the lock file", 60)
    running = read_lock(lock_of(cache))
    assert running is not None
    return running


def gone(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def up(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Running]]:
    process = start(tmp_path / "cache", module="cli.toy_up")
    running = wait_for_lab(tmp_path / "cache", process)
    yield process, running
    process.kill()
    process.communicate(timeout=30)


def test_up_starts_both_says_where_and_ends_without_a_rest(
    up: tuple[subprocess.Popen[str], Running], tmp_path: Path
) -> None:
    process, running = up
    path = lock_of(tmp_path / "cache")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) == 2
    assert running.token not in " ".join(" ".join(child.cmdline()) for child in children)
    assert httpx.get(running.page, follow_redirects=True).status_code in (200, 404)
    backend = HttpBackend(running.url, running.token)
    end = list(backend.run(RunRequest(experiment="count", model="toy")))[-1]
    assert isinstance(end, RunFinished)
    backend.close()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert running.page in errors
    assert running.token not in errors
    assert "heavy: []" in errors
    assert not path.exists()
    assert all(gone(child.pid) for child in children)


def test_a_second_up_says_where_the_first_is(
    up: tuple[subprocess.Popen[str], Running], tmp_path: Path, lab: Lab
) -> None:
    _, running = up
    second = lab(module="cli.toy_up")
    assert second.returncode == 0
    assert "A lab runs already" in second.stderr
    assert running.page in second.stderr
    assert read_lock(lock_of(tmp_path / "cache")) == running


def test_a_killed_up_takes_its_children_with_it_and_the_next_one_starts(
    up: tuple[subprocess.Popen[str], Running], tmp_path: Path
) -> None:
    process, _ = up
    children = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(10)
    until(lambda: all(gone(child.pid) for child in children), "the children ended", 20)
    assert read_lock(lock_of(tmp_path / "cache")) is None  # the file is there, its process is not
    again = start(tmp_path / "cache", module="cli.toy_up")
    running = wait_for_lab(tmp_path / "cache", again)
    assert running.pid == again.pid
    again.send_signal(signal.SIGINT)
    again.communicate(timeout=30)
    assert again.returncode == 0


def test_a_page_that_dies_ends_the_lab_in_words(up: tuple[subprocess.Popen[str], Running]) -> None:
    process, _ = up
    page = next(c for c in psutil.Process(process.pid).children() if "http.server" in c.cmdline())
    page.kill()
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "error: The page's server ended" in errors
    assert "Traceback" not in errors


def test_a_port_in_use_is_said_and_the_next_free_one_is_taken_where_none_was_asked_for(lab: Lab) -> None:
    sock = listen("127.0.0.1", 0)
    port = sock.getsockname()[1]
    refused = lab("--port", str(port), module="cli.toy_up")
    assert refused.returncode == 2
    assert f"error: Port {port} is in use." in refused.stderr
    sock.close()
    taken = choose_port("127.0.0.1", None)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", taken))
        other.listen()
        assert choose_port("127.0.0.1", None) > taken
        with pytest.raises(BadInput, match="in use"):
            choose_port("127.0.0.1", taken)


def test_up_and_serve_refuse_to_be_reached_from_elsewhere_unasked(lab: Lab) -> None:
    for command in ("up", "serve"):
        done = lab(command, "--host", "0.0.0.0")  # noqa: S104
        assert done.returncode == 2
        assert "can be reached from other machines" in done.stderr


@pytest.mark.parametrize("token", ["", "a-token-of-my-own-choice"])
def test_serve_prints_a_token_or_takes_the_one_it_is_given(tmp_path: Path, token: str) -> None:
    given = {"LAB_BACKEND_TOKEN": token} if token else {}
    process = start(tmp_path, "serve", "--port", "0", "--model", "none", module="lab", extra=given)
    assert process.stderr is not None
    url = process.stderr.readline().split()[-1]
    if not token:
        token = process.stderr.readline().strip().rpartition("=")[2]
        assert len(token) > 30
    backend = HttpBackend(url, token)
    assert backend.health().pid == process.pid
    backend.close()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=30)
    assert token not in errors


def test_the_page_gets_the_address_the_token_and_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_REPLAY", "/an/old/one")
    plain = page_environment("http://x", "t", None)
    assert plain["LAB_BACKEND_URL"] == "http://x"
    assert plain["LAB_BACKEND_TOKEN"] == "t"
    assert "LAB_REPLAY" not in plain
    assert page_environment("http://x", "t", Path("/r"))["LAB_REPLAY"] == "/r"
    command = voila_command("127.0.0.1", 8866, Path("/n"))
    assert command[1:] == ["-m", "widgets.voila.server", "--host", "127.0.0.1", "--port", "8866", "--notebooks", "/n"]
