"""A hosted lab behind a real nginx, under a prefix, with the files of `hosting/`: as a visitor sees it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import nginx
import pytest
from free_port import free_port
from lab_server import Lab, running_lab, wait_until
from playwright.sync_api import Browser, Error, Page, expect

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.browser,
    pytest.mark.model,
    pytest.mark.skipif(nginx.find() is None, reason="nginx is not here: `python -m tests.nginx` installs Debian's"),
]

TOKEN = "a-token-for-all-visitors"


@dataclass
class Front:
    """nginx before a lab."""

    url: str
    lab: Lab

    def page(self, name: str = "kv_cache", fragment: str = "") -> str:
        return f"{self.url}voila/render/{name}.ipynb?autorun=0&token={TOKEN}{fragment}"


def replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, f"{old!r} is in the file {text.count(old)} times"
    return text.replace(old, new)


@contextmanager
def served_by_nginx(folder: Path, lab_port: int) -> Iterator[int]:
    """The configuration of `hosting/`, with free ports and folders of the test in place of the system's."""
    port = free_port()
    site = (ROOT / "hosting" / "nginx.conf").read_text()
    site = replaced(site, "server 127.0.0.1:8866;", f"server 127.0.0.1:{lab_port};")
    site = replaced(site, "    listen 80;", f"    listen 127.0.0.1:{port};")
    (folder / "site.conf").write_text(site)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    own = "\n".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    main = f"""
        daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log;
        events {{ }}
        http {{ types {{ text/html html; }} access_log {folder}/access.log; {own} include {folder}/site.conf; }}
    """
    (folder / "nginx.conf").write_text(main)
    command = [str(nginx.find()), "-e", f"{folder}/error.log", "-c", f"{folder}/nginx.conf"]
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert "warn" not in checked.stderr
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: answers(f"http://127.0.0.1:{port}/lab"), 10, "nginx does not answer")
        yield port
    finally:
        process.terminate()
        process.communicate(timeout=10)


def answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code == 301
    except httpx.HTTPError:
        return False


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory, packaged_model: Any) -> Iterator[Front]:
    del packaged_model  # fetched and converted
    folder = tmp_path_factory.mktemp("hosted")
    settings = folder / "lab.toml"
    text = replaced((ROOT / "hosting" / "lab.toml").read_text(), "idle_s = 300", "idle_s = 2")
    settings.write_text(replaced(text, "visitors = 30", "visitors = 2"))
    with (
        running_lab(folder / "cache", "--settings", str(settings), LAB_PAGE_TOKEN=TOKEN) as lab,
        served_by_nginx(folder, lab.port) as port,
    ):
        yield Front(f"http://localhost:{port}/lab/", lab)


@dataclass
class Visit:
    """A page, what it asked for and what went wrong."""

    page: Page
    problems: list[str]
    requests: list[str]
    sockets: list[str]

    def wait_ready(self) -> None:
        self.page.wait_for_selector(".lab-plot[data-ready]", timeout=60_000)
        expect(self.page.locator("#loading")).to_have_count(0, timeout=20_000)


@pytest.fixture
def visit(browser: Browser) -> Iterator[Any]:
    visits: list[Visit] = []

    def start(url: str) -> Visit:
        page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        visit = Visit(page, [], [], [])
        visits.append(visit)
        page.on("pageerror", lambda error: visit.problems.append(str(error)))
        page.on("console", lambda m: visit.problems.append(m.text) if m.type == "error" else None)
        page.on("request", lambda request: visit.requests.append(request.url))
        page.on("websocket", lambda socket: visit.sockets.append(socket.url))
        page.goto(url, wait_until="commit")
        return visit

    yield start
    for one in visits:
        one.page.context.close()
    assert [p for v in visits for p in v.problems] == []


