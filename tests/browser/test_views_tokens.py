"""Chips, layers, tables: hover, lock, keys, hostile and long texts."""

from __future__ import annotations

import pytest
from gallery import NEW, PROMPT, Open, sent, set_state
from playwright.sync_api import expect

pytestmark = pytest.mark.browser


def test_hover_links_and_click_locks(open_gallery: Open) -> None:
    page = open_gallery("strip")
    chips = page.locator("#strip [data-index]")
    assert chips.count() == len(PROMPT) + len(NEW)
    chips.nth(3).hover()
    chips.nth(4).hover()
    page.mouse.move(1, 1)
    assert [m["index"] for m in sent(page, "strip", "hover")] == [3, 4, None]
    chips.nth(4).click()
    assert sent(page, "strip", "lock")[-1]["index"] == 4
    expect(chips.nth(4)).to_have_attribute("aria-pressed", "true")
    expect(page.locator('#strip [aria-pressed="true"]')).to_have_count(1)
    chips.nth(4).click()
    assert sent(page, "strip", "lock")[-1]["index"] is None


def test_one_tab_stop_and_arrow_keys(open_gallery: Open) -> None:
    page = open_gallery("strip")
    chips = page.locator("#strip [data-index]")
    assert page.locator('#strip [tabindex="0"]').count() == 1
    page.keyboard.press("Tab")
    expect(chips.last).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(chips.nth(chips.count() - 2)).to_be_focused()
    page.keyboard.press("Home")
    expect(chips.first).to_be_focused()
    page.keyboard.press("ArrowDown")
    below = int(page.locator("#strip :focus").get_attribute("data-index") or -1)
    tops = chips.evaluate_all("nodes => nodes.map(node => node.offsetTop)")
    assert tops[below] > tops[0]
    page.keyboard.press("Enter")
    assert sent(page, "strip", "lock")[-1]["index"] == below
    assert sent(page, "strip", "hover")[-1]["index"] == below
    page.keyboard.press("Escape")
    assert sent(page, "strip", "lock")[-1]["index"] is None


def test_updates_keep_focus_hover_and_nodes(open_gallery: Open) -> None:
    page = open_gallery("strip")
    chip = page.locator('#strip [data-index="14"]')
    chip.focus()
    chip.evaluate("node => { window.kept = node }")
    page.evaluate(
        """() => {
          const m = views.strip.model;
          for (let i = 0; i < 60; i += 1) {
            const s = m.get("state");
            const tokens = s.tokens.map((t) => (t.kind === "newest" ? { ...t, kind: "new" } : t));
            m.set("state", { ...s, tokens: [...tokens, { text: ` t${i}`, kind: "newest" }], weights: null });
          }
        }"""
    )
    expect(chip).to_be_focused()
    assert page.evaluate("window.kept === document.activeElement")
    assert page.locator('#strip [data-kind="newest"]').count() == 1


SHOWN = [
    (" so", "·so"),
    ("  ", "··"),
    ("\n\n", "↵↵"),
    ("\tx", "⇥x"),
    ("\ufffd", "◌"),
    ("", "∅"),
    ("\u0301", "◌\u0301"),
    ("a\u202eb", "aU+202Eb"),
    ("\x07", "␇"),
    ("👩‍👩‍👧", "👩‍👩‍👧"),
    ("שלום", "שלום"),
    ("<img src=x onerror=window.X=1>", "<img src=x onerror=window.X=1>"),
]


def test_every_text_is_written_so_that_it_can_be_seen(open_gallery: Open) -> None:
    page = open_gallery("strip")
    set_state(page, "strip", tokens=[{"text": text, "kind": "new", "id": 7} for text, _ in SHOWN], locked=None)
    texts = page.locator("#strip bdi").evaluate_all("nodes => nodes.map(node => node.textContent)")
    assert texts == [shown for _, shown in SHOWN]
    widths = page.locator("#strip [data-index]").evaluate_all(
        "nodes => nodes.map(n => n.getBoundingClientRect().width)"
    )
    assert min(widths) > 8
    assert page.evaluate("window.X") is None
    assert "id 7" in (page.locator('#strip [data-index="4"]').get_attribute("title") or "")


