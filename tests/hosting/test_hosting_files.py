"""The files of `hosting/` and the guide say what the code does."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from backend.conftest import TOKEN as SERVED_TOKEN
from backend.conftest import serving
from backend.toys import CountRunner, backend
from traitlets.config import Config
from typer.testing import CliRunner

from lab.backend.connect import running_backend
from lab.backend.hosting import HostedSettings, read_settings
from lab.backend.lockfile import this_process, write_lock
from lab.cli.main import _build, app
from lab.cli.page import page_environment
from lab.cli.up import UpOptions, run_up
from lab.errors import BadInput
from lab.settings import BACKEND_TOKEN, BACKEND_URL, DEFAULT_PORT, PAGE_TOKEN, lock_path
from widgets.voila.server import configuration

ROOT = Path(__file__).parents[2]
HOSTING = ROOT / "hosting"
GUIDE = (ROOT / "docs" / "hosting.md").read_text(encoding="utf-8")
EVERYWHERE = "0.0.0.0"  # noqa: S104 - to be refused
SAID = re.compile(r"^ {4,}(?:[A-Z_]+=\S+ )?(lab (?:up|serve) .*)$", re.M)
FOR_NGINX = {"base_url": "/lab/", "behind_proxy": True}


def defaults() -> dict[str, Any]:
    return HostedSettings().model_dump(mode="json")


def table() -> list[str]:
    """The guide's rows, one a setting."""
    rows = []
    for name, field in HostedSettings.model_fields.items():
        spec = HostedSettings.model_json_schema()["properties"][name]
        low, high = spec.get("minimum"), spec.get("maximum")
        limits = "" if low is None else f"{low:,.10g} to {high:,.10g}"
        default = str(defaults()[name]).replace("'", '"').replace("False", "false")
        rows.append(f"| `{name}` | `{default}` | {limits} | {field.description} |")
    return rows


def test_the_guide_s_table_is_the_class() -> None:
    said = [line for line in GUIDE.splitlines() if re.match(r"\| `[a-z_]+` \| `", line)]
    assert said == table(), "the table should be:\n" + "\n".join(table())


def test_the_settings_file_names_every_setting_with_its_default() -> None:
    named = tomllib.loads((HOSTING / "lab.toml").read_text())
    assert named.keys() == HostedSettings.model_fields.keys()
    assert read_settings(HOSTING / "lab.toml").model_dump(mode="json") == {**defaults(), **FOR_NGINX}


def test_the_container_s_settings_are_read() -> None:
    assert read_settings(HOSTING / "lab.container.toml").model_dump(mode="json") == defaults()


def test_the_guide_names_only_files_that_there_are() -> None:
    named = set(re.findall(r"hosting/[A-Za-z_.-]+[A-Za-z]", GUIDE))
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []
    kept = {f"hosting/{path.name}" for path in HOSTING.iterdir() if path.is_file()}
    assert kept - named == set(), "the guide says nothing of them"


def lab_arguments(command: str) -> list[str]:
    """What follows `lab` in a command line."""
    words = shlex.split(command)
    return words[words.index(next(w for w in words if Path(w).name == "lab")) + 1 :]


def options_of(command: str) -> set[str]:
    if not app.registered_commands:
        _build()
    done = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert done.exit_code == 0
    return set(re.findall(r"--[a-z-]+", done.output))


def test_every_command_line_has_options_that_there_are() -> None:
    unit = (HOSTING / "inference-lab.service").read_text()
    container = (HOSTING / "Containerfile").read_text()
    commands = re.findall(r"^ExecStart=(.*)$", unit, re.M) + SAID.findall(GUIDE)
    commands += [" ".join(re.findall(r'"([^"]*)"', line)) for line in re.findall(r"^CMD (\[.*)$", container, re.M)]
    assert len(commands) >= 5
    for line in commands:
        command, *given = lab_arguments(line.replace("\\", " "))
        used = {word for word in given if word.startswith("--")}
        assert used <= options_of(command), line


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
def test_systemd_takes_the_unit_and_finds_it_closed(tmp_path: Path) -> None:
    text = (HOSTING / "inference-lab.service").read_text()
    path = "/opt/inference-lab/.venv/bin/lab"
    assert text.count(path) == 1
    unit = tmp_path / "inference-lab.service"
    unit.write_text(text.replace(path, str(Path(sys.executable).with_name("lab"))))
    verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stderr
    assert "inference-lab" not in verified.stderr
    judged = ["systemd-analyze", "security", "--offline=true", "--threshold=20", unit]
    closed = subprocess.run(judged, capture_output=True, text=True, check=False)
    assert closed.returncode == 0, closed.stdout[-200:]
    unit.write_text(re.sub(r"^(Protect|Private|System|Restrict|NoNew|Capab).*$", "", unit.read_text(), flags=re.M))
    open_one = subprocess.run(judged, capture_output=True, text=True, check=False)
    assert open_one.returncode != 0


