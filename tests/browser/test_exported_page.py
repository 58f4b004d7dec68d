"""A run saved as one file, opened from disk with the network cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from lab.events import Recording
from lab.events.kv_cache import TokenDecoded
from widgets.exported.html import export_html
from widgets.opening import RECORDINGS

pytestmark = pytest.mark.browser

HOSTILE = "</script><img src=x onerror=\"document.title='broken'\">"
Opened = Callable[..., Page]
INK = """(plot) => {
  const found = [];
  const look = (node) => {
    if (node.localName === "canvas" && node.width > 1) found.push(node);
    for (const child of [...(node.shadowRoot?.children ?? []), ...node.children]) look(child);
  };
  look(plot);
  const { data } = found[0].getContext("2d").getImageData(0, 0, found[0].width, found[0].height);
  let ink = 0;
  for (let i = 3; i < data.length; i += 4) ink += data[i] > 0;
  return ink;
}"""
TOOLTIP = """(root) => {
  const texts = [];
  const look = (node) => {
    if (node.classList?.contains("bk-Tooltip")) texts.push(node.shadowRoot?.textContent || node.textContent);
    for (const child of [...(node.shadowRoot?.children ?? []), ...node.children]) look(child);
  };
  look(document.body);
  return texts.join(" ");
}"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("exported")

    def make(name: str) -> Path:
        out = folder / f"{name}.html"
        if not out.exists():
            out.write_bytes(export_html(Recording.load(RECORDINGS / f"{name}.safetensors")))
        return out

    return make


@pytest.fixture
def open_file(browser: Browser) -> Iterator[Opened]:
    """`open_file(path, theme="dark", width=800)`; no error may be told and nothing but the file be asked for."""
    pages: list[Any] = []

    def start(path: Path, theme: str = "light", width: int = 1280) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if theme == "dark" else "light", offline=True
        )
        page: Any = context.new_page()
        pages.append(page)
        page.problems, page.requests, page.own = [], [], path.as_uri()

        def gate(route: Route) -> None:
            page.requests.append(route.request.url)
            if route.request.url == page.own:
                route.continue_()
            else:
                route.abort()

        context.route("**/*", gate)
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("console", lambda message: page.problems.append(message.text) if message.type == "error" else None)
        page.goto(page.own)
        page.wait_for_selector("body[data-ready]")
        plots = page.locator(".lab-plot").count()
        expect(page.locator(".lab-plot[data-ready]")).to_have_count(plots, timeout=60_000)
        result: Page = page
        return result

    yield start
    for page in pages:
        page.context.close()
    assert [problem for page in pages for problem in page.problems] == []
    asked = [url for page in pages for url in page.requests if url != page.own]
    assert [url for url in asked if not url.startswith(("data:", "blob:"))] == []


def test_a_link_near_the_title_leads_to_the_lesson_where_that_comes_last(
    open_file: Opened, files: Callable[[str], Path]
) -> None:
    wide = open_file(files("kv_cache"))
    expect(wide.locator(".lab-to-lesson")).to_be_hidden()  # it stands beside the picture
    page = open_file(files("kv_cache"), width=800)
    link = page.get_by_role("link", name="Lesson")
    panel = page.locator(".lab-lesson-panel")
    page.get_by_role("button", name="Fold the lesson").click()
    link.focus()
    page.keyboard.press("Enter")
    expect(panel).to_be_focused()
    expect(panel).to_be_in_viewport()
    expect(panel.get_by_role("button", name="Fold the lesson")).to_have_attribute("aria-expanded", "true")


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 800)])
@pytest.mark.parametrize("name", ["kv_cache", "quantization", "lora"])
def test_the_pictures_are_drawn(
    open_file: Opened, files: Callable[[str], Path], name: str, theme: str, width: int
) -> None:
    page = open_file(files(name), theme, width)
    plots = page.locator(".lab-plot").filter(visible=True)
    assert plots.count() >= 2
    for plot in plots.all():
        assert plot.evaluate(INK) > 500
    assert page.locator("body").get_attribute("data-theme") == theme
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    expect(page.locator(".lab-mode")).to_contain_text("RECORDED")
    expect(page.locator(".lab-badge").first).to_have_text("MEASURED")
    expect(page.locator(".lab-proof-line, .lab-proof").first).not_to_contain_text("No run yet")
    assert page.get_by_text("could not be drawn").count() == 0


