"""The front door in a real browser: the index without a kernel, its questions, and the pages for what fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from contrast import CONTRAST
from gallery import Open
from page_server import Served, serving
from playwright.sync_api import Browser, Locator, Page, expect

from lab.events import Recording
from lab.experiments.registry import EXPERIMENTS
from lab.strings import strings
from widgets.front.prediction import Prediction
from widgets.stills import FOLDER

pytestmark = pytest.mark.browser

Visit = Callable[..., Page]
SECRET = "a secret of this machine"
CELLS = {"broken": f"raise RuntimeError({SECRET!r})", "dead": "import os; os._exit(3)"}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("pages"), CELLS) as served:
        yield served


@pytest.fixture
def visit(browser: Browser, pages: Served) -> Iterator[Visit]:
    """`visit(path="/", width=1280)`: a visitor's page. In the end nothing was asked of another host."""
    opened: list[Any] = []

    def start(path: str = "/", width: int = 1280, **context: Any) -> Page:
        page: Any = browser.new_context(viewport={"width": width, "height": 900}, **context).new_page()
        opened.append(page)
        page.problems, page.asked = [], []
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("console", lambda message: page.problems.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(pages.url(path), wait_until="commit")
        result: Page = page
        return result

    yield start
    elsewhere = {
        urlsplit(url).hostname for page in opened for url in page.asked if not url.startswith(("data:", "blob:"))
    }
    for page in opened:
        page.context.close()
    assert elsewhere <= {"localhost"}


def ready(page: Page) -> None:
    expect(page.get_by_role("button", name="Switch between light and dark")).to_be_visible()


def asked(name: str, language: str = "en") -> Prediction:
    recording = Recording.load(FOLDER / f"{name}.safetensors")
    found: Prediction = import_module(f"widgets.{name}.predict").prediction(recording, strings(language))
    return found


def box(page: Page, name: str) -> Locator:
    return page.locator(f'[data-ask="{name}"]')


def test_the_root_is_the_index_whole_in_one_answer_and_without_a_kernel(visit: Visit, pages: Served) -> None:
    page: Any = visit("/?theme=dark")
    ready(page)
    assert page.url == pages.page("index") + "?theme=dark"
    assert page.title() == "Inference Lab"
    assert page.asked == [pages.url("/?theme=dark"), page.url]  # no script, no style, no picture, no icon from anywhere
    assert page.locator("body").get_attribute("data-theme") == "dark"
    assert page.locator(".lab-tile").count() == len(EXPERIMENTS)
    assert page.locator(".lab-tile svg[role=img]").count() == len(EXPERIMENTS)
    assert pages.kernels() == []
    assert page.problems == []


def test_cards_lead_to_the_pages_and_the_pages_back(visit: Visit, pages: Served) -> None:
    page = visit()
    for name, experiment in EXPERIMENTS.items():
        link = page.locator(".lab-tile").get_by_role("link", name=experiment.title)
        assert link.evaluate("node => node.href") == pages.page(name)
    page.locator(".lab-tile").get_by_role("link", name=EXPERIMENTS["lora"].title).focus()
    page.keyboard.press("Enter")
    page.wait_for_url(pages.page("lora"), wait_until="commit")
    expect(page.locator(".lab-poster h1")).to_have_text(EXPERIMENTS["lora"].title)
    page.locator(".lab-poster").get_by_role("link", name="Overview").click()
    page.wait_for_url(pages.page("index"))
    ready(page)


def test_an_answer_is_checked_against_the_recorded_run(visit: Visit) -> None:
    page: Any = visit()
    ready(page)
    for name in EXPERIMENTS:
        told = asked(name)
        if not told.options:
            continue
        here = box(page, name)
        wrong = next(i for i in range(len(told.options)) if i != told.answer)
        here.get_by_role("button", name=told.options[wrong], exact=True).click()
        expect(here.get_by_role("status")).to_have_text(f"✕ The run says: {told.figure}. {told.badge}")
        expect(here.locator(".lab-told")).to_contain_text(told.why.replace("`", "")[:60])
        here.get_by_role("button", name=told.options[told.answer]).click()
        expect(here.get_by_role("status")).to_have_text(f"✓ Right: {told.figure}. {told.badge}")
        for again in (".lab-told-figure", ".lab-told summary"):  # the figure is said once
            expect(here.locator(again)).to_be_hidden()
        assert here.locator("[aria-pressed=true]").count() == 1
    expect(page.locator(".lab-path-count")).to_contain_text("5 of 6 predicted, 5 right")
    assert page.problems == []


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("{:.2f}", "✓ Right"),
        ("{:.1f} MiB", "✓ Right"),
        ("{:.4f}", "✕ The run says"),
        ("many", "Type a number"),
    ],
)
def test_a_number_is_checked_with_the_tolerance_that_it_says(visit: Visit, typed: str, said: str) -> None:
    told = asked("kv_cache")
    assert told.value is not None
    off = 1 + 1.2 * told.near if said.startswith("✕") else 1.0
    page = visit()
    ready(page)
    here = box(page, "kv_cache")
    field = here.get_by_role("textbox")
    field.fill(typed.format(told.value * off).replace(".", ","))
    field.press("Enter")
    expect(here.get_by_role("status")).to_contain_text(said)
    assert here.locator("details[open]").count() == (0 if said == "Type a number" else 1)


