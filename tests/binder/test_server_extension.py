"""A Jupyter server with `binder/jupyter_config.json`: the lab's pages by Voila, its extension. No model, no browser."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from backend.toys import until

from lab.experiments.registry import EXPERIMENTS

ROOT = Path(__file__).resolve().parents[2]
Get = Callable[[str], httpx.Response]


@pytest.fixture(scope="module")
def get(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Get]:
    """A request to the server, which runs in the repository's folder as on Binder."""
    home = tmp_path_factory.mktemp("jupyter")
    shutil.copy(ROOT / "binder" / "jupyter_config.json", home)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LAB_", "JUPYTER"))}
    env |= {"JUPYTER_CONFIG_DIR": str(home), "JUPYTER_RUNTIME_DIR": str(home / "run"), "LAB_CACHE_DIR": str(home / "c")}
    env |= {"LAB_BACKEND_URL": "http://127.0.0.1:9", "LAB_BACKEND_TOKEN": "nobody-listens-there"}
    options = ["--no-browser", "--allow-root", "--IdentityProvider.token=", f"--port={port}", "--ip=127.0.0.1"]
    log = home / "server.log"
    with log.open("wb") as out:
        command = [sys.executable, "-m", "jupyter", "server", *options]
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=out, stderr=subprocess.STDOUT)
    address = f"http://127.0.0.1:{port}/"
    with httpx.Client(trust_env=False, timeout=40, follow_redirects=True) as client:

        def answers() -> bool:
            assert process.poll() is None, log.read_text()[-3000:]
            try:
                return client.get(address + "api").status_code == 200
            except httpx.HTTPError:
                return False

        try:
            until(answers, "the server", 60)
            yield lambda path: client.get(address + path)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def test_a_page_has_the_lab_s_template_its_picture_and_its_widgets(get: Get) -> None:
    answer = get("voila/render/notebooks/kv_cache.ipynb?autorun=0&template=base")
    assert answer.status_code == 200
    assert "data-poster" in answer.text  # our template: another one cannot be chosen
    assert "--lab-accent" in answer.text
    assert "application/vnd.jupyter.widget-view+json" in answer.text
    assert "from widgets import dashboard" not in answer.text


def test_the_index_leads_to_pages_beside_it_and_starts_no_kernel(get: Get) -> None:
    before = len(get("api/kernels").json())
    answer = get("voila/render/notebooks/index.ipynb")
    assert answer.status_code == 200
    links = set(re.findall(r'href="(?:\./)?(\w+)\.ipynb"', answer.text))
    assert links >= set(EXPERIMENTS)
    assert len(get("api/kernels").json()) == before


@pytest.mark.parametrize("path", ["pyproject.toml", "notebooks/kv_cache.ipynb", "../pyproject.toml"])
def test_voila_gives_no_files_away(get: Get, path: str) -> None:
    answer = get(f"voila/files/{path}")
    assert answer.status_code in (403, 404)
    assert "hatchling" not in answer.text


def test_what_is_not_there_is_said_in_the_lab_s_own_words(get: Get) -> None:
    answer = get("voila/render/notebooks/none.ipynb")
    assert answer.status_code == 404
    assert "Traceback" not in answer.text
    assert "Inference Lab" in answer.text
