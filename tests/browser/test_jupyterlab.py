"""`dashboard("...")` in cells of JupyterLab and Notebook 7: several in one notebook, scrolled away, a restarted kernel.

No model process: the pages show their recordings, whose pictures and player are the kernel's as in a live run.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import nbformat
import pytest
from free_port import free_port
from lab_server import wait_until
from playwright.sync_api import Browser, Page, expect

pytestmark = pytest.mark.browser

CELLS = ['from widgets import dashboard\n\ndashboard("kv_cache", autorun=False)', 'dashboard("lora", autorun=False)']
FILLERS = 40
READY_MS = 60_000
APPS = {
    "jupyterlab": ("lab/tree/several.ipynb", "LabApp"),
    "notebook": ("notebooks/several.ipynb", "JupyterNotebookApp"),
}
"""By the module that is started: where it opens a notebook, and its name in its own options."""


def write_notebook(path: Path) -> None:
    cells = [nbformat.v4.new_code_cell(code) for code in CELLS]
    cells += [nbformat.v4.new_markdown_cell(f"# Filler {i}\n\n" + "words " * 200) for i in range(FILLERS)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, path)


@pytest.fixture(scope="module", params=APPS)
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A notebook of two dashboards, opened in JupyterLab, then in Notebook 7."""
    where, app = APPS[request.param]
    home = tmp_path_factory.mktemp("jupyterlab")
    folder = home / "notebooks"
    folder.mkdir()
    write_notebook(folder / "several.ipynb")
    port, log = free_port(), home / "server.log"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LAB_", "JUPYTER"))}
    env |= {"JUPYTER_CONFIG_DIR": str(home / "config"), "JUPYTER_RUNTIME_DIR": str(home / "run")}
    env |= {"JUPYTERLAB_SETTINGS_DIR": str(home / "settings"), "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces")}
    env |= {"LAB_CACHE_DIR": str(home / "cache"), "LAB_BACKEND_URL": "http://127.0.0.1:9", "LAB_BACKEND_TOKEN": "none"}
    options = ["--no-browser", "--allow-root", "--IdentityProvider.token=", f"--port={port}", "--ip=127.0.0.1"]
    options += [f"--{app}.expose_app_in_browser=True"]
    with log.open("wb") as out:
        command = [sys.executable, "-m", request.param, *options]
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=out, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            return httpx.get(f"{url}/api", trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    try:
        wait_until(answers, 60, "the server did not start")
        yield f"{url}/{where}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        shutil.rmtree(home / "workspaces", ignore_errors=True)


class Opened:
    """The notebook in a page. `wrong` collects errors that nobody caught in our modules, which come as blobs."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.wrong: list[str] = []
        page.on("pageerror", self._note)
        page.goto(url, wait_until="domcontentloaded")
        page.wait_for_function("window.jupyterapp !== undefined", timeout=READY_MS)
        page.locator(".jp-Notebook .jp-CodeCell").first.wait_for(timeout=READY_MS)
        status = "window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status"
        page.wait_for_function(f"{status} === 'idle'", timeout=READY_MS)

    def _note(self, error: Any) -> None:
        if "blob:" in (error.stack or ""):  # Jupyter has complaints of its own
            self.wrong.append(str(error))

    def do(self, command: str) -> None:
        """Start a command of Jupyter's; it may go on."""
        self.page.evaluate("name => { void window.jupyterapp.commands.execute(name); }", command)

    def run_all(self) -> None:
        self.do("notebook:run-all-cells")
        self.wait_drawn()

    def wait_drawn(self) -> None:
        """Both pages have their pictures."""
        for name in ("What does remembering cost?", "What can a small update change?"):
            one = self.page.locator(".lab-page", has=self.page.get_by_role("heading", name=name))
            expect(one).to_have_count(1, timeout=READY_MS)
            one.locator(".lab-plot[data-ready]").first.wait_for(timeout=READY_MS)
        assert "Failed to load model class" not in self.page.content()
        assert "Click to show javascript error" not in self.page.content()

    def counted(self) -> int:
        """Points of the `kv_cache` page's ledger that are drawn now in the notebook."""
        found: int = self.page.evaluate(
            """() => {
                const live = Bokeh.documents.map((doc) => doc.get_model_by_name("counted")).filter(Boolean);
                return live.length ? live.at(-1).data.x.length : -1;
            }"""
        )
        return found

    def step_back(self) -> None:
        """One step back on the `kv_cache` page: asked of the kernel, which draws one point less."""
        before = self.counted()
        assert before > 2
        self.page.get_by_role("button", name="One step back").first.click()
        wait_until(lambda: self.counted() == before - 1, 20, f"still {before} points")

    def scroll(self, cell: int) -> None:
        self.page.evaluate(
            "cell => window.jupyterapp.shell.currentWidget.content.scrollToItem(cell)",
            cell,
        )


@pytest.fixture
def opened(address: str, browser: Browser) -> Iterator[Opened]:
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    opened = Opened(context.new_page(), address)
    yield opened
    context.close()
    assert opened.wrong == []


def test_several_in_one_notebook_scrolled_away_and_after_a_restart(opened: Opened) -> None:
    page: Any = opened.page
    opened.run_all()
    opened.step_back()

    opened.scroll(FILLERS)
    expect(page.get_by_role("heading", name=f"Filler {FILLERS - 2}", exact=False).first).to_be_in_viewport(
        timeout=20_000
    )
    expect(page.locator(".lab-page").first).not_to_be_in_viewport()
    opened.scroll(0)
    plot = page.locator(".lab-plot[data-ready]").first
    plot.scroll_into_view_if_needed()
    expect(plot.locator("canvas").first).to_be_in_viewport()
    opened.step_back()

    opened.do("notebook:restart-kernel")
    page.get_by_role("button", name="Confirm Kernel Restart").click()
    opened.scroll(0)
    expect(page.locator(".lab-heartbeat-banner").first).to_contain_text("kernel ended", timeout=20_000)
    opened.run_all()
    expect(page.locator(".lab-page.lab-dead")).to_have_count(0)
    opened.step_back()
