"""The `lora` page in a browser: three rows of words, a box of lines, the worked example, every task in both themes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from gallery import Open, set_state, wait_sent
from lora_answers import ANSWERS
from lora_runs import compare_run, merge_run, swap_run, train_run
from playwright.sync_api import Browser, expect
from stills import still

pytestmark = pytest.mark.browser

EVIL = "<img src=x onerror=window.X=1>"


def test_three_rows_stand_one_above_the_other_and_mark_what_differs(open_gallery: Open) -> None:
    page = open_gallery("word_rows")
    pair = page.locator("#word_rows .lab-pair").nth(3)
    tops = pair.locator(".lab-pair-word").evaluate_all("nodes => nodes.map(n => n.getBoundingClientRect().top)")
    assert len(tops) == 3
    assert tops == sorted(set(tops))
    assert pair.get_attribute("data-same") == "false"
    assert pair.get_attribute("data-third") == "false"
    expect(pair.locator(".lab-pair-third i")).to_have_text("≠")
    expect(page.locator("#word_rows .lab-pair").first.locator(".lab-pair-third i")).to_have_text("")
    assert page.evaluate("window.X === undefined && document.querySelector('img') === null")
    pair.click()
    assert wait_sent(page, "word_rows", "lock")[-1]["index"] == 3


def test_two_rows_have_no_third(open_gallery: Open) -> None:
    page = open_gallery("word_rows")
    pairs = page.evaluate("() => views.word_rows.model.get('state').pairs.map(p => p.slice(0, 5))")
    set_state(page, "word_rows", rows=2, pairs=pairs)
    expect(page.locator("#word_rows .lab-pair-third")).to_have_count(0)
    expect(page.locator("#word_rows .lab-pair-lower").first).to_be_visible()


def test_lines_are_typed_and_pasted_into_a_box_that_counts_them(open_gallery: Open) -> None:
    page = open_gallery("lora_form")
    box = page.get_by_label("Lines")
    count = page.locator("#lora_form [data-field=lines] output")
    expect(count).to_have_text("2 lines")
    assert "\n" in box.input_value()
    assert box.evaluate("node => getComputedStyle(node).whiteSpace") == "pre"
    assert box.get_attribute("placeholder") == "prompt => answer"
    pasted = "a => b\n" * 40
    box.fill(pasted)
    expect(count).to_have_text("40 lines")
    sent = wait_sent(page, "lora_form", "values")[-1]
    assert sent["changed"]["lines"] == pasted
    box.fill("x" * 60_001)
    expect(page.locator("#lora_form [data-field=lines] .lab-error")).to_contain_text("at most 60,000")


def test_a_short_text_has_one_line(open_gallery: Open) -> None:
    page = open_gallery("lora_form")
    values = page.evaluate("() => views.lora_form.model.get('state').values")
    set_state(page, "lora_form", values={**values, "task": "compare"})
    box = page.get_by_label("Adapter", exact=True)
    assert box.evaluate("node => node.tagName") == "INPUT"
    expect(page.get_by_label("Lines")).to_be_hidden()
    box.fill("my-adapter")
    box.press("Tab")
    assert wait_sent(page, "lora_form", "values")[-1]["changed"] == {"adapter": "my-adapter"}


def test_an_adapter_that_is_here_is_chosen_from_a_list(open_gallery: Open) -> None:
    page = open_gallery("lora_form")
    values = page.evaluate("() => views.lora_form.model.get('state').values")
    set_state(page, "lora_form", values={**values, "task": "compare", "adapter": "somewhere/else"})
    box = page.get_by_label("Adapter", exact=True)
    choice = page.get_by_label("Adapter, or one that is here")
    expect(choice.locator("option:checked")).to_have_text("choose one that is here")
    choice.select_option(label="island-8")
    expect(box).to_have_value("island-8")
    assert wait_sent(page, "lora_form", "values")[-1]["changed"] == {"adapter": "island-8"}
    box.fill("my-folder")
    expect(choice).to_have_value("-1")
    assert choice.locator("option").all_inner_texts()[-1] == EVIL
    assert page.evaluate("window.X === undefined && document.querySelector('img') === null")
    expect(page.get_by_label("Second adapter, or one that is here")).to_have_count(0)


def test_a_way_to_another_page_is_a_link_and_tells_nobody(open_gallery: Open) -> None:
    page = open_gallery("way_on")
    link = page.get_by_role("link", name="Quantize")
    assert link.evaluate("node => new URL(node.href).pathname.split('/').pop()") == "quantization.ipynb"
    hash_ = link.evaluate("node => Object.fromEntries(new URLSearchParams(new URL(node.href).hash.slice(1)))")
    assert hash_ == {"model": "/home/me/.cache/inference-lab/trained/a b#1", "projection": "q_proj"}
    assert link.get_attribute("target") == "_blank"
    assert page.evaluate("window.X === undefined && document.querySelector('img') === null")
    page.get_by_role("button", name="Write the merged model").click()
    assert [m["id"] for m in wait_sent(page, "way_on", "action")] == ["write"]
    set_state(page, "way_on", actions=[{"id": "quantize", "label": "A button again", "title": "", "href": ""}])
    page.get_by_role("button", name="A button again").click()
    assert wait_sent(page, "way_on", "action", count=2)[-1]["id"] == "quantize"


def test_a_name_is_typed_and_the_adapter_kept(open_gallery: Open) -> None:
    page = open_gallery("keep_form,keep_actions")
    box = page.get_by_label("Keep it as", exact=True)
    assert box.get_attribute("placeholder") == "a name, e.g. island-8"
    box.fill("my-island")
    box.press("Tab")
    assert wait_sent(page, "keep_form", "values")[-1]["changed"] == {"name": "my-island"}
    set_state(page, "keep_form", values={"name": "my-island"}, errors={"name": EVIL})
    expect(page.locator("#keep_form .lab-error")).to_have_text(EVIL)
    expect(box).to_have_attribute("aria-invalid", "true")
    page.get_by_role("button", name="Keep", exact=True).click()
    assert wait_sent(page, "keep_actions", "action")[-1]["id"] == "keep"


def test_the_worked_example_is_drawn_and_can_be_saved(open_gallery: Open) -> None:
    page = open_gallery("equations")
    expect(page.locator("#equations .lab-marked .lab-equation-matrix")).to_have_text(["57", "57"])
    expect(page.get_by_role("group", name="Beside the weights")).to_be_visible()
    svg = page.evaluate("async () => (await document.querySelector('#equations').labPicture('svg', '#fff')).text()")
    assert svg.count("0.5") >= 2
    set_state(page, "equations", lines=[[EVIL, [{"sign": EVIL, "rows": [[EVIL]], "name": EVIL, "mark": False}]]])
    expect(page.locator("#equations .lab-equation-title")).to_have_text(EVIL)
    assert page.evaluate("window.X === undefined && document.querySelector('img') === null")


RUNS: dict[str, Callable[[], Iterator[Any]]] = {
    "compare": compare_run,
    "train": train_run,
    "swap": swap_run,
    "merge": merge_run,
    "merge_int8": lambda: merge_run(base="int8"),
}


_BEYOND_THE_CARD = """() => {
  const edge = document.querySelector(".lab-picture").getBoundingClientRect().right - 10;
  const range = document.createRange();
  return [...document.querySelectorAll(".lab-picture *")]
    .filter((node) => node.children.length === 0 && node.textContent.trim() && !node.closest("details"))
    .filter((node) => { range.selectNodeContents(node); return range.getBoundingClientRect().right > edge; })
    .map((node) => node.textContent.slice(0, 40));
}"""
"""Texts that stick out of the card to the right."""


@pytest.mark.parametrize("task", RUNS)
def test_every_task_fits_a_narrow_and_a_wide_page_in_both_themes(browser: Browser, task: str) -> None:
    with still("lora", RUNS[task](), ANSWERS) as url:
        page = browser.new_page(viewport={"width": 800, "height": 900})
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
        page.goto(url)
        page.wait_for_selector("body[data-ready]")
        expect(page.locator(".lab-plot[data-ready]")).to_have_count(page.locator(".lab-plot").count())
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        assert page.evaluate(_BEYOND_THE_CARD) == []
        page.set_viewport_size({"width": 1280, "height": 900})
        page.evaluate("document.body.dataset.jpThemeLight = 'false'")
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        page.close()
        assert problems == []
