"""The `speculative` page: its own views on a still page, and whole runs replayed on a real Voila without a model."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from free_port import free_port
from gallery import Open, sent, set_state, wait_sent
from playwright.sync_api import Browser, Page, expect
from speculative_sim import HOSTILE, WORDS, Toy, decode, drafts, save, trial
from test_views_all import CONTRAST

from lab.cli.page import PageServer, page_environment, voila_command
from lab.experiments.speculative.params import SpeculativeParams
from lab.paths import notebooks_dir

pytestmark = pytest.mark.browser

ONLY = "rounds,why_bars,why_gauge,kinds,ranked,verdict"


def test_rounds_are_read_with_the_keyboard(open_gallery: Open) -> None:
    page = open_gallery(ONLY)
    rounds = page.get_by_role("list", name="Rounds, the newest first")
    numbers = rounds.locator(".lab-round-number").all_inner_texts()
    assert numbers == sorted(numbers, key=int, reverse=True)
    assert len(numbers) == 8
    assert page.locator('#rounds [tabindex="0"].lab-guess').count() == 1
    first = page.locator("#rounds button.lab-guess").first
    first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    locked = wait_sent(page, "rounds", "lock")[-1]
    assert (locked["round"], locked["row"]) == (int(numbers[0]) - 1, 1)
    set_state(page, "rounds", locked=[locked["round"], 1])
    expect(page.locator('#rounds [aria-pressed="true"]')).to_have_count(1)
    page.keyboard.press("Escape")
    assert sent(page, "rounds", "lock")[-1]["round"] is None
    page.get_by_role("button", name=re.compile("Show all .* rounds")).click()
    assert sent(page, "rounds", "expand") == [{"type": "expand", "expanded": True}]


def test_a_round_says_its_time_and_its_caches_in_words(open_gallery: Open) -> None:
    page = open_gallery(ONLY)
    row = page.locator("#rounds li").first
    expect(row.locator(".lab-round-time")).to_have_attribute(
        "aria-label", re.compile(r"draft .* ms, verify .* ms, judge")
    )
    cache = row.locator(".lab-round-cache").first
    words = cache.get_attribute("aria-label") or ""
    before, most, after = (int(n) for n in re.findall(r"\d+", words))
    assert cache.locator(".lab-cell").count() == most - before
    assert cache.locator(".lab-cell-kept").count() == after - before


def test_the_bars_are_a_table_and_the_gauge_has_words(open_gallery: Open) -> None:
    page = open_gallery(ONLY)
    table = page.get_by_role("table", name="p, q and the residual at this position")
    row = table.get_by_role("row").filter(has_text="proposed, rejected")
    expect(row).to_have_count(1)
    assert [float(t.strip("<")) for t in row.locator(".lab-bars-figure").all_inner_texts()][2] == 0.0
    gauge = page.get_by_role("img", name=re.compile("Accepted with probability .*; the draw was .*: rejected"))
    needle, fill = (gauge.locator(f".lab-gauge-{part}").bounding_box() for part in ("needle", "fill"))
    assert needle is not None
    assert fill is not None
    assert needle["x"] > fill["x"] + fill["width"] - 3
    set_state(page, "why_gauge", u=0.0001, u_text="less than 0.001")
    expect(gauge.locator(".lab-gauge-below")).to_contain_text("✓ the draw")
    line = page.locator("#ranked .lab-len-line").first.bounding_box()
    bar = page.locator("#ranked .lab-len").first.bounding_box()
    assert line is not None
    assert bar is not None
    assert line["x"] - bar["x"] == pytest.approx(bar["width"] / 1.4, abs=2)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_new_views_have_contrast_and_fit(open_gallery: Open, theme: str) -> None:
    page = open_gallery(ONLY, theme=theme, width=800)
    assert page.evaluate(CONTRAST) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_draft_that_cannot_work_is_greyed_with_its_reason(open_gallery: Open) -> None:
    page = open_gallery("controls")
    field = SpeculativeParams.model_json_schema()["properties"]["draft"]
    set_state(
        page, "controls", schema={"properties": {"draft": {**field, "disabled_options": {"int8": "No kernels."}}}}
    )
    options = page.get_by_label("Draft", exact=True).locator("option")
    greyed = options.filter(has_text="(not here)")
    expect(greyed).to_have_count(1)
    assert greyed.evaluate("o => [o.disabled, o.title]") == [True, "No kernels."]
    assert options.count() == len(field["enum"])


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[list[Any]], str]]:
    """`replay(events)`: the address of a page that shows this run; no model process is there."""
    folder = tmp_path_factory.mktemp("replay")
    chosen = folder / "chosen.safetensors"
    port = free_port()
    environment = page_environment(f"http://127.0.0.1:{free_port()}", "t" * 32, chosen)
    server = PageServer(voila_command("127.0.0.1", port, notebooks_dir()), environment, "127.0.0.1", port)

    def show(events: list[Any]) -> str:
        save(events, folder / "next.safetensors").replace(chosen)
        return f"http://127.0.0.1:{port}/voila/render/speculative.ipynb?autorun=0"

    try:
        server.wait_ready(60, threading.Event())
        yield show
    finally:
        server.stop()


@pytest.fixture
def visit(browser: Browser, replay: Callable[[list[Any]], str]) -> Iterator[Callable[..., Page]]:
    """`visit(events, width=800, query="&theme=dark")`: the page of a run; it must make no error."""
    pages: list[Page] = []
    problems: list[str] = []

    def start(events: list[Any], width: int = 1280, query: str = "") -> Page:
        page = browser.new_page(viewport={"width": width, "height": 900}, accept_downloads=True)
        pages.append(page)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.goto(replay(events) + query, wait_until="commit")
        expect(page.locator("#loading")).to_have_count(0, timeout=40_000)
        expect(page.locator(".lab-intro p").first).to_be_visible(timeout=20_000)
        return page

    yield start
    for page in pages:
        page.context.close()
    assert problems == []


def test_a_newcomer_is_told_why_a_token_was_rejected(visit: Callable[..., Page]) -> None:
    page = visit(decode(Toy(words=WORDS + HOSTILE), max_new_tokens=60))
    heading = page.get_by_role("heading", name=re.compile("^Why was .* rejected[?]$"))
    expect(heading).to_be_visible()
    answer = page.locator(".lab-answer")
    expect(answer).to_contain_text(re.compile(r"the draw was [0-9.]+: rejected"))
    accepted = page.locator('.lab-strip [data-kind="accepted"]').first
    accepted.hover()
    expect(answer).to_contain_text("accepted", timeout=5000)
    unjudged = page.locator('.lab-strip [data-kind="unjudged"]').first
    unjudged.click()
    expect(answer).to_contain_text("Never judged")
    page.mouse.move(2, 2)
    expect(page.get_by_role("heading", name=re.compile("never judged[?]$"))).to_be_visible()
    page.get_by_label("Show dropped").uncheck()
    expect(page.locator('.lab-strip [data-kind="unjudged"]')).to_have_count(0)
    assert page.locator('.lab-strip [data-kind="resampled"]').count() > 0
    assert page.evaluate("window.X") is None
    assert page.locator(".lab-page img").count() == 0
    expect(page.locator(".lab-plot[data-ready]")).to_have_count(2)
    expect(page.locator(".lab-player-label")).to_have_text(re.compile(r"round \d+ of \d+"))
    saved: list[str] = []
    page.on("download", lambda file: saved.append(file.suggested_filename))
    page.get_by_role("button", name="Export").click()
    page.get_by_role("menuitem", name="Pictures as SVG").click()
    expect(page.locator(".lab-export")).to_contain_text("4 saved", timeout=10_000)
    assert {"speculative-why.svg", "speculative-rounds.svg"} <= set(saved)


def test_a_whole_page_fits_at_800_with_contrast_and_names(visit: Callable[..., Page]) -> None:
    page = visit(decode(gamma=16, max_new_tokens=120), 800, "&theme=light")
    expect(page.locator(".lab-plot[data-ready]")).to_have_count(2, timeout=20_000)
    assert page.evaluate("document.documentElement.scrollWidth") <= 800
    assert page.evaluate(CONTRAST) == []
    page.evaluate("Object.assign(document.body.dataset, { theme: 'dark', jpThemeLight: 'false' })")
    assert page.evaluate(CONTRAST) == []
    snapshot = page.locator(".lab-picture").first.aria_snapshot()
    assert re.findall(r"^\s*- (?:button|img|table|checkbox|slider|region)(?: \[.*\])?:?$", snapshot, re.M) == []


def test_the_header_folds_and_the_strip_opens_at_its_top(visit: Callable[..., Page]) -> None:
    page = visit(decode(Toy(one_hot=True), max_new_tokens=400), 800)

    def box(where: str) -> dict[str, float]:
        found = page.locator(where).first.bounding_box()
        assert found is not None, where
        return dict(found)

    brand, links, beat = (box(f".lab-header > {part}") for part in (".lab-brand", ".lab-page-links", ".lab-heartbeat"))
    theme = box(".lab-header > :last-child")
    assert brand["height"] < 30, "one line"
    assert brand["x"] < 40 < brand["x"] + brand["width"] <= beat["x"]
    assert links["y"] >= brand["y"] + brand["height"]
    assert theme["x"] >= beat["x"] + beat["width"]
    assert theme["y"] < links["y"]
    for width in (1181, 1280, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        parts = [box(f".lab-header > {p}") for p in (".lab-brand", ".lab-page-links", ".lab-heartbeat", ":last-child")]
        for left, right in pairwise(parts):
            assert left["x"] + left["width"] <= right["x"], f"parts of the header overlap at {width} px"
        assert parts[1]["y"] < 40, "one row"
    page.set_viewport_size({"width": 800, "height": 900})
    expect(page.locator('.lab-strip [data-kind="plain"]').first).to_be_visible()
    strip = page.locator(".lab-strip")
    assert strip.evaluate("s => s.scrollHeight > s.clientHeight + 50 && s.scrollTop") == 0
    expect(page.locator('.lab-kinds [data-kind="plain"]')).to_contain_text("plain step")
    expect(page.locator(".lab-result p")).to_have_count(2)


def test_other_tasks_show_their_own_sections(visit: Callable[..., Page]) -> None:
    page = visit(trial(wrong=True))
    expect(page.get_by_role("heading", name="Not the model's distribution, after 2,000 of 2,000 pairs")).to_be_visible()
    expect(page.locator(".lab-verdict")).to_have_attribute("data-tone", "bad")
    assert page.locator(".lab-strip").count() == 0
    pairs = page.get_by_role("table", name="Pairs of tokens: expected and observed")
    assert pairs.get_by_role("row").count() == 14
    first, formula = (
        page.locator(".lab-section").all()[0],
        page.get_by_role("heading", name=re.compile("First by formula")),
    )
    assert first.locator("h2").first.inner_text() == formula.inner_text()
    page = visit(drafts())
    expect(page.get_by_role("heading", name=re.compile("Fastest: look-up, else the trained head"))).to_be_visible()
    assert page.get_by_role("table", name="Speed-up of each draft").get_by_role("row").count() == 7
    assert Path(str(page.url)).name.startswith("speculative.ipynb")
