"""The files of `binder/` agree with the rest: pins, settings, what is started, and the links that lead there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from lab.experiments.registry import EXPERIMENTS
from widgets.voila.server import CULL_IDLE_S

ROOT = Path(__file__).resolve().parents[2]
BINDER = ROOT / "binder"
OTHER_NAMES = {"torch": "pytorch-cpu"}
"""What conda-forge calls otherwise than the package index."""


def environment() -> dict[str, str]:
    """Package by package what `environment.yml` pins, "" for no pin."""
    lines = yaml.safe_load((BINDER / "environment.yml").read_text())["dependencies"]
    return {name: pin for name, _, pin in (line.partition("=") for line in lines)}


def requirements() -> dict[str, Requirement]:
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return {canonicalize_name(r.name): r for r in map(Requirement, lines)}


def constraints() -> dict[str, str]:
    pairs = [line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    return {canonicalize_name(name): version.strip() for name, version in pairs}


def disagreements(pins: dict[str, str]) -> list[str]:
    """What the pins of Binder's environment and the package's own dependencies say differently."""
    tested, found = constraints(), []
    for name, requirement in requirements().items():
        there = OTHER_NAMES.get(name, name)
        pin = pins.get(there)
        if pin is None:
            found.append(f"{there} is missing")
        elif name in tested:
            parts = pin.split(".")
            if not pin or tested[name].split(".")[: len(parts)] != parts:
                found.append(f"{there} is {pin or 'not pinned'}, tested with {tested[name]}")
            elif not requirement.specifier.contains(Version(pin)):
                found.append(f"{there} {pin} may be older than {requirement.specifier}")
    return found


def test_the_pins_are_those_that_the_tests_ran_with() -> None:
    assert disagreements(environment()) == []


@pytest.mark.parametrize(
    ("name", "pin"), [("transformers", "5.23"), ("voila", "0.5"), ("bokeh", ""), ("pytorch-cpu", "2.1"), ("rich", None)]
)
def test_a_pin_that_drifts_would_be_seen(name: str, pin: str | None) -> None:
    pins = environment()
    if pin is None:
        del pins[name]
    else:
        pins[name] = pin
    assert len(disagreements(pins)) == 1


def test_everything_comes_from_conda_forge_and_torch_is_the_cpu_build() -> None:
    body = yaml.safe_load((BINDER / "environment.yml").read_text())
    assert body["channels"] == ["conda-forge", "nodefaults"]
    assert all(isinstance(line, str) for line in body["dependencies"])  # no list of pip's
    assert not {"torch", "pytorch"} & set(environment())


@pytest.mark.parametrize("name", ["postBuild", "start"])
def test_a_script_can_be_run_and_stops_at_the_first_mistake(name: str) -> None:
    path = BINDER / name
    assert path.stat().st_mode & 0o111
    lines = path.read_text().splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert next(line for line in lines if line and not line.startswith("#")) == "set -euo pipefail"
    subprocess.run(["bash", "-n", str(path)], check=True)


def fake_tools(folder: Path, log: Path, *, broken: str = "") -> dict[str, str]:
    """An environment whose `python` and `lab` only write down how they are called; `broken` fails."""
    folder.mkdir()
    for tool in ("python", "lab"):
        script = folder / tool
        script.write_text(
            f'#!/bin/bash\necho {tool} "$@" >> {log}\n'
            f'if [[ "{tool} $*" == *"{broken or "nothing at all"}"* ]]; then exit 3; fi\n'
            f'if [[ "$*" == *sys.prefix* ]]; then echo {folder}; fi\n'
            'if [[ "$*" == *secrets* ]]; then echo a-token-of-this-run; fi\n'
        )
        script.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def test_post_build_installs_fetches_checks_each_recording_and_sets_jupyter_up(tmp_path: Path) -> None:
    env = fake_tools(tmp_path / "bin", tmp_path / "log")
    subprocess.run([str(BINDER / "postBuild")], cwd=ROOT, env=env, check=True, timeout=30)
    called = (tmp_path / "log").read_text()
    assert "python -m pip install --no-deps --no-build-isolation --editable ." in called
    assert "lab models smollm2-135m-instruct --fetch" in called
    assert {name for name in EXPERIMENTS if f"lab replay widgets/recordings/{name}.safetensors" in called} == set(
        EXPERIMENTS
    )
    settings = tmp_path / "bin" / "etc" / "jupyter" / "jupyter_config.json"
    assert settings.read_text() == (BINDER / "jupyter_config.json").read_text()


@pytest.mark.parametrize("broken", ["pip install", "models", "replay widgets/recordings/lora"])
def test_post_build_fails_where_a_step_fails(tmp_path: Path, broken: str) -> None:
    env = fake_tools(tmp_path / "bin", tmp_path / "log", broken=broken)
    done = subprocess.run([str(BINDER / "postBuild")], cwd=ROOT, env=env, check=False, timeout=30)
    assert done.returncode == 3
    assert not (tmp_path / "bin" / "etc").exists()


def test_start_gives_the_server_its_model_process_and_becomes_it(tmp_path: Path) -> None:
    env = fake_tools(tmp_path / "bin", tmp_path / "log")
    # Bash itself listens at no port: the wait for the model process is cut short by a port that somebody has.
    code = (
        "import socket, subprocess, sys\n"
        "sock = socket.create_server(('127.0.0.1', 0))\n"
        "import os\n"
        "os.environ['LAB_BINDER_PORT'] = str(sock.getsockname()[1])\n"
        "show = 'echo $LAB_BACKEND_URL $LAB_BACKEND_TOKEN $HF_HUB_OFFLINE $OMP_NUM_THREADS $0'\n"
        "done = subprocess.run([sys.argv[1], 'bash', '-c', show, 'the-server'], stdout=subprocess.PIPE, text=True)\n"
        "print(sock.getsockname()[1], done.stdout)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(BINDER / "start")],
        cwd=tmp_path,
        env=env,
        check=True,
        timeout=60,
        capture_output=True,
        text=True,
    )
    port, url, token, offline, threads, name = done.stdout.split()
    assert url == f"http://127.0.0.1:{port}"
    assert (token, offline, threads, name) == ("a-token-of-this-run", "1", "1", "the-server")
    assert f"lab serve --port {port} --threads 1" in (tmp_path / "log").read_text()


def test_the_last_word_of_start_is_the_server() -> None:
    assert (BINDER / "start").read_text().splitlines()[-1] == 'exec "$@"'


def test_jupyter_takes_the_pages_from_the_lab_and_culls_as_lab_up_does() -> None:
    config = json.loads((BINDER / "jupyter_config.json").read_text())
    enabled = config["ServerApp"]["jpserver_extensions"]
    assert enabled == {"voila.server_extension": False, "widgets.voila.extension": True}
    assert config["MappingKernelManager"]["cull_idle_timeout"] == CULL_IDLE_S


def links(text: str) -> list[str]:
    """The paths that Binder links open."""
    return [unquote(found) for found in re.findall(r"[?&]urlpath=([^\s)\"&]+)", text)]


def test_the_readme_links_open_pages_that_there_are() -> None:
    found = links((ROOT / "README.md").read_text())
    assert "voila/render/notebooks/index.ipynb" in found
    for path in found:
        assert (ROOT / path.removeprefix("voila/render/")).is_file(), path
