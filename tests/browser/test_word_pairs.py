"""Two rows of tokens on one axis in a real browser: text is text, hover links, click locks, arrows move."""

from __future__ import annotations

import pytest
from gallery import Open, sent, set_state, wait_sent
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

BAD = "<img src=x onerror=window.X=1>"


def test_the_same_place_of_both_rows_has_the_same_left_edge(open_gallery: Open) -> None:
    page = open_gallery("word_pairs")
    edges = page.locator("#word_pairs .lab-pair").evaluate_all(
        "nodes => nodes.map(n => [...n.querySelectorAll('.lab-pair-word')].map(w => w.getBoundingClientRect().left))"
    )
    assert len(edges) == 14
    assert all(upper == lower for upper, lower in edges)
    assert len({round(upper) for upper, _ in edges}) > 3


def test_text_of_a_token_is_text_and_a_difference_has_a_mark(open_gallery: Open) -> None:
    page = open_gallery("word_pairs")
    expect(page.locator("#word_pairs bdi", has_text=BAD)).to_have_count(1)
    assert page.locator("#word_pairs img").count() == 0
    assert page.evaluate("window.X") is None
    marks = page.locator("#word_pairs .lab-pair[data-same=false] .lab-pair-lower i")
    assert set(marks.all_text_contents()) == {"≠"}
    assert marks.count() == page.locator("#word_pairs .lab-pair[data-same=false]").count() > 0


def test_hover_click_and_arrows(open_gallery: Open) -> None:
    page = open_gallery("word_pairs")
    pairs = page.locator("#word_pairs .lab-pair")
    pairs.nth(4).hover()
    assert wait_sent(page, "word_pairs", "hover")[-1]["index"] == 4
    pairs.nth(4).click()
    assert wait_sent(page, "word_pairs", "lock")[-1]["index"] == 4
    expect(pairs.nth(4)).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("ArrowRight")
    expect(pairs.nth(5)).to_be_focused()
    page.keyboard.press("Enter")
    wait_sent(page, "word_pairs", "lock", 2)
    expect(pairs.nth(4)).to_have_attribute("aria-pressed", "false")
    pairs.nth(5).click()
    assert wait_sent(page, "word_pairs", "lock", 3)[-1]["index"] is None
    assert "another token" in (pairs.nth(5).get_attribute("aria-label") or "")


def test_a_row_that_is_not_written_yet_keeps_its_place(open_gallery: Open) -> None:
    page = open_gallery("word_pairs")
    set_state(page, "word_pairs", pairs=[[["a", "0.5"], None, None, None, "first"]], start=0)
    pair = page.locator("#word_pairs .lab-pair")
    expect(pair).to_have_count(1)
    expect(pair.locator(".lab-pair-lower")).to_have_attribute("data-missing", "true")
    set_state(page, "word_pairs", pairs=[])
    expect(page.locator("#word_pairs .lab-pairs-empty")).to_be_visible()
    assert sent(page, "word_pairs", "lock") == []
