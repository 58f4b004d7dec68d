"""One browser for all browser tests of the session, and the gallery of views on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from chromium import find
from gallery import Open, serve
from playwright.sync_api import Browser, Page, sync_playwright

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium; where there is none the tests fail and say what to do."""
    path = find()
    if path is None:
        pytest.fail("The browser tests need Chromium: run `make test`, which finds or installs it.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def gallery_address() -> Iterator[str]:
    """Where the gallery is served."""
    with serve() as url:
        yield url


@pytest.fixture
def open_gallery(browser: Browser, gallery_address: str) -> Iterator[Open]:
    """`open_gallery("strip", theme="dark", width=800)`: the page with that view alone (or with all).

    Its errors are noted in `page.problems` and must be none in the end; its requests in `page.requests`.
    """
    pages: list[Any] = []

    def start(only: str = "", theme: str = "light", width: int = 1280, fragment: str = "", **context: Any) -> Page:
        page: Any = browser.new_page(viewport={"width": width, "height": 900}, **context)
        pages.append(page)
        page.problems, page.requests = [], []
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("console", lambda message: page.problems.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: page.requests.append(request.url))
        page.goto(f"{gallery_address}?theme={theme}" + (f"&only={only}" if only else "") + fragment)
        page.wait_for_selector("body[data-ready]")
        result: Page = page
        return result

    yield start
    for page in pages:
        page.context.close()
    assert [problem for page in pages for problem in page.problems] == []