def test_the_unit_the_proxy_and_the_settings_agree() -> None:
    unit, site = ((HOSTING / name).read_text() for name in ("inference-lab.service", "nginx.conf"))
    assert f"--port {DEFAULT_PORT} " in unit
    assert f"server 127.0.0.1:{DEFAULT_PORT};" in site
    assert f"location {FOR_NGINX['base_url']} {{" in site
    assert "--allow-remote" not in unit
    assert PAGE_TOKEN in unit


def test_the_container_runs_as_nobody_and_copies_what_there_is() -> None:
    lines = (HOSTING / "Containerfile").read_text().splitlines()
    orders = [line.split(maxsplit=1) for line in lines if line and line[0].isalpha()]
    user = next(rest for order, rest in orders if order == "USER")
    assert user not in ("root", "0")
    assert [o for o, _ in orders].index("USER") < [o for o, _ in orders].index("CMD")
    assert "ADD" not in {order for order, _ in orders}
    for order, rest in orders:
        if order == "COPY":
            assert all((ROOT / source).exists() for source in rest.split()[:-1]), rest
    base = next(rest for order, rest in orders if order == "FROM")
    assert re.fullmatch(r"[\w./-]+:3\.1[1-9]-slim", base)


def test_the_hub_s_part_is_read_and_names_our_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BACKEND_TOKEN, "a-token")
    config = Config()
    path = HOSTING / "jupyterhub_config.py"
    exec(compile(path.read_text(), path.name, "exec"), {"get_config": lambda: config})  # noqa: S102 - as the Hub does
    assert config.Spawner.environment == {BACKEND_URL: "http://127.0.0.1:8899", BACKEND_TOKEN: "a-token"}
    assert config.Spawner.default_url.rpartition("/")[2] in {p.name for p in (ROOT / "notebooks").iterdir()}


# what the command line makes of it


def test_a_hosted_lab_hands_its_settings_on_and_its_token_to_the_pages_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PAGE_TOKEN, "the-operators-own-token")
    settings = HostedSettings(visitors=7)
    environment = page_environment("http://x", "t", None, settings, "the-page-token")
    assert HostedSettings.model_validate_json(environment["LAB_HOSTED"]) == settings
    assert environment[PAGE_TOKEN] == "the-page-token"
    monkeypatch.setenv("LAB_HOSTED", "an old one")
    plain = page_environment("http://x", "t", None)
    assert not plain.keys() & {"LAB_HOSTED", PAGE_TOKEN}
    found = configuration(host="127.0.0.1", port=1, hosting=settings, token="t")
    assert found["SeatedKernels"]["seats"] == 7
    assert found["Voila"]["token"] == "t"


@pytest.mark.parametrize(
    ("options", "token", "words"),
    [
        ({"host": EVERYWHERE}, "", "can be reached from other machines"),
        ({"host": EVERYWHERE, "allow_remote": True, "login": "none"}, "", "does not protect"),
        ({}, "short", "LAB_PAGE_TOKEN has 5 characters; it needs at least 16"),
        ({}, "sixteen letters and spaces", "letters and digits alone"),
    ],
)
def test_an_open_door_is_refused(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], token: str, words: str
) -> None:
    monkeypatch.setenv(PAGE_TOKEN, token)
    login = options.pop("login", "token")
    hosting = HostedSettings(login=login)
    with pytest.raises(BadInput, match=re.escape(words)):
        run_up(UpOptions(browser=False, hosting=hosting, **options), prepare=lambda _: None)
    assert os.environ[PAGE_TOKEN] == token


@pytest.mark.parametrize("hosted", [True, False])
def test_a_users_own_commands_leave_a_hosted_lab_to_its_visitors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hosted: bool
) -> None:
    monkeypatch.setenv("LAB_CACHE_DIR", str(tmp_path))
    runner = CountRunner()
    with serving(backend(runner), runner) as served:
        write_lock(lock_path(), this_process(url=served.url, token=SERVED_TOKEN, hosted=hosted))
        found = running_backend()
        assert (found is None) == hosted
        if found is not None:
            found.close()
