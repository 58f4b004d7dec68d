"""The tree, the shelf and the rest of the `beam_search` page in a real browser, drawn from JSON without a kernel."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from beam_page import serve
from playwright.sync_api import Browser, Page, expect
from test_views_all import CONTRAST

from widgets import assets

pytestmark = pytest.mark.browser

Open = Callable[..., Page]
TREE = "beam_tree,beam_shelf"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serve() as url:
        yield url


@pytest.fixture
def page_of(browser: Browser, address: str) -> Iterator[Open]:
    """`page_of("16x64", only=TREE, theme="dark", width=800)`; its errors must be none in the end."""
    pages: list[Page] = []
    problems: list[str] = []

    def start(case: str, *, width: int = 1280, **query: str) -> Page:
        page = browser.new_page(viewport={"width": width, "height": 900})
        pages.append(page)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("request", lambda r: None if r.url.startswith((address, "data:", "blob:")) else problems.append(r.url))
        page.goto(f"{address}?case={case}" + "".join(f"&{k}={v}" for k, v in query.items()))
        page.wait_for_selector("body[data-ready]")
        return page

    yield start
    for page in pages:
        page.close()
    assert problems == []


def sent(page: Page, kind: str, module: str = "beam_tree") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = page.evaluate(
        "([module, kind]) => views[module][0].model.sent.filter((m) => m.type === kind)", [module, kind]
    )
    return found


def port(page: Page) -> Any:
    return page.get_by_role("tree", name="Tree of the search")


@pytest.mark.parametrize(
    ("case", "theme", "width"),
    [("4x24", "light", 1280), ("16x64", "dark", 800), ("ends", "light", 800), ("stopped", "dark", 1280)],
)
def test_the_page_fits_and_reads_well(page_of: Open, case: str, theme: str, width: int) -> None:
    page = page_of(case, theme=theme, width=width)
    expect(page.locator(".lab-plot[data-ready]")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(CONTRAST) == []
    assert page.locator(".lab-beam-node").count() > 5


@pytest.mark.parametrize("case", ["empty", "failed", "one", "end1", "greedy"])
def test_the_smallest_runs_are_drawn(page_of: Open, case: str) -> None:
    page = page_of(case, only=TREE)
    if case in ("empty", "failed"):
        expect(page.get_by_text("No candidates yet.")).to_be_visible()
        expect(port(page)).to_be_hidden()
    else:
        assert page.locator(".lab-beam-node").count() > 4
        expect(page.get_by_role("list", name="Finished texts").get_by_role("button").first).to_contain_text("✓ 1")


def test_every_control_and_every_node_has_a_name(page_of: Open) -> None:
    page = page_of("4x24", only=TREE)
    snapshot = page.locator("body").aria_snapshot()
    named = r"- (button|textbox|slider|img|table|group|region|toolbar|tree|treeitem|list)(:| \[|$)"
    assert [line for line in snapshot.splitlines() if re.match(named, line.strip())] == []
    assert re.search(r'treeitem "·green, \d+ %, the best text', snapshot)
    assert page.get_by_role("treeitem", selected=True).count() == 0


LAYOUT = (Path(__file__).parent / "beam_layout_check.js").read_text(encoding="utf-8").partition("\n")[2]


@pytest.mark.parametrize("case", ["16x64", "ends", "4x24"])
def test_nothing_overlaps_no_line_crosses_and_every_candidate_is_shown_or_counted(page_of: Open, case: str) -> None:
    page = page_of(case, only=TREE)
    page.add_script_tag(content=assets.esm("beam_tree") + "\nwindow.lab = { readTree, layTree };", type="module")
    page.wait_for_function("window.lab")
    for shared in (False, True):
        for losers in (False, True):
            for step in (None, 3, 12):
                found = page.evaluate(LAYOUT, [shared, losers, step])
                assert found["bad"] == [], (shared, losers, step)
                assert found["shown"] + found["hidden"] == found["known"]
                assert found["straight"]
    opened, folded = page.evaluate(LAYOUT, [True, True, None]), page.evaluate(LAYOUT, [False, False, None])
    assert opened["hidden"] == 0
    assert folded["drawn"] < opened["drawn"] / 2


def test_pointing_says_why_in_words(page_of: Open) -> None:
    page = page_of("ends", only=TREE)
    page.locator('.lab-beam-node[data-state="lost"]').first.hover()
    detail = page.locator(".lab-beam-detail")
    expect(detail).to_contain_text(re.compile(r"Lost: ranked \d+(st|nd|rd|th) of 8, and 4 are kept\."))
    expect(detail).to_contain_text("probability")
    expect(page.locator(".lab-beam-prompt")).to_have_text("The three primary colours are")
    assert isinstance(sent(page, "hover")[-1]["node"], int)
    assert page.locator(".lab-beam-node[data-lit]").count() == 2, "the token and the prompt"
    page.locator(".lab-beam-key", has_text="finished").hover()
    assert sent(page, "hover")[-1]["node"] is None


def test_a_click_follows_a_path_and_escape_lets_it_go(page_of: Open) -> None:
    page = page_of("4x24", only=TREE)
    page.locator('.lab-beam-node[data-state="won"]:not([data-stretch])').nth(1).click()
    node = sent(page, "lock")[-1]["node"]
    assert node is not None
    held = page.locator(".lab-beam-node[data-held]")
    assert held.count() >= 3
    expect(page.get_by_role("treeitem", selected=True)).to_have_count(1)
    port(page).focus()
    page.keyboard.press("Escape")
    assert sent(page, "lock")[-1]["node"] is None
    expect(held).to_have_count(0)


def test_the_arrow_keys_walk_the_tree(page_of: Open) -> None:
    page = page_of("ends", only=TREE)
    port(page).focus()
    page.keyboard.press("Home")
    active = "document.getElementById(document.querySelector('[role=tree]').getAttribute('aria-activedescendant'))"
    assert page.evaluate(f"{active}.getAttribute('aria-label')") == "prompt: The three primary colours are"
    page.keyboard.press("ArrowRight")
    first = page.evaluate(f"{active}.getAttribute('aria-label')")
    page.keyboard.press("ArrowDown")
    second = page.evaluate(f"{active}.getAttribute('aria-label')")
    assert first != second
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(f"{active}.getAttribute('aria-label')") == first
    page.keyboard.press("End")
    assert "end of a finished text" in page.evaluate(f"{active}.getAttribute('aria-label')")
    assert port(page).evaluate("node => node.scrollLeft") > 0, "what is walked to is brought into sight"
    page.keyboard.press("Enter")
    assert sent(page, "lock")[-1]["node"] == page.evaluate("views.beam_tree[0].model.get('state').best")


def test_folds_and_stretches_open(page_of: Open) -> None:
    page = page_of("16x64", only=TREE)
    width = "document.querySelector('.lab-beam-svg').viewBox.baseVal.width"
    before = page.evaluate(width)
    stretch = page.locator('.lab-beam-node[data-stretch][data-state="won"]').first
    expect(stretch).to_contain_text("…")
    stretch.click()
    assert page.evaluate(width) > before
    fold = page.locator("[data-fold]").first
    count = int((fold.locator("text").text_content() or "+0").removeprefix("+"))
    shown = page.locator(".lab-beam-node[data-state='lost'], .lab-beam-node[data-state='dead']")
    lost = shown.count()
    fold.click()
    assert shown.count() > lost
    assert count > 0
    page.get_by_role("button", name="Losers").click()
    expect(page.get_by_role("button", name="Losers")).to_have_attribute("aria-pressed", "true")
    assert sent(page, "view")[-1]["view"]["losers"] is True
    page.get_by_role("button", name="Stretches").click()
    expect(page.locator(".lab-beam-node[data-stretch]")).to_have_count(0)
    drawn = page.locator(".lab-beam-node").count()
    assert drawn < 400, "of 2,048 candidates only those in sight are drawn"
    page.get_by_role("button", name="Fit").click()
    assert page.evaluate("document.querySelector('.lab-beam-port').scrollWidth <= 660")


def test_zoom_by_button_key_and_wheel_and_pan_by_dragging(page_of: Open) -> None:
    page = page_of("4x24", only=TREE)
    size = "Number(document.querySelector('.lab-beam-svg').getAttribute('width'))"
    whole = page.evaluate(size)
    page.get_by_role("button", name="Smaller").click()
    assert page.evaluate(size) == pytest.approx(whole * 0.8, rel=0.01)
    port(page).focus()
    page.keyboard.press("+")
    assert page.evaluate(size) == pytest.approx(whole, rel=0.01)
    box = port(page).bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 150)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    page.wait_for_function(f"{size} > {whole * 1.5}")
    assert sent(page, "view")[-1]["view"]["zoom"] > 1.5
    page.keyboard.press("0")
    assert page.evaluate(size) <= box["width"]
    page.get_by_role("button", name="Larger").click(click_count=4)
    left = port(page).evaluate("node => { node.scrollLeft = 400; return node.scrollLeft; }")
    locks = len(sent(page, "lock"))
    page.mouse.move(box["x"] + 300, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 40, steps=3)
    page.mouse.up()
    assert port(page).evaluate("node => node.scrollLeft") == pytest.approx(left + 100, abs=3)
    assert len(sent(page, "lock")) == locks, "a drag is no click"


def test_other_paths_can_be_taken_off_and_go_their_own_row(page_of: Open) -> None:
    page = page_of("4x24", only=TREE)
    greedy = page.locator('.lab-beam-path[data-kind="greedy"]')
    page.get_by_role("button", name="Fit").click()
    assert greedy.count() > 2
    outside = page.locator('.lab-beam-node[data-state="greedy"]').first
    outside.hover()
    expect(page.locator(".lab-beam-detail")).to_contain_text("no beam ever had this token")
    page.get_by_role("button", name="greedy").click()
    expect(greedy).to_have_count(0)
    expect(page.locator('.lab-beam-node[data-state="greedy"]')).to_have_count(0)


def test_a_living_tree_stays_at_its_newest_column(page_of: Open) -> None:
    page = page_of("16x64", only=TREE, step="30")
    end = "p => p.scrollWidth - p.clientWidth - p.scrollLeft"
    assert port(page).evaluate(end) < 3
    page.evaluate("views.beam_tree[0].model.set('state', { ...views.beam_tree[0].model.get('state'), step: 31 })")
    assert port(page).evaluate(end) < 3
    newest = page.locator(".lab-beam-node[data-newest]")
    assert newest.count() > 4


def test_a_whole_run_opens_at_its_beginning_and_a_run_that_ends_goes_there(page_of: Open) -> None:
    page = page_of("4x24", only=TREE)
    assert port(page).evaluate("p => p.scrollLeft < p.scrollWidth - p.clientWidth - 100")
    forked = port(page).evaluate("p => p.scrollLeft")
    page = page_of("4x24", only=TREE, step="20")
    page.evaluate("(m => m.set('state', { ...m.get('state'), step: 23, over: true }))(views.beam_tree[0].model)")
    assert port(page).evaluate("p => p.scrollLeft") == pytest.approx(forked, abs=400)
    assert port(page).evaluate("p => p.scrollLeft < p.scrollWidth - p.clientWidth - 100")


def test_all_rows_of_the_shelf_are_in_sight_and_those_pushed_out_are_below_it(page_of: Open) -> None:
    page = page_of("16x64", only=TREE)
    shelf = page.get_by_role("list", name="Finished texts")
    assert shelf.get_by_role("button").count() == 16
    assert shelf.evaluate("node => node.scrollHeight <= node.clientHeight + 1")
    page = page_of("pushed", only=TREE)
    out = page.get_by_role("list", name="Texts pushed out").get_by_role("button")
    assert out.count() >= 1
    expect(out.first).to_have_accessible_name(re.compile("^pushed out: "))
    out.first.click()
    expect(out.first).to_have_attribute("aria-pressed", "true")
    page.evaluate("(m => m.set('state', { ...m.get('state'), locked: m.get('state').best }))(views.beam_tree[0].model)")
    expect(page.locator(".lab-beam-whose")).to_have_text("followed")
    page.locator(".lab-beam-node").nth(2).hover()
    expect(page.locator(".lab-beam-whose")).to_have_text("pointed at")


def test_the_shelf_points_and_locks(page_of: Open) -> None:
    page = page_of("ends", only=TREE)
    rows = page.get_by_role("list", name="Finished texts").get_by_role("button")
    assert rows.count() == 4
    expect(rows.first).to_have_accessible_name(re.compile(r"1, wins: .*score −14\.34 / 19\^1\.0 = −0\.755; ended with"))
    expect(page.locator(".lab-shelf-bound")).to_contain_text("a running text can reach −0.764")
    rows.nth(1).hover()
    assert sent(page, "hover", "beam_shelf")[-1]["node"] is not None
    rows.nth(1).click()
    expect(rows.nth(1)).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("ArrowUp")
    expect(rows.first).to_be_focused()


CHIPS = """
() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const light = (text) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
    const f = (v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = canvas.getImageData(0, 0, 1, 1).data;
    return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b);
  };
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const ground = getComputedStyle(document.querySelector(".lab-beam-port")).backgroundColor;
  const found = {};
  for (const node of document.querySelectorAll(".lab-beam-node")) {
    const [box, words] = [getComputedStyle(node.querySelector("rect")), getComputedStyle(node.querySelector("text"))];
    const name = node.hasAttribute("data-held") ? "held" : node.dataset.state;
    found[name] = { words: ratio(words.fill, box.fill), edge: ratio(box.stroke, ground) };
  }
  return found;
}
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_on_chips_have_a_contrast_of_four_and_a_half_and_living_edges_of_three(page_of: Open, theme: str) -> None:
    page = page_of("ends", only=TREE, theme=theme)
    found = page.evaluate(CHIPS)
    page.locator('.lab-beam-node[data-state="dead"]').first.click()
    found |= page.evaluate(CHIPS)
    page.evaluate("(m => m.set('state', { ...m.get('state'), step: 9, over: false }))(views.beam_tree[0].model)")
    found |= {k: v for k, v in page.evaluate(CHIPS).items() if k not in found}
    assert set(found) >= {"root", "won", "running", "shelf", "dead", "lost", "greedy", "sampled", "held"}
    assert [name for name, ratio in found.items() if ratio["words"] < 4.5] == []
    assert [name for name in ("won", "running", "shelf", "greedy", "sampled") if found[name]["edge"] < 3] == []


