"""Pages in another language in a real browser: the index without a kernel, and one page of an experiment."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from contrast import CONTRAST
from page_server import Served, serving
from playwright.sync_api import Browser, Page, expect

from lab.experiments.registry import EXPERIMENTS
from lab.strings import strings
from widgets.front.path import PATH

pytestmark = pytest.mark.browser

Visit = Callable[..., Page]
GERMAN, ENGLISH = strings("de"), strings("en")
HOSTILE = "%3Cimg%20src%3Dx%20onerror%3Dwindow.X%3D1%3E"
CELL = """
from lab.errors import BackendUnavailable
from widgets import dashboard

class Nobody:
    def __getattr__(self, name):
        def refuse(*values, **options):
            raise BackendUnavailable("No model runs here.", remedy="None.")
        return refuse

dashboard("lora", backend=Nobody(), autorun=False)
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("pages"), {"lora": CELL}) as served:
        yield served


@pytest.fixture
def visit(browser: Browser, pages: Served) -> Iterator[Visit]:
    """`visit(path="/", width=1280)`: a visitor's page, on which nothing went wrong in the end."""
    opened: list[Any] = []

    def start(path: str = "/", width: int = 1280, **context: Any) -> Page:
        page: Any = browser.new_context(viewport={"width": width, "height": 900}, **context).new_page()
        opened.append(page)
        page.problems = []
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.goto(pages.url(path), wait_until="commit")
        result: Page = page
        return result

    yield start
    problems = [problem for page in opened for problem in page.problems]
    for page in opened:
        page.context.close()
    assert problems == []


def language(page: Page) -> str | None:
    return page.locator("html").get_attribute("lang")


def live(page: Page) -> None:
    """Wait until the page has taken the still's place."""
    expect(page.locator("#loading")).to_have_count(0, timeout=60_000)
    expect(page.locator(".lab-lesson-title").first).to_be_visible(timeout=30_000)


def test_the_index_is_german_and_leads_on_in_german(visit: Visit, pages: Served) -> None:
    page = visit("/?theme=dark&lang=de")
    expect(page.get_by_role("heading", level=1)).to_have_text(GERMAN("front.title"))
    assert language(page) == "de"
    expect(page.get_by_role("button", name=GERMAN("page.theme"))).to_have_text("Hell")
    assert pages.kernels() == []
    for name in EXPERIMENTS:
        tile = page.locator(".lab-tile").get_by_role("link", name=GERMAN(f"{name}.title"))
        assert tile.evaluate("node => node.href") == pages.page(name) + "?lang=de"
    for station in PATH:
        expect(page.get_by_text(GERMAN(f"{station.experiment}.task"))).to_be_visible()
    expect(page.get_by_text(GERMAN("page.english"))).to_be_visible()
    here = page.locator('[data-ask="speculative"]')
    here.get_by_role("button").first.click()
    expect(here.get_by_role("status")).to_contain_text(re.compile(r"^(✓ Richtig|✕ Der Lauf sagt): "))
    expect(page.locator(".lab-path-count")).to_contain_text("1 von 6 geschätzt")
    page.get_by_role("button", name="Von vorn").click()
    page.locator('[data-ask="kv_cache"]').get_by_role("textbox").fill("viele")
    page.get_by_role("button", name="Prüfen").click()
    expect(page.locator('[data-ask="kv_cache"]').get_by_role("status")).to_have_text(GERMAN("front.no_number"))
    assert page.locator(".lab-thumb").first.get_attribute("lang") == "en"


def test_the_way_between_the_languages_keeps_what_else_the_address_says(visit: Visit, pages: Served) -> None:
    page = visit("/?theme=dark&lang=de")
    link = page.get_by_role("navigation", name="Sprache").get_by_role("link", name="English")
    assert (link.get_attribute("hreflang"), link.get_attribute("lang")) == ("en", "en")
    link.click()
    page.wait_for_url(pages.page("index") + "?theme=dark&lang=en")
    expect(page.get_by_role("heading", level=1)).to_have_text(ENGLISH("front.title"))
    assert language(page) == "en"
    page.get_by_role("link", name="Deutsch").click()
    page.wait_for_url(pages.page("index") + "?theme=dark&lang=de")
    page.locator(".lab-tile").get_by_role("link", name=GERMAN("lora.title")).focus()
    page.keyboard.press("Enter")
    page.wait_for_url(pages.page("lora") + "?lang=de", wait_until="commit")
    expect(page.locator(".lab-poster h1")).to_have_text(GERMAN("lora.title"))  # the still, before any kernel
    assert language(page) == "de"