def test_tokens_and_pictures_are_linked_and_plots_answer_the_pointer(
    open_file: Opened, files: Callable[[str], Path]
) -> None:
    page = open_file(files("kv_cache"))
    chips = page.locator(".lab-token:not(.lab-fold)")
    expect(chips).to_have_count(60)
    figure = page.locator(".lab-figure-value").first
    last = figure.text_content()
    chips.nth(20).hover()
    expect(figure).not_to_have_text(last or "")
    page.get_by_role("heading", name="The ledger").hover()
    expect(figure).to_have_text(last or "")
    chips.nth(20).click()
    page.get_by_role("heading", name="The ledger").hover()
    expect(figure).not_to_have_text(last or "")
    chips.nth(20).click()
    page.get_by_role("heading", name="The ledger").hover()
    expect(figure).to_have_text(last or "")
    plot = page.locator(".lab-plot").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.6)
    page.mouse.move(box["x"] + box["width"] * 0.52, box["y"] + box["height"] * 0.6)
    wait_for(page, lambda: str(page.evaluate(TOOLTIP)), "MiB")


def wait_for(page: Page, read: Callable[[], str], wanted: str) -> None:
    """Wait until a text holds another: the page's policy forbids playwright's own way, which evaluates a string."""
    for _ in range(200):
        if wanted in read():
            return
        page.evaluate("() => new Promise(requestAnimationFrame)")
    raise AssertionError(f"{wanted!r} is not in {read()!r}")


def test_the_player_goes_through_the_run(open_file: Opened, files: Callable[[str], Path]) -> None:
    page = open_file(files("kv_cache"))
    chips = page.locator(".lab-token:not(.lab-fold)")
    slider = page.get_by_role("slider", name="Step")
    slider.press("Home")
    expect(chips).to_have_count(13)
    expect(page.locator(".lab-player")).to_contain_text("token 1 of 48")
    slider.press("ArrowRight")
    expect(chips).to_have_count(14)
    slider.press("End")
    expect(chips).to_have_count(60)


def test_forms_answer_what_was_recorded(open_file: Opened, files: Callable[[str], Path]) -> None:
    page = open_file(files("quantization"))
    expect(page.get_by_text("round to nearest, 4 bits, symmetric, −Q to Q").first).to_be_visible()
    bits = page.get_by_role("slider", name="Bits", exact=True).first
    bits.focus()
    bits.press("ArrowLeft")
    expect(page.get_by_text("round to nearest, 3 bits, symmetric, −Q to Q").first).to_be_visible()
    expect(page.get_by_text("Only in the lab: this page is a file.").first).to_be_visible()


def test_the_file_gives_the_run_and_its_data(open_file: Opened, files: Callable[[str], Path], tmp_path: Path) -> None:
    page = open_file(files("kv_cache"))
    for label, name in (("The run", "kv_cache.safetensors"), ("Data as CSV", "kv_cache.csv")):
        page.get_by_role("button", name="Export").click()
        with page.expect_download() as download:
            page.get_by_role("menuitem", name=label).click()
        assert download.value.suggested_filename == name
        download.value.save_as(tmp_path / name)
    recording = Recording.load(RECORDINGS / "kv_cache.safetensors")
    assert Recording.load(tmp_path / "kv_cache.safetensors").events == recording.events
    page.get_by_role("button", name="Export").click()
    expect(page.get_by_role("menuitem", name="This page as one file")).to_have_count(0)


def test_the_file_gives_code_that_makes_the_run_again(open_file: Opened, files: Callable[[str], Path]) -> None:
    page = open_file(files("lora"))
    page.get_by_role("button", name="Run card").click()
    dialog = page.get_by_role("dialog", name="Run card")
    dialog.get_by_role("button", name="Copy as Python").click()
    expect(dialog.get_by_role("status")).to_have_text("copied")


def test_text_of_the_model_is_text(open_file: Opened, tmp_path: Path) -> None:
    recording = Recording.load(RECORDINGS / "kv_cache.safetensors")
    events = [
        replace(event, text=HOSTILE) if isinstance(event, TokenDecoded) and event.index == 3 else event
        for event in recording.events
    ]
    path = tmp_path / "hostile.html"
    path.write_bytes(export_html(Recording(tuple(events), recording.inspections)))
    page = open_file(path)
    expect(page.locator(".lab-token").filter(has_text="onerror")).to_have_count(1)
    assert page.locator("img").count() == 0
    assert page.title() == "What does remembering cost? · Inference Lab"


def test_a_script_that_got_in_would_not_run(browser: Browser, files: Callable[[str], Path], tmp_path: Path) -> None:
    """The policy: with it what stands in the page's own markup does nothing; without it (the mutation) it does."""
    text = files("kv_cache").read_text(encoding="utf-8")
    broken = text.replace("<noscript>", "<img src=x onerror=\"document.title='broken'\"><noscript>", 1)
    for policy, title in ((True, "What does"), (False, "broken")):
        path = tmp_path / f"{policy}.html"
        path.write_text(broken if policy else broken.replace("Content-Security-Policy", "x-nothing"), encoding="utf-8")
        page = browser.new_page()
        page.goto(path.as_uri())
        page.wait_for_selector("body[data-ready]")
        assert page.title().startswith(title)
        page.context.close()