def test_a_very_long_token_breaks(open_gallery: Open) -> None:
    page = open_gallery("strip", width=800)
    set_state(page, "strip", tokens=[{"text": "x" * 3000, "kind": "new"}])
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_long_text_is_folded_and_opens(open_gallery: Open) -> None:
    page = open_gallery("strip")
    page.evaluate(
        """() => {
          const kind = (i) => (i < 8000 ? "prompt" : "new");
          const tokens = Array.from({ length: 8192 }, (_, i) => ({ text: ` w${i}`, kind: kind(i) }));
          views.strip.model.set("state", { ...views.strip.model.get("state"), tokens, locked: null, selected: null });
        }"""
    )
    assert page.locator("#strip [data-index]").count() <= 600
    expect(page.locator("#strip [data-index]").last).to_have_text("·w8191")
    fold = page.get_by_role("button", name="earlier tokens")
    expect(fold).to_have_text("… 7,600 earlier tokens")
    fold.click()
    assert page.locator("#strip [data-index]").count() == 8192
    assert sent(page, "strip", "expand") == [{"type": "expand", "expanded": True}]
    expect(fold).to_have_attribute("aria-expanded", "true")
    # what Python then sends in one piece, beginning later, is numbered by position
    set_state(page, "strip", tokens=[{"text": " end", "kind": "new"}], start=8191)
    expect(page.locator("#strip [data-index]")).to_have_attribute("data-index", "8191")


def test_weights_shade_the_chips(open_gallery: Open) -> None:
    page = open_gallery("weighted")
    bars = page.locator("#weighted [data-index]").evaluate_all(
        "nodes => nodes.slice(0, 4).map(node => getComputedStyle(node).boxShadow)"
    )
    assert bars[0] != bars[3]
    set_state(page, "weighted", weights=None)
    expect(page.locator("#weighted .lab-weighted")).to_have_count(0)


def test_each_status_has_its_symbol(open_gallery: Open) -> None:
    page = open_gallery("judged")
    marks = page.locator("#judged [data-index]").evaluate_all(
        "nodes => nodes.map(node => [node.dataset.kind, node.querySelector('i')?.textContent])"
    )
    assert dict(marks) == {
        "accepted": "✓",
        "rejected": "✕",
        "resampled": "↻",
        "bonus": "+",
        "plain": "○",
        "unjudged": "?",
    }
    assert "rejected" in (page.locator('#judged [data-kind="rejected"]').get_attribute("aria-label") or "")


def test_layers_are_chosen_and_have_a_table(open_gallery: Open) -> None:
    page = open_gallery("layers")
    bars = page.locator("#layers .lab-layer-bar")
    assert bars.count() == 30
    bars.nth(3).click()
    assert sent(page, "layers", "layer") == [{"type": "layer", "index": 3}]
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert sent(page, "layers", "layer")[-1]["index"] == 4
    page.keyboard.press("Enter")
    assert sent(page, "layers", "layer")[-1]["index"] is None
    assert page.get_by_role("table", name="Bytes of each layer").get_by_role("row").count() == 31
    expect(bars.first).to_have_attribute("title", "layer 0: 96.0 KiB, 64 positions, full attention")


def test_a_sliding_layer_is_lower_and_hatched(open_gallery: Open) -> None:
    page = open_gallery("layers_mixed")
    fills = page.locator("#layers_mixed .lab-layer-fill")
    heights = fills.evaluate_all("nodes => nodes.map(node => node.getBoundingClientRect().height)")
    assert heights[0] < heights[5]
    assert "repeating-linear-gradient" in fills.first.evaluate("node => getComputedStyle(node).backgroundImage")
    expect(page.get_by_text("sliding window", exact=True).first).to_be_visible()


def test_a_table_draws_its_rows_when_open_and_keeps_its_place(open_gallery: Open) -> None:
    page = open_gallery("table")
    assert page.locator("#table tbody tr").count() == 0
    page.locator("#table summary").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#table tbody tr")).to_have_count(64)
    scroll = page.get_by_role("region", name="Bytes in the cache at each length")
    scroll.evaluate("node => { node.scrollTop = 300; window.row = node.querySelector('tbody tr') }")
    rows = page.evaluate("views.table.model.get('state').rows")
    set_state(page, "table", rows=[*rows, [65, "decode", 2_995_200, 0, "<b>x</b>"]])
    assert scroll.evaluate("node => [node.scrollTop, window.row.isConnected]") == [300, True]
    expect(page.locator("#table tbody tr").last).to_contain_text("<b>x</b>")
    expect(page.locator("#table tbody tr").last).to_contain_text("2,995,200")