def test_a_page_s_title_header_and_lesson_are_german(visit: Visit, pages: Served) -> None:
    page = visit("/voila/render/lora.ipynb?lang=de")
    seen: list[str] = []
    expect(page.get_by_role("heading", level=1)).to_have_text(GERMAN("lora.title"))
    seen.append(page.locator("h1").first.inner_text())
    live(page)
    seen += page.locator("h1").all_inner_texts()
    assert set(seen) == {GERMAN("lora.title")}
    assert language(page) == "de"
    assert page.title() == f"{GERMAN('lora.label')} · Inference Lab"
    lesson = page.get_by_role("region", name="Lektion")
    for key in ("idea", "formula", "worked", "predict", "try", "not", "references"):
        expect(lesson.get_by_role("heading", name=GERMAN(f"lesson.{key}"), exact=True)).to_be_visible()
    expect(lesson).to_contain_text(GERMAN("lora.lesson.idea.3"))
    expect(lesson).to_contain_text("Beide Wege enden bei (5, 7).")  # the recorded answer
    expect(page.get_by_role("group", name=GERMAN("page.questions"))).to_have_attribute("lang", "de")
    assert page.locator(".lab-lesson").get_attribute("lang") == "de"
    assert page.locator(".lab-runner").first.get_attribute("lang") == "en"
    lesson.get_by_role("button", name="Vielleicht nichts").click()
    expect(lesson.get_by_text("mit „merge“", exact=False)).to_have_count(0)
    expect(lesson.get_by_role("status").first).to_be_visible()
    page.get_by_role("button", name=GERMAN("lesson.fold_label")).click()
    expect(page.get_by_role("button", name=GERMAN("lesson.show_label"))).to_be_visible()
    overview = page.get_by_role("navigation", name="Seiten").get_by_role("link", name="Übersicht")
    assert overview.evaluate("node => node.href") == pages.page("index") + "?lang=de"


def test_a_preset_of_the_lesson_sets_the_controls_and_starts(visit: Visit) -> None:
    page = visit("/voila/render/lora.ipynb?lang=de&theme=light")
    live(page)
    lesson = page.get_by_role("region", name="Lektion")
    chip = page.locator(".lab-presets").get_by_role("button", name=GERMAN("lora.presets.merge"))
    expect(chip).to_have_attribute("aria-pressed", "false")
    lesson.get_by_role("button", name=GERMAN("lora.presets.merge")).click()
    expect(chip).to_have_attribute("aria-pressed", "true", timeout=20_000)
    expect(page.get_by_role("alert").filter(has_text="No model runs here.").first).to_be_visible(timeout=20_000)
    page.wait_for_url(re.compile("task=merge"))
    page.get_by_role("link", name="English").click()  # what was set stands behind the # and goes along
    page.wait_for_url(re.compile(r"lora\.ipynb\?lang=en&theme=light#.*task=merge"), wait_until="commit")
    live(page)
    expect(page.locator(".lab-title h1")).to_have_text(ENGLISH("lora.title"))
    english = page.locator(".lab-presets").get_by_role("button", name=ENGLISH("lora.presets.merge"))
    expect(english).to_have_attribute("aria-pressed", "true", timeout=20_000)


@pytest.mark.parametrize("asked", ["xx", "", "DE", HOSTILE])
@pytest.mark.parametrize("path", ["/", "/voila/render/lora.ipynb"])
def test_a_language_that_there_is_not_is_english(visit: Visit, path: str, asked: str) -> None:
    page = visit(f"{path}?lang={asked}")
    title = ENGLISH("front.title" if path == "/" else "lora.title")
    expect(page.get_by_role("heading", level=1).first).to_have_text(title)
    assert language(page) == "en"
    assert page.locator("img").count() == 0
    assert page.evaluate("window.X") is None
    if path != "/" and asked == HOSTILE:
        live(page)
        assert page.evaluate("window.X") is None
        expect(page.get_by_role("link", name="Deutsch")).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", ["/", "/voila/render/lora.ipynb"])
def test_long_words_stay_inside_text_has_contrast_and_controls_have_names(visit: Visit, path: str, theme: str) -> None:
    page = visit(f"{path}?lang=de&theme={theme}", 800)
    if path != "/":
        live(page)
    else:
        expect(page.get_by_role("button", name=GERMAN("page.theme"))).to_be_visible()
        page.evaluate("document.querySelectorAll('details').forEach((node) => { node.open = true; })")
    root = page.locator(".lab-front" if path == "/" else ".lab-lesson")
    for width in (800, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width, timeout=5000)
        wide = root.evaluate(
            """root => [...root.querySelectorAll('p, h2, h3, button, li, a')]
                .filter((node) => node.scrollWidth > node.clientWidth + 1 && node.clientWidth > 0
                    && getComputedStyle(node).display !== 'inline')
                .map((node) => node.textContent.slice(0, 60))"""
        )
        assert wide == []
        header = page.locator(".lab-header").first.evaluate(
            """header => {
                const parts = [...header.querySelectorAll('a, button, .lab-brand p')];
                const boxes = parts.filter((node) => node.offsetParent)
                    .map((node) => node.getBoundingClientRect());
                const apart = (a, b) => a.right <= b.left + 1 || b.right <= a.left + 1 || a.bottom <= b.top + 1
                    || b.bottom <= a.top + 1;
                return boxes.every((a, i) => boxes.slice(i + 1).every((b) => apart(a, b)));
            }"""
        )
        assert header, "two things in the header lie on each other"
        if path == "/":
            assert page.evaluate(CONTRAST) == []
    snapshot = page.locator("body").aria_snapshot()
    controls = r"- (button|textbox|link|region|navigation)(:| \[|$)"
    assert [line for line in snapshot.splitlines() if re.match(controls, line.strip())] == []