HOSTILE = "<img src=x onerror=window.X=1>"


def test_hostile_and_strange_texts_are_texts(page_of: Open) -> None:
    page = page_of("ends", only=TREE)
    page.evaluate(
        """(texts) => {
          const { model } = views.beam_tree[0];
          const tree = structuredClone(model.get("tree"));
          tree.nodes.forEach((node, i) => { node[2] = texts[i % texts.length]; });
          for (const path of tree.paths) path.texts = path.texts.map(() => texts[0]);
          model.set("tree", tree);
          model.set("state", { ...model.get("state"), prompt: texts[0] });
          const shelf = views.beam_shelf[0].model;
          const rows = shelf.get("state").rows.map((row) => ({ ...row, text: texts[0], full: texts[0] }));
          shelf.set("state", { ...shelf.get("state"), rows });
        }""",
        [HOSTILE, "", "\n\n", "🙂", "\u202eb", "x" * 400, "   "],
    )
    words = page.locator(".lab-beam-words").evaluate_all("nodes => nodes.map(node => node.textContent)")
    assert {"∅", "↵↵", "🙂", "U+202Eb", "···"} <= set(words)
    assert max(len(text) for text in words) < 40
    page.locator(".lab-beam-node").nth(3).hover()
    assert page.locator("img, [onerror]").count() == 0
    assert page.evaluate("window.X") is None
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_tree_is_a_file_of_its_own(page_of: Open) -> None:
    page = page_of("4x24", only=TREE)
    text = page.evaluate("document.querySelector('.lab-beam-tree').labPicture('svg', '#fff').then((b) => b.text())")
    assert text.startswith("<svg")
    assert "class=" not in text
    assert text.count("<text") > 100, "the whole tree, not only what is in sight"
    kind, size = page.evaluate(
        "document.querySelector('.lab-beam-tree').labPicture('png', '#fff').then((b) => [b.type, b.size])"
    )
    assert kind == "image/png"
    assert size > 5000