def test_answers_are_there_again_on_the_next_visit_until_one_starts_over(visit: Visit) -> None:
    told = asked("pruning")
    page = visit()
    ready(page)
    box(page, "pruning").get_by_role("button", name=told.options[told.answer]).click()
    box(page, "kv_cache").get_by_role("textbox").fill("1")
    box(page, "kv_cache").get_by_role("button", name="Check").click()
    page.reload()
    expect(box(page, "pruning").get_by_role("status")).to_contain_text("✓ Right")
    expect(box(page, "kv_cache").get_by_role("textbox")).to_have_value("1")
    expect(page.locator(".lab-path-count")).to_contain_text("2 of 6 predicted, 1 right")
    page.get_by_role("button", name="Start over").click()
    expect(box(page, "pruning").get_by_role("status")).to_have_text("")
    expect(page.locator("details[open]")).to_have_count(0)
    page.reload()
    ready(page)
    expect(page.locator(".lab-path-count")).not_to_contain_text("predicted")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_sticks_out_text_has_contrast_and_controls_have_names(visit: Visit, theme: str) -> None:
    page = visit(f"/?theme={theme}", 800)
    ready(page)
    for details in page.locator("details").all():
        details.evaluate("node => { node.open = true }")
    for name in ("speculative", "lora"):
        box(page, name).get_by_role("button").first.click()
    for width, columns in ((800, 2), (1280, 3), (1920, 3)):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width, timeout=5000)
        tops = page.locator(".lab-tile").evaluate_all("cards => cards.map(card => card.getBoundingClientRect().top)")
        assert len(set(tops)) == len(EXPERIMENTS) // columns
        assert page.evaluate(CONTRAST) == []
    snapshot = page.locator("body").aria_snapshot()
    controls = r"- (button|textbox|img|link|list|region|navigation)(:| \[|$)"
    unnamed = [line.strip() for line in snapshot.splitlines() if re.match(controls, line.strip())]
    assert [line for line in unnamed if line != "- list:"] == []  # the ordered list stands under its heading
    assert page.get_by_role("heading", level=1).count() == 1


def test_the_theme_is_the_system_s_until_a_visitor_chooses(visit: Visit) -> None:
    page = visit(color_scheme="dark")
    ready(page)
    body = page.locator("body")
    assert body.get_attribute("data-theme") == "dark"
    page.get_by_role("button", name="Switch between light and dark").click()
    assert body.get_attribute("data-theme") == "light"
    page.reload()
    ready(page)
    assert body.get_attribute("data-theme") == "light"


def test_without_a_script_the_answers_can_be_opened(visit: Visit) -> None:
    page = visit(java_script_enabled=False)
    told = box(page, "lora").get_by_text("What the run says")
    told.click()
    expect(box(page, "lora").locator(".lab-told p").first).to_contain_text(asked("lora").figure)


@pytest.mark.parametrize("name", CELLS)
def test_a_notebook_that_fails_says_what_to_do_and_nothing_else(visit: Visit, pages: Served, name: str) -> None:
    page = visit(f"/voila/render/{name}.ipynb?theme=dark")
    failed = page.get_by_role("alert")
    expect(failed).to_contain_text("This page could not be made.", timeout=60_000)
    expect(page.locator("#loading")).to_have_count(0, timeout=20_000)
    assert page.evaluate(CONTRAST) == []
    content = page.content()
    for word in (SECRET, "Traceback", "RuntimeError", "show_tracebacks", "--debug"):
        assert word not in content
    failed.get_by_role("link", name="Go back to the overview").click()
    page.wait_for_url(pages.page("index"))


@pytest.mark.parametrize("path", ["/nothing", "/voila/render/nothing.ipynb", "/voila/tree", "/voila/files/index.ipynb"])
def test_an_address_without_a_page_leads_back_to_the_index(visit: Visit, pages: Served, path: str) -> None:
    page = visit(f"{path}?theme=dark", 800)
    expect(page.get_by_role("heading", level=1)).to_have_text("There is no such page.")
    assert page.locator("body").get_attribute("data-theme") == "dark"
    assert page.locator(".lab-brand").evaluate("node => node.getBoundingClientRect().left") < 100
    assert page.evaluate(CONTRAST) == []
    page.get_by_role("link", name="Go to the overview").click()
    page.wait_for_url(pages.page("index"))
    assert httpx.get(pages.url(path), trust_env=False, follow_redirects=True).status_code == 404


def test_in_a_notebook_the_questions_work_too(open_gallery: Open) -> None:
    page = open_gallery("front")
    told = asked("beam_search")
    here = box(page, "beam_search")
    here.get_by_role("button", name=told.options[told.answer]).click()
    expect(here.get_by_role("status")).to_have_text(f"✓ Right: {told.figure}. {told.badge}")
    assert page.locator(".lab-tile svg[role=img][viewBox]").count() == len(EXPERIMENTS)
