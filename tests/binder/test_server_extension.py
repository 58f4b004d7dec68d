"""A Jupyter server with `binder/jupyter_config.json`: the lab's pages by Voila, its extension. No model, no browser.

Its folder holds the lab's notebooks and more, as a user's own does; in the repository's folder, as on Binder, they are
opened by `tests/browser/test_binder_pages.py`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from backend.toys import until
from free_port import free_port

from lab.experiments.registry import EXPERIMENTS
from widgets.voila.extension import page_rules

ROOT = Path(__file__).resolve().parents[2]
Get = Callable[[str], httpx.Response]
SECRET = "a-secret-of-another-notebook"
OTHER = {
    "cells": [{"cell_type": "markdown", "id": "a", "source": SECRET, "metadata": {}}],
    "metadata": {"kernelspec": {"name": "python3", "display_name": "Python", "language": "python"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


@pytest.fixture(scope="module")
def get(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Get]:
    """A request to the server."""
    home, folder = tmp_path_factory.mktemp("jupyter"), tmp_path_factory.mktemp("folder")
    shutil.copy(ROOT / "binder" / "jupyter_config.json", home)
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    for path in (folder / "other.ipynb", folder / "notebooks" / "other.ipynb"):
        path.write_text(json.dumps(OTHER))
    (folder / "notes.txt").write_text(SECRET)
    port = free_port()
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LAB_", "JUPYTER"))}
    env |= {"JUPYTER_CONFIG_DIR": str(home), "JUPYTER_RUNTIME_DIR": str(home / "run"), "LAB_CACHE_DIR": str(home / "c")}
    env |= {"LAB_BACKEND_URL": "http://127.0.0.1:9", "LAB_BACKEND_TOKEN": "nobody-listens-there"}
    options = ["--no-browser", "--allow-root", "--IdentityProvider.token=", f"--port={port}", "--ip=127.0.0.1"]
    log = home / "server.log"
    with log.open("wb") as out:
        command = [sys.executable, "-m", "jupyter", "server", *options]
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=out, stderr=subprocess.STDOUT)
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


CLOSED = [
    "voila/files/notes.txt",
    "voila/files/notebooks/kv_cache.ipynb",
    "voila/files/../notes.txt",
    "voila/render/other.ipynb",
    "voila/render/notebooks/other.ipynb",
    "voila/render/notes.txt",
    "voila/tree",
    "voila/tree/notebooks",
    "voila/api/contents",
    "voila/api/contents/other.ipynb",
    "voila/execution/00000000-0000-0000-0000-000000000000",
    "voila/query/00000000-0000-0000-0000-000000000000",
    "voila/templates/inference-lab/index.html.j2",
]


@pytest.mark.parametrize("path", CLOSED)
def test_voila_serves_the_lab_s_pages_and_nothing_else(get: Get, path: str) -> None:
    answer = get(path)
    assert answer.status_code in (403, 404)
    assert not answer.history
    for word in (SECRET, "other.ipynb", "Traceback"):
        assert word not in answer.text.replace(path, "")


def test_the_server_itself_stays_its_user_s(get: Get) -> None:
    assert {"notebooks", "other.ipynb", "notes.txt"} <= {file["name"] for file in get("api/contents").json()["content"]}
    assert get("api/contents/notes.txt").json()["content"] == SECRET
    assert isinstance(get("api/kernels").json(), list)


def test_the_door_leads_to_the_index_with_what_was_asked_for(get: Get) -> None:
    for path in ("voila", "voila/"):
        answer = get(f"{path}?theme=dark")
        assert answer.status_code == 200
        assert answer.url.path == "/voila/render/notebooks/index.ipynb"
        assert answer.url.query == b"theme=dark"


def test_every_answer_of_a_page_has_the_headers(get: Get) -> None:
    paths = ["voila/render/notebooks/index.ipynb", "voila/render/none", "voila/templates/base/static/voila.js", "voila"]
    for path in paths:
        answer = get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'self'" in policy  # JupyterLab of the same server
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "x-frame-options" not in answer.headers


def test_the_pages_are_the_lab_s_own_where_they_lie_below_the_server_s_folder(tmp_path: Path) -> None:
    names = {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert page_rules(ROOT).notebooks == {f"notebooks/{name}" for name in names}
    assert page_rules(ROOT.parent).front == f"{ROOT.name}/notebooks/index.ipynb"
    assert page_rules(ROOT / "notebooks").notebooks == names
    assert page_rules(tmp_path).notebooks == {f"notebooks/{name}" for name in names}


def test_what_is_not_there_is_said_in_the_lab_s_own_words(get: Get) -> None:
    answer = get("voila/render/notebooks/none.ipynb")
    assert answer.status_code == 404
    assert "Traceback" not in answer.text
    assert "Inference Lab" in answer.text
