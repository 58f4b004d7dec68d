"""Two runs compared on a page in a real browser, behind a real Voila: recordings alone, no model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from page_server import Served, serving
from playwright.sync_api import Browser, Page, expect

from lab.events import Event, Recording, RunStarted
from lab.events.kv_cache import TokenDecoded
from widgets.opening import RECORDINGS

pytestmark = pytest.mark.browser

CODE = """
from lab.errors import BackendUnavailable
from widgets import dashboard

class NoModel:
    def __getattr__(self, name):
        raise BackendUnavailable("No model runs here.")

dashboard("kv_cache", backend=NoModel(), autorun=False)
"""
CELL = """
from widgets import compare
compare({a!r}, {b!r})
"""
HOSTILE = "<img src=x onerror=window.X=1>"
PACKAGED = RECORDINGS / "kv_cache.safetensors"


def other(folder: Path) -> Path:
    """The packaged run twice as slow, with other settings, and other words from new token 10 on."""

    def changed(event: Event) -> Event:
        match event:
            case RunStarted(card=card):
                params = {**card.params, "seed": 7, "prompt": HOSTILE}
                return replace(event, run_id="other", card=replace(card, threads=1, params=params))
            case TokenDecoded(index=index):
                more = {"text": HOSTILE, "token_id": 1} if index >= 9 else {}
                return replace(event, ms=2 * event.ms, **more)
            case _:
                return event

    path = folder / "other.safetensors"
    Recording(tuple(map(changed, Recording.load(PACKAGED).events))).save(path)
    return path


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return other(tmp_path_factory.mktemp("other"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, recorded: Path) -> Iterator[Served]:
    cells = {"kv_cache": CODE, "cell": CELL.format(a=str(PACKAGED), b=str(recorded))}
    with serving(tmp_path_factory.mktemp("pages"), cells) as found:
        yield found


@pytest.fixture(scope="module")
def page(served: Served, browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(served.page("kv_cache"), wait_until="commit")
    page.wait_for_selector(".lab-plot[data-ready]", timeout=60_000)
    expect(page.locator("#loading")).to_have_count(0, timeout=20_000)
    yield page
    context.close()
    assert problems == []


@pytest.fixture
def empty(page: Page) -> Page:
    """The page with nothing kept."""
    section = page.locator(".lab-compare")
    clear = section.get_by_role("button", name="Clear")
    if clear.count():
        clear.click()
    expect(section.get_by_role("button", name="Keep this run as A")).to_be_visible()
    return page


def opened(page: Page, path: Path) -> Any:
    """The section after a file was chosen as A."""
    section = page.locator(".lab-compare")
    expect(section.get_by_role("button", name="Open a recording as A")).to_be_visible()
    section.locator("input[type=file]").set_input_files(path)
    return section


def sources(page: Page) -> list[dict[str, Any]]:
    """Of each picture that compares: what its axes hold, and both lines, as the browser has them."""
    found: list[dict[str, Any]] = page.evaluate(
        """() => Bokeh.documents.filter(doc => doc.get_model_by_name("b_line")).map(doc => {
            const data = name => Object.fromEntries(
                Object.entries(doc.get_model_by_name(name).data).map(([k, v]) => [k, [...v]]));
            const range = name => { const r = doc.get_model_by_name(name); return [r.start, r.end]; };
            return { a: data("a_line"), b: data("b_line"), x: range("x_range"), y: range("y_range") };
        })"""
    )
    return found


def test_the_run_on_the_page_is_kept_and_let_go(empty: Page) -> None:
    section = empty.locator(".lab-compare")
    expect(section.locator(".lab-plot")).to_have_count(0)
    section.get_by_role("button", name="Keep this run as A").click()
    expect(section).to_contain_text("A is the run on the page. Change a setting and press Run: the new run is B.")
    section.get_by_role("button", name="Clear").click()
    expect(section.get_by_role("button", name="Keep this run as A")).to_be_visible()


def test_a_recording_is_compared_with_the_run_on_the_page(empty: Page, recorded: Path) -> None:
    section = opened(empty, recorded)
    settings = section.get_by_role("table", name="Settings that differ")
    expect(settings.locator("tbody tr")).to_have_count(3, timeout=20_000)
    expect(settings).to_contain_text("Seed")
    expect(settings).to_contain_text(HOSTILE)
    figures = section.get_by_role("table", name="Figures of both runs")
    expect(figures.locator("tbody tr").first).to_contain_text(re.compile(r"decode step.*0\.50 ×.*MEASURED", re.S))
    expect(section.locator(".lab-plot[data-ready]")).to_have_count(3, timeout=20_000)
    steps = [e for e in Recording.load(PACKAGED).events if isinstance(e, TokenDecoded) and e.index > 0]
    drawn = sources(empty)[0]
    assert drawn["b"]["y"] == [e.ms for e in steps]
    assert drawn["a"]["y"] == [2 * e.ms for e in steps]
    assert drawn["y"][1] > max(drawn["a"]["y"]), "one scale holds both"
    expect(section).to_contain_text("First difference at token 10")
    assert empty.evaluate("window.X") is None
    assert section.locator("img[src=x]").count() == 0
    section.get_by_role("button", name="Swap A and B").click()
    expect(figures.locator("tbody tr").first).to_contain_text("2.0 ×")
    assert sources(empty)[0]["a"]["y"] == [e.ms for e in steps]


def test_a_table_stands_behind_each_picture_and_all_has_a_name(empty: Page, recorded: Path) -> None:
    section = opened(empty, recorded)
    expect(section.locator(".lab-plot[data-ready]")).to_have_count(3, timeout=20_000)
    for picture in section.get_by_role("img").all():
        assert (picture.get_attribute("aria-label") or "").strip()
    section.get_by_text("Table: A new token with the cache").click()
    table = section.get_by_role("region", name="compare with")
    expect(table.locator("tbody tr")).to_have_count(47)
    for button in section.get_by_role("button").all():
        assert (button.get_attribute("aria-label") or button.inner_text()).strip()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 800])
def test_nothing_overflows_and_lines_have_contrast(empty: Page, recorded: Path, theme: str, width: int) -> None:
    section = opened(empty, recorded)
    expect(section.locator(".lab-plot[data-ready]")).to_have_count(3, timeout=20_000)
    empty.set_viewport_size({"width": width, "height": 900})
    empty.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
    empty.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width, timeout=5000)
    marks = section.locator(".lab-sides thead svg > *").all()
    assert len(marks) == 4
    for mark in marks:
        assert mark.evaluate(CONTRAST) >= 3
    empty.set_viewport_size({"width": 1280, "height": 900})


CONTRAST = """node => {
    const rgb = text => (text.match(/[\\d.]+/g) || []).slice(0, 3).map(Number);
    const light = c => { const v = c / 255; return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; };
    const luminance = c => .2126 * light(c[0]) + .7152 * light(c[1]) + .0722 * light(c[2]);
    const of = [getComputedStyle(node).fill, getComputedStyle(node.closest(".lab-picture")).backgroundColor];
    const [a, b] = of.map(rgb).map(luminance).sort((x, y) => y - x);
    return (a + .05) / (b + .05);
}"""


def test_a_bad_file_is_told_what_is_wrong_with_it(empty: Page, tmp_path: Path) -> None:
    bad = tmp_path / "weights.safetensors"
    bad.write_bytes(b"\x80\x04not a recording")
    section = opened(empty, bad)
    alert = section.get_by_role("alert")
    expect(alert).to_contain_text("'weights.safetensors' is damaged or not a recording", timeout=20_000)
    alert.get_by_role("button", name="Dismiss").click()
    large = tmp_path / "large.safetensors"
    large.write_bytes(bytes(5 * 1024 * 1024))
    opened(empty, large)
    expect(alert).to_contain_text("'large.safetensors' has 5,242,880 bytes; this page takes at most 4,194,304.")
    opened(empty, RECORDINGS / "lora.safetensors")
    expect(alert).to_contain_text("is a run of lora; this page is of kv_cache.")
    alert.get_by_role("button", name="Dismiss").click()
    expect(section.locator(".lab-sides:visible")).to_have_count(0)


def test_a_comparison_in_a_cell_needs_no_backend(served: Served, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(served.page("cell"), wait_until="commit")
    expect(page.locator(".lab-plot[data-ready]")).to_have_count(3, timeout=60_000)
    expect(page.get_by_role("heading", name="Two runs of kv_cache")).to_be_visible()
    expect(page.get_by_role("table", name="Figures of both runs").locator("tbody tr").first).to_contain_text("2.0 ×")
    page.context.close()
