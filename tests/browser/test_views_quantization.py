"""Histograms below each other, the slider over choices, the bar of parameters: drawn, clicked, by keyboard, saved."""

from __future__ import annotations

import pytest
from gallery import Open, sent, set_state, wait_sent
from gallery_quantization import SIZES
from playwright.sync_api import expect

pytestmark = pytest.mark.browser


def test_one_table_of_figures_and_histograms_on_one_axis(open_gallery: Open) -> None:
    page = open_gallery("histograms")
    table = page.get_by_role("table", name="Errors at each group size")
    expect(table.locator("tbody")).to_have_count(len(SIZES))
    expect(table.get_by_role("columnheader")).to_have_text(
        ["group size", "largest error", "s / 2", "mean square", "SNR", "bits a weight"]
    )
    ends = page.locator("#histograms .lab-hist-bound").evaluate_all("nodes => nodes.map(n => n.getAttribute('x1'))")
    assert len(ends) == 2 * len(SIZES)
    heights = page.locator("#histograms .lab-hist-bars").evaluate_all("nodes => nodes.map(n => n.getBBox().height)")
    assert heights[0] < heights[1] <= heights[2]  # the same number of errors, closer together


def test_a_row_and_an_outlier_can_be_clicked(open_gallery: Open) -> None:
    page = open_gallery("histograms")
    page.get_by_role("button", name="groups of 16").click()
    assert sent(page, "histograms", "row")[-1]["id"].endswith("groups of 16")
    dots = page.locator("#histograms tbody").nth(1).locator(".lab-hist-dot")
    assert dots.count() > 1
    dots.nth(0).focus()
    page.keyboard.press("ArrowRight")
    expect(dots.nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    (message,) = wait_sent(page, "histograms", "dot")
    assert message["index"] == 1
    set_state(page, "histograms", locked=[message["id"], 1])
    expect(dots.nth(1)).to_have_attribute("aria-pressed", "true")
    expect(dots.nth(1)).to_be_focused()
    assert "became" in (dots.nth(1).get_attribute("aria-label") or "")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_is_wider_than_a_narrow_page(open_gallery: Open, theme: str) -> None:
    page = open_gallery("histograms,coverage,steps", theme=theme, width=800)
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    before = page.locator("#histograms svg").first.bounding_box()
    page.set_viewport_size({"width": 1280, "height": 900})
    page.wait_for_function("w => document.querySelector('#histograms svg').getBoundingClientRect().width > w", arg=before["width"] if before else 0)  # fmt: skip  # noqa: E501


def test_a_bin_that_would_dwarf_the_others_is_cut_and_its_share_is_written(open_gallery: Open) -> None:
    page = open_gallery("histograms")
    rows = page.evaluate("() => views.histograms.model.get('state').rows")
    row = {**rows[0], "counts": [0] * 5 + [900, 50, 50] + [0] * 5, "dots": []}
    set_state(page, "histograms", rows=[row], cap=56)
    expect(page.locator("#histograms .lab-hist-words")).to_have_text(["90 %"])
    expect(page.locator("#histograms .lab-hist-cut")).to_have_count(1)


def test_logarithms_show_what_counts_hide(open_gallery: Open) -> None:
    page = open_gallery("histograms")
    rows = page.evaluate("() => views.histograms.model.get('state').rows")
    row = {**rows[0], "counts": [1, 0, 0, 10_000, 0, 0], "dots": []}
    bars = page.locator("#histograms .lab-hist-bars")
    paths = []
    for log in (False, True):
        set_state(page, "histograms", rows=[row], cap=10_000, log=log)
        paths.append(bars.get_attribute("d") or "")
    tops = [[float(part.split("H")[0]) for part in path.split("V")[1::2]] for path in paths]
    assert tops[0][1] == tops[1][1]  # the largest bin is as tall
    assert tops[1][0] < tops[0][0] - 5  # a single weight is seen


def test_text_is_never_html(open_gallery: Open) -> None:
    page = open_gallery("histograms,coverage")
    evil = "<img src=x onerror=window.X=1>"
    rows = page.evaluate("() => views.histograms.model.get('state').rows")
    set_state(page, "histograms", rows=[{**rows[0], "label": evil, "note": evil, "dots": [[0.01, evil]]}], axis=evil)
    set_state(page, "coverage", parts=[[evil, 1.0, True, evil]], label=evil)
    expect(page.locator("#histograms button").first).to_have_text(evil)
    assert page.evaluate("window.X === undefined && document.querySelector('img') === null")


def test_the_picture_is_exported_whole(open_gallery: Open) -> None:
    page = open_gallery("histograms")
    svg = page.evaluate(
        """async () => {
          const el = document.querySelector("#histograms.lab-has-picture, #histograms .lab-has-picture");
          return (await el.labPicture("svg", "#fff")).text();
        }"""
    )
    assert svg.count("<path") >= len(SIZES)
    assert "bits" in svg
    assert "groups" in svg


def test_a_slider_over_choices(open_gallery: Open) -> None:
    page = open_gallery("steps")
    slider = page.get_by_role("slider", name="Group size")
    expect(slider).to_have_attribute("aria-valuetext", "64")
    slider.focus()
    page.keyboard.press("ArrowRight")
    message = wait_sent(page, "steps", "values")[-1]
    assert message["changed"] == {"size": "16"}
    expect(slider).to_have_attribute("aria-valuetext", "16")
    set_state(page, "steps", values={"size": "row"})
    expect(page.locator("#steps .lab-value")).to_have_text("row")


def test_packed_and_simulated_are_different_badges(open_gallery: Open) -> None:
    page = open_gallery("coverage")
    badge = page.locator("#coverage .lab-coverage-badge")
    expect(badge).to_have_text("PACKED")
    widths = page.locator("#coverage .lab-coverage-bar > span").evaluate_all(
        "nodes => nodes.map(n => n.getBoundingClientRect().width)"
    )
    assert widths[0] > 3 * widths[1] > widths[2]
    set_state(page, "coverage", truth="simulated")
    expect(badge).to_have_text("SIMULATED")
    assert "no memory is saved" in (badge.get_attribute("title") or "")


def test_what_a_picture_offers_is_a_button_and_goes_when_there_is_nothing(open_gallery: Open) -> None:
    page = open_gallery("offers", width=800)
    group = page.get_by_role("group", name="Run the method on screen")
    expect(group.get_by_role("button")).to_have_text(["Run GPTQ at groups of 32, 4 bits", "Run on <b>x</b>"])
    group.get_by_role("button", name="Run GPTQ").focus()
    page.keyboard.press("Enter")
    (message,) = wait_sent(page, "offers", "action")
    assert message["id"] == "run"
    set_state(page, "offers", actions=[])
    expect(group).to_be_hidden()


@pytest.mark.parametrize("width", [1280, 800])
def test_a_command_in_a_note_is_code_in_one_line(open_gallery: Open, width: int) -> None:
    page = open_gallery("note_box", width=width)
    code = page.locator("#note_box code")
    expect(code).to_have_text(["lab models HuggingFaceTB/SmolLM2-135M-Instruct --fetch", "lab up --model DIRECTORY"])
    expect(page.locator("#note_box")).not_to_contain_text("`")
    lines = "nodes => nodes.map(n => { const r = document.createRange(); r.selectNodeContents(n); return new Set([...r.getClientRects()].map(b => b.top)).size; })"  # noqa: E501
    assert code.evaluate_all(lines) == [1, 1]
    set_state(page, "note_box", rich=False)  # a model's words may hold backticks, and keep them
    expect(page.locator("#note_box")).to_contain_text("`lab up")
