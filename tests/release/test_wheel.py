"""The wheel, built and installed into an environment of its own, gives the whole lab away from the checkout.

The environment is a new venv with the wheel alone. Its dependencies are those of the tests' own environment: a .pth
names that one's site-packages, from where an editable link to the checkout is not followed, and a link its `share`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import site
import subprocess
import sys
import sysconfig
import time
import venv
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from backend.toys import until

from lab.backend.lockfile import read_lock

ROOT = Path(__file__).resolve().parents[2]
LANDED = {
    "lab/decoding/drafts/eagle/weights": ".safetensors",
    "lab/lora/adapters": ".safetensors",
    "lab/lora/data": ".jsonl",
    "lab/strings": ".toml",
    "widgets/notebooks": ".ipynb",
    "widgets/recordings": ".safetensors",
    "widgets/static": ".js",
    "widgets/voila/jupyter/voila/templates/inference-lab": ".j2",
}
"""Where the wheel puts what is no Python: a folder below site-packages, and the kind of file that must be in it."""


@dataclass
class Installed:
    """The environment with the wheel in it. `run` is a command of it, in a folder outside the checkout."""

    packages: Path
    bin: Path
    elsewhere: Path

    def environment(self) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("LAB_", "PYTHON"))}
        return {**inherited, "LAB_CACHE_DIR": str(self.elsewhere / "cache"), "COLUMNS": "200", "TERM": "dumb"}

    def run(self, *command: str) -> str:
        done = subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=self.elsewhere,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout


def build(folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    home = tmp_path_factory.mktemp("clean")
    venv.create(home / "env", with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(home / "env"), "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", str(wheel)], check=True, timeout=60)
    names = {"base": str(home / "env"), "platbase": str(home / "env")}
    packages = Path(sysconfig.get_path("purelib", vars=names))
    folders = [folder for folder in (*site.getsitepackages(), sysconfig.get_path("purelib")) if Path(folder).is_dir()]
    (packages / "dependencies.pth").write_text("\n".join(dict.fromkeys(folders)) + "\n")
    shutil.rmtree(home / "env" / "share", ignore_errors=True)
    (home / "env" / "share").symlink_to(Path(sys.prefix) / "share")
    (home / "elsewhere").mkdir()
    return Installed(packages, Path(sysconfig.get_path("scripts", vars=names)), home / "elsewhere")


def missing(names: set[str]) -> list[str]:
    """The files of the checkout that a page, a run or a recording needs and that are not among `names`."""
    wanted = {p.relative_to(ROOT).as_posix() for room in ("lab", "widgets") for p in (ROOT / room).rglob("*.*")}
    wanted = {name for name in wanted if "__pycache__" not in name and not name.endswith((".part", ".pyc"))}
    wanted |= {f"widgets/notebooks/{p.name}" for p in (ROOT / "notebooks").glob("*.ipynb")}
    return sorted(wanted - names)


def test_every_file_of_the_packages_is_in_the_wheel_and_lands_where_it_is_said(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert missing(names) == []
    for folder, suffix in LANDED.items():
        assert any(n.startswith(folder + "/") and n.endswith(suffix) for n in names), folder
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"lab", "widgets"}
    assert not [name for name in names if "checkpoints" in name or "__pycache__" in name]


def test_a_forgotten_file_would_be_seen(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for name in (
        "widgets/static/tokens.css",
        "widgets/notebooks/kv_cache.ipynb",
        "lab/lora/data/island.train.jsonl",
        "lab/strings/de.toml",
    ):
        assert missing(names - {name}) == [name]


def test_the_page_on_installing_says_where_each_kind_lands() -> None:
    text = (ROOT / "docs" / "installing.md").read_text()
    assert [folder for folder in LANDED if f"`{folder}`" not in text] == []


def test_lab_helps_lists_its_models_and_replays_a_packaged_recording(installed: Installed) -> None:
    assert "replay" in installed.run("lab", "--help")
    models = json.loads(installed.run("lab", "models", "--json"))
    assert models[0]["id"] == "smollm2-135m-instruct"
    recording = installed.packages / "widgets" / "recordings" / "kv_cache.safetensors"
    assert "finished" in installed.run("lab", "replay", str(recording))


CODE = """
from pathlib import Path
import lab, widgets
from lab.events import Recording
from lab.experiments.registry import EXPERIMENTS
from lab.lora.packaged import directory, packaged_card
from lab.lora.tasks import NAMES, packaged_task
from widgets.opening import RECORDINGS
print(Path(lab.__file__).parents[1], Path(widgets.__file__).parents[1])
print(*(Recording.load(RECORDINGS / f"{name}.safetensors").started.card.experiment == name for name in EXPERIMENTS))
print((directory() / "adapter_model.safetensors").is_file(), packaged_card() != {})
print(*(len(packaged_task(name).train) > 0 for name in NAMES))
"""


def test_recordings_adapter_and_tasks_are_those_of_the_wheel(installed: Installed) -> None:
    where, *found = installed.run("python", "-c", CODE).splitlines()
    assert where.split() == [str(installed.packages)] * 2
    assert len(found) == 3
    assert set(" ".join(found).split()) == {"True"}


def fetch(address: str, seconds: float = 40.0) -> tuple[int, str]:
    """Status and text; an answer that goes on for ever, as a page whose template fails, ends in an error."""
    deadline, text = time.monotonic() + seconds, ""
    with httpx.stream("GET", address, timeout=seconds, follow_redirects=True) as answer:
        for part in answer.iter_text():
            text += part
            assert time.monotonic() < deadline, text[-2000:]
    return answer.status_code, text


@pytest.fixture
def page(installed: Installed) -> Iterator[Callable[[str], tuple[int, str]]]:
    """`lab up` of the wheel with a model process of toys: the pages need no model to be there."""
    lock = installed.elsewhere / "cache" / "runtime" / "up.json"
    log = installed.elsewhere / "up.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(installed.bin / "python"), "-m", "cli.toy_pages"],
            cwd=installed.elsewhere,
            env={**installed.environment(), "PYTHONPATH": str(ROOT / "tests")},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        until(lambda: read_lock(lock) is not None or process.poll() is not None, "the page", 60)
        running = read_lock(lock)
        assert running is not None, log.read_text()[-2000:]
        address = running.page.split("voila/")[0]
        yield lambda path: fetch(address + path)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def test_lab_up_serves_a_page_with_its_picture_its_styles_and_its_widgets(
    page: Callable[[str], tuple[int, str]],
) -> None:
    status, text = page("voila/render/kv_cache.ipynb?autorun=0")
    assert status == 200
    assert "data-poster" in text  # the packaged recording's picture, from the lab's own template
    assert "--lab-accent" in text  # its styles
    assert "application/vnd.jupyter.widget-view+json" in text  # the notebook ran in a kernel
    assert str(ROOT) not in text
    assert page("voila/render/none.ipynb")[0] == 404
