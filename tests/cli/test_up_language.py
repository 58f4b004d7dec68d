"""The language of the pages that `lab up` serves: its option, the environment, and what there is not."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from backend.toys import until

from lab.backend.lockfile import read_lock
from lab.cli import up as command

from .conftest import Lab, start


def test_a_language_that_there_is_not_is_an_error_that_names_those_there_are(lab: Lab) -> None:
    done = lab("up", "--language", "xx", "--no-browser", module="lab")
    assert done.returncode == 2
    assert "There is no language 'xx'. There is: en, de." in done.stderr


def test_the_option_is_the_page_s(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[command.UpOptions] = []
    monkeypatch.setattr(command, "run_up", lambda options: asked.append(options) or 0)
    for options in ({"language": "de"}, {}):
        with pytest.raises(command.typer.Exit):
            command.up.__wrapped__(browser=False, **options)  # type: ignore[attr-defined]
    assert [options.language for options in asked] == ["de", ""]


@pytest.mark.parametrize(("own", "language"), [({}, "en"), ({"LAB_LANGUAGE": "de"}, "de")])
def test_the_page_s_server_is_told_the_language(own: dict[str, str], language: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    process = start(cache, module="cli.toy_up", extra=own)
    try:
        until(lambda: process.poll() is not None or read_lock(cache / "runtime" / "up.json") is not None, "the lab", 60)
        assert process.poll() is None
        servers = [c for c in psutil.Process(process.pid).children(recursive=True) if "http.server" in c.cmdline()]
        assert [server.environ()["LAB_LANGUAGE"] for server in servers] == [language]
    finally:
        process.kill()
        process.communicate(timeout=30)