def test_a_page_under_the_prefix_replays_runs_and_leads_to_others(front: Front, visit: Any) -> None:
    """No request leaves the prefix, the policy lets the page work, its websocket passes, its seat comes free."""
    here = visit(front.page())
    here.wait_ready()
    kernels = {kernel.pid for kernel in front.lab.kernels()}
    assert len(kernels) == 1
    page = here.page
    asked = [url for url in here.requests if url.startswith("http")]
    assert asked
    assert [url for url in asked if not url.startswith(front.url)] == []
    assert [re.sub(r"[0-9a-f-]{36}.*", "ID", url) for url in here.sockets] == [
        front.url.replace("http", "ws") + "api/kernels/ID"
    ]
    assert TOKEN not in (front.lab.log.read_text())
    expect(page.locator(".lab-mode")).to_contain_text("RECORDED")
    first = page.locator(".lab-player input[type=range]").first
    first.focus()
    page.keyboard.press("Home")
    expect(first).to_have_value("0")  # it went to the kernel and came back
    expect(page.get_by_text("fetched when run")).to_have_count(0)  # a packaged model that is not offered
    links = page.locator("a[href*='.ipynb']").evaluate_all("links => links.map(link => link.href)")
    assert links
    assert all(link.startswith(front.url) for link in links)
    page.get_by_label("New tokens", exact=True).fill("3")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".lab-proof")).to_contain_text("3 of 3 tokens", timeout=90_000)
    page.context.close()
    wait_until(lambda: not front.lab.kernels(), 10, "the kernel outlived its page")


def test_a_model_in_a_link_is_refused_in_words(front: Front, visit: Any) -> None:
    here = visit(front.page(fragment="#model=/etc/passwd"))
    here.wait_ready()
    alert = here.page.get_by_role("alert").filter(has_text="not offered")
    expect(alert).to_contain_text("The model '/etc/passwd' is not offered here.", timeout=20_000)
    expect(alert).to_contain_text("it offers smollm2-135m-instruct")


def test_a_killed_kernel_is_said_and_the_page_comes_back(front: Front, visit: Any) -> None:
    here = visit(front.page())
    here.wait_ready()
    (kernel,) = front.lab.kernels()
    kernel.kill()
    banner = here.page.locator(".lab-heartbeat-banner")
    expect(banner).to_contain_text("kernel ended", timeout=15_000)
    here.problems.clear()  # the browser says that the socket broke, and it did
    banner.get_by_role("button", name="Reload").click()
    here.page.wait_for_function("() => !document.querySelector('.lab-dead')")
    here.wait_ready()
    expect(here.page.get_by_role("button", name="Run", exact=True)).to_be_enabled()
    assert kernel.pid not in {k.pid for k in front.lab.kernels()}


def test_a_browser_that_dies_leaves_no_kernel(front: Front, visit: Any) -> None:
    wait_until(lambda: not front.lab.kernels(), 20, "a kernel outlived its page")
    here = visit(front.page())
    here.wait_ready()
    assert len(front.lab.kernels()) == 1
    with pytest.raises(Error):
        here.page.goto("chrome://crash")  # no farewell is sent
    wait_until(lambda: not front.lab.kernels(), 20, "the kernel outlived its page's browser")


def test_files_stay_where_they_are_behind_nginx_too(front: Front) -> None:
    with httpx.Client(trust_env=False, follow_redirects=True) as client:
        client.get(front.url, params={"token": TOKEN})
        paths = ("voila/files/kv_cache.ipynb", "files/kv_cache.ipynb", "voila/render/..%2flab.toml", "api/kernels")
        for path in paths:
            answer = client.get(front.url + path)
            assert answer.status_code in (403, 404)
            assert answer.headers["x-content-type-options"] == "nosniff"
        script = client.get(front.url + "voila/templates/base/static/voila.js")
        assert script.headers["content-encoding"] == "gzip"
    outside = httpx.get(front.url.removesuffix("lab/") + "voila/render/kv_cache.ipynb", trust_env=False)
    assert outside.status_code == 404
