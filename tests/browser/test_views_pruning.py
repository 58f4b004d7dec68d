"""Masks on a canvas: drawn from bits, zoomed by keys, buttons and wheel, told under the pointer; and all tasks."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from gallery import Open, sent, set_state, wait_sent
from gallery_pruning import SHAPE, mask_bits
from playwright.sync_api import Browser, Page, expect
from pruning_answers import EXAMPLE
from pruning_sim import masks_run
from pruning_sim_runs import curve_run, recover_run, savings_run, words_run
from stills import still

pytestmark = pytest.mark.browser

PIXELS = """([view, panel]) => {
  const c = document.querySelectorAll(`#${view} canvas`)[panel];
  const data = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
  let text = "";
  for (let i = 0; i < data.length; i += 8192) text += String.fromCharCode(...data.subarray(i, i + 8192));
  return {width: c.width, height: c.height, css: c.getBoundingClientRect().width, data: btoa(text)};
}"""


def pixels(page: Page, view: str, panel: int = 0) -> tuple[np.ndarray[Any, Any], float]:
    """The pixels of a canvas, (row, column, rgba), and device pixels for one of CSS."""
    found = page.evaluate(PIXELS, [view, panel])
    data = np.frombuffer(base64.b64decode(found["data"]), np.uint8).astype(int)
    return data.reshape(found["height"], found["width"], 4), found["width"] / found["css"]


def settle(page: Page, view: str, act: Callable[[], None]) -> None:
    """Do something and wait until it was painted."""
    count = page.evaluate("v => Number(document.querySelector(`#${v}`).dataset.painted)", view)
    act()
    page.wait_for_function("([v, n]) => Number(document.querySelector(`#${v}`).dataset.painted) > n", arg=[view, count])


def press(page: Page, view: str, *keys: str) -> None:
    page.locator(f"#{view} .lab-mask").focus()
    for key in keys:
        settle(page, view, lambda key=key: page.keyboard.press(key))  # type: ignore[misc]


def painted(page: Page, view: str) -> None:
    page.wait_for_function("v => document.querySelector(`#${v}`).dataset.painted", arg=view)


def test_every_weight_has_its_own_pixels_when_there_is_room(open_gallery: Open) -> None:
    page = open_gallery("masks_beside")
    painted(page, "masks_beside")
    kept = mask_bits("magnitude").unpacked()
    data, _ = pixels(page, "masks_beside")
    scale = 1
    while data[0, scale * SHAPE[1] + 2, 3] == 255:  # the gap before the strip is clear
        scale += 1
    seen = data[scale // 2 : scale * SHAPE[0] : scale, scale // 2 : scale * SHAPE[1] : scale, :3]
    blue = seen[..., 2] - seen[..., 0] > 60
    assert blue.shape == SHAPE
    assert (blue == kept.astype(bool)).mean() > 0.98  # frames of groups cover a few


def test_a_large_matrix_is_one_picture_and_zooms_to_single_weights(open_gallery: Open) -> None:
    page = open_gallery("mask")
    painted(page, "mask")
    where = page.locator("#mask .lab-mask-where")
    expect(where).to_contain_text("rows 0–1535, columns 0–575")
    before, _ = pixels(page, "mask")
    assert len(np.unique(before[:100, :100, 0])) > 5  # densities
    press(page, "mask", "+", "+", "+", "+", "+", "+", "+")
    expect(where).to_contain_text("12 px a weight")
    page.wait_for_function("views.mask.model.sent.some((m) => m.type === 'window' && m.scale === 12)")
    message = wait_sent(page, "mask", "window")[-1]
    assert (message["scale"], message["whole"]) == (12, False)
    kept = mask_bits("magnitude", (1536, 576)).unpacked()
    data, _ = pixels(page, "mask")
    part = kept[message["row"] : message["row"] + 10, message["column"] : message["column"] + 10]
    corners = data[3 : 3 + 12 * 10 : 12, 6 : 6 + 12 * 10 : 12, :3]  # beside the crosses
    assert ((corners[..., 2] - corners[..., 0] > 60) == part.astype(bool)).all()
    press(page, "mask", "0")
    expect(where).to_contain_text("rows 0–1535")


def test_the_canvas_has_the_device_s_pixels(open_gallery: Open) -> None:
    page = open_gallery("mask", device_scale_factor=2)
    painted(page, "mask")
    data, ratio = pixels(page, "mask")
    assert abs(ratio - 2) < 0.01
    assert data.shape[0] > 700


def test_the_pointer_names_row_column_and_what_became_of_it(open_gallery: Open) -> None:
    page = open_gallery("masks_beside")
    painted(page, "masks_beside")
    canvas = page.locator("#masks_beside canvas").first
    canvas.hover(position={"x": 3, "y": 3})
    readout = page.locator("#masks_beside .lab-mask-readout")
    first, second = (mask_bits(m).unpacked() for m in ("magnitude", "wanda"))
    expect(readout).to_contain_text("Row ")
    text = readout.inner_text()
    row, column = (int(part.split()[-1]) for part in text.split(":")[0].split(","))
    assert f"{'kept' if first[row, column] else 'pruned'} by Magnitude" in text
    assert f"{'kept' if second[row, column] else 'pruned'} by Wanda" in text
    page.mouse.move(2, 2)
    expect(readout).to_contain_text("Point at a weight")


def test_arrow_keys_go_from_weight_to_weight_and_no_further_than_the_edge(open_gallery: Open) -> None:
    page = open_gallery("masks_beside")
    painted(page, "masks_beside")
    readout = page.locator("#masks_beside .lab-mask-readout")
    press(page, "masks_beside", *["Shift+ArrowUp"] * 6, *["Shift+ArrowLeft"] * 4, "ArrowRight", "ArrowDown")
    expect(readout).to_contain_text("Row 1, column 1:")
    press(page, "masks_beside", *["Shift+ArrowDown"] * 7)
    expect(readout).to_contain_text(f"Row {SHAPE[0] - 1}, column 1:")


def test_a_click_then_the_wheel_zooms_and_a_drag_pans(open_gallery: Open) -> None:
    page = open_gallery("mask")
    painted(page, "mask")
    canvas = page.locator("#mask canvas")
    box = canvas.bounding_box()
    assert box
    where = page.locator("#mask .lab-mask-where")
    page.mouse.move(box["x"] + 60, box["y"] + 60)
    page.mouse.click(box["x"] + 60, box["y"] + 60)
    for _ in range(4):
        settle(page, "mask", lambda: page.mouse.wheel(0, -100))
    expect(where).to_contain_text("4 px a weight")
    was = where.inner_text()
    page.mouse.down()
    settle(page, "mask", lambda: page.mouse.move(box["x"] + 20, box["y"] + 30))
    page.mouse.up()
    assert where.inner_text() != was
    settle(page, "mask", lambda: page.get_by_role("button", name="Whole matrix").click())
    expect(page.get_by_role("button", name="Zoom out")).to_be_disabled()


def test_values_colour_the_part_that_was_answered(open_gallery: Open) -> None:
    page = open_gallery("mask")
    painted(page, "mask")
    press(page, "mask", *["+"] * 7)
    at = wait_sent(page, "mask", "window")[-1]
    place = {key: at[key] for key in ("row", "column", "rows", "columns")}
    page.evaluate(
        "([p]) => { const m = views.mask.model; const n = p.rows * p.columns;"
        " m.set('state', {...m.get('state'), colour: 'value',"
        " values: {...p, scale: 0.5, bytes: btoa(String.fromCharCode(129).repeat(n))}}); }",
        [place],
    )
    settle(page, "mask", lambda: page.keyboard.press("ArrowRight"))
    data, _ = pixels(page, "mask")
    orange = (data[..., 0] - data[..., 2] > 100).sum()
    assert orange > 1000  # below 0
    expect(page.locator("#mask .lab-mask-readout")).to_contain_text("w ≈ −0.50")


def test_bits_that_do_not_fit_and_hostile_text_do_no_harm(open_gallery: Open) -> None:
    page = open_gallery("masks_beside")
    evil = "<img src=x onerror=window.X=1>"
    panels = page.evaluate("() => views.masks_beside.model.get('state').panels")
    set_state(page, "masks_beside", panels=[{**panels[0], "title": evil, "words": evil}], names={"first": evil})
    expect(page.locator("#masks_beside figcaption").first).to_have_text(evil)
    assert page.evaluate("window.X === undefined && document.querySelector('img') === null")
    set_state(page, "masks_beside", rows=7, empty="Nothing fits.")
    expect(page.locator("#masks_beside .lab-mask-empty")).to_have_text("Nothing fits.")
    expect(page.locator("#masks_beside .lab-mask")).to_be_hidden()


def test_masks_have_names_and_can_be_saved(open_gallery: Open) -> None:
    page = open_gallery("masks_beside")
    painted(page, "masks_beside")
    expect(page.get_by_role("img", name="Where Magnitude, 50 % and Wanda, 50 % differ")).to_be_visible()
    expect(page.get_by_role("group", name="Two masks")).to_be_visible()
    sizes = page.evaluate(
        """async () => {
          const el = document.querySelector("#masks_beside");
          const svg = await (await el.labPicture("svg", "#fff")).text();
          return [svg.split("<image").length - 1, (await el.labPicture("png", "#fff")).size];
        }"""
    )
    assert sizes[0] == 3
    assert sizes[1] > 2000
    assert sent(page, "masks_beside", "values") == []


def test_a_small_matrix_marks_what_is_kept(open_gallery: Open) -> None:
    page = open_gallery("small_matrix,pruned_coverage")
    cells = page.locator("#small_matrix td")
    assert cells.evaluate_all("nodes => nodes.map(n => n.dataset.kept)") == ["true", "false", "true", "false", "true", "false"]  # fmt: skip  # noqa: E501
    expect(page.locator("#pruned_coverage .lab-coverage-key")).to_contain_text("pruned")
    assert "zeros stand" in (page.locator("#pruned_coverage .lab-coverage-badge").get_attribute("title") or "")


RUNS: dict[str, Callable[[], Iterator[Any]]] = {
    "masks": lambda: masks_run(layers=(0, 14)),
    "masks_wide": lambda: masks_run(projection="down_proj"),
    "curve": lambda: curve_run(methods=("magnitude", "wanda", "sparsegpt", "random", "global_magnitude", "rows")),
    "words": lambda: words_run(method="global_magnitude"),
    "savings": savings_run,
    "recover": recover_run,
}


@pytest.mark.parametrize("task", RUNS)
def test_every_task_fits_a_narrow_and_a_wide_page_in_both_themes(browser: Browser, task: str) -> None:
    with still("pruning", RUNS[task](), {"worked_example": EXAMPLE}) as url:
        page = browser.new_page(viewport={"width": 800, "height": 900})
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
        page.goto(url)
        page.wait_for_selector("body[data-ready]")
        expect(page.locator(".lab-plot[data-ready]")).to_have_count(page.locator(".lab-plot").count())
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        page.set_viewport_size({"width": 1280, "height": 900})
        page.evaluate("document.body.dataset.jpThemeLight = 'false'")
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        page.close()
        assert problems == []
