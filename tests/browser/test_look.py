"""How shared parts stand: badges on one line, names of lines beside their tables, plots out of the tab order.

Nothing is cut or broken where there is little room, and nothing moves away from a pointer.
"""

from __future__ import annotations

import pytest
from gallery import Open, set_state
from playwright.sync_api import Page, expect
from test_plot_canvas import BOKEHS, OURS, item

from lab.experiments.lora.choices import TARGETS
from widgets.plot import bokehjs_source

pytestmark = pytest.mark.browser

TAB_STOPS = """() => {
  const stops = (root) => [...root.querySelectorAll("*")].reduce(
    (sum, node) => sum + (node.getAttribute("tabindex") === "0") + (node.shadowRoot ? stops(node.shadowRoot) : 0), 0);
  return stops(document.getElementById("here"));
}"""


def tops(page: Page, where: str) -> list[float]:
    found: list[float] = page.locator(where).evaluate_all("nodes => nodes.map(n => n.getBoundingClientRect().top)")
    return found


def test_badges_of_a_row_stand_on_one_line_whatever_their_units_take(open_gallery: Open) -> None:
    page = open_gallery("figures", width=800)
    names = ("a long unit that takes three lines in a column of this width, and more", "MiB")
    figures = [
        {"id": name, "value": "1", "unit": name, "badge": "MEASURED", "note": "short" if i else "a note of some length"}
        for i, name in enumerate(names)
    ]
    set_state(page, "figures", figures=figures, columns=3)
    heights = page.locator("#figures .lab-figure-unit").evaluate_all("nodes => nodes.map(n => n.offsetHeight)")
    assert heights[0] > heights[1]
    assert len(set(tops(page, "#figures .lab-badge"))) == 1
    assert len(set(tops(page, "#figures .lab-figure-note"))) == 1


def figure(value: str, unit: str = "nats, KL", badge: str = "MEASURED") -> dict[str, str]:
    return {"id": unit, "value": value, "unit": unit, "badge": badge, "note": "at worst"}


def test_a_figure_without_a_value_has_no_badge_and_moves_nothing_when_it_comes(open_gallery: Open) -> None:
    page = open_gallery("figures")
    set_state(page, "figures", figures=[figure("", badge="")], columns=3)
    expect(page.locator("#figures .lab-badge")).not_to_be_visible()
    before = tops(page, "#figures .lab-figure-note")
    set_state(page, "figures", figures=[figure("0.62")], columns=3)
    expect(page.locator("#figures .lab-badge")).to_be_visible()
    assert tops(page, "#figures .lab-figure-note") == before


@pytest.mark.parametrize(
    ("value", "unit", "number", "rest"),
    [
        ("0.131 %", "of the update lost", "0.131\u00a0%", "of the update lost"),
        ("50.0", "% pruned", "50.0\u00a0%", "pruned"),
        ("3.66 × 10⁻⁵", "nats, KL", "3.66\u00a0× 10⁻⁵", "nats, KL"),
        ("0.62", "nats, KL", "0.62\u00a0nats", "KL"),
        ("311", "MiB of weights", "311\u00a0MiB", "of weights"),
        ("6", "flips of 17", "6", "flips of 17"),
        ("", "MiB saved", "–", "MiB saved"),
    ],
)
def test_a_unit_of_measure_stays_with_its_value(
    open_gallery: Open, value: str, unit: str, number: str, rest: str
) -> None:
    page = open_gallery("figures")
    set_state(page, "figures", figures=[figure(value, unit)], columns=3)
    expect(page.locator("#figures .lab-figure-unit")).to_have_text(rest)
    assert page.locator("#figures .lab-figure-value").text_content() == number


@pytest.mark.parametrize("width", [460, 560, 700])
def test_figures_are_whole_in_narrow_columns(open_gallery: Open, width: int) -> None:
    page = open_gallery("figures")
    page.evaluate("width => { document.getElementById('figures').style.width = `${width}px`; }", width)
    units = ("of the update lost", "nats, KL(base ‖ adapted)", "of every row that goes")
    values = ("0.131 %", "3.66 × 10⁻⁵", "134,515,008")
    set_state(page, "figures", figures=[figure(v, u) for v, u in zip(values, units, strict=True)], columns=3)
    expect(page.locator("#figures .lab-figure-unit").first).to_have_text("of the update lost")
    cut = "nodes => nodes.filter(n => n.scrollWidth > n.clientWidth + 1).length"
    assert page.locator("#figures .lab-figure, #figures .lab-figure-head").evaluate_all(cut) == 0
    lines = page.locator("#figures .lab-figure-unit").evaluate_all("nodes => nodes.map(n => n.offsetHeight / 15.6)")
    assert max(lines) < 2.5  # never a word a line


@pytest.mark.parametrize("width", [180, 220, 300])
def test_choices_side_by_side_go_to_another_line_before_a_label_breaks(open_gallery: Open, width: int) -> None:
    page = open_gallery("lora_form")
    page.evaluate("width => { document.getElementById('lora_form').style.width = `${width}px`; }", width)
    options = page.locator("#lora_form [data-field=targets] .lab-option span")
    expect(options).to_have_text(list(TARGETS.values()))
    assert max(options.evaluate_all("nodes => nodes.map(n => n.offsetHeight)")) < 36
    inside = (
        "(node) => node.getBoundingClientRect().right <= node.closest('.lab-field').getBoundingClientRect().right + 1"
    )
    assert all(options.nth(i).evaluate(inside) for i in range(len(TARGETS)))


def test_questions_stand_still_while_fields_below_them_grow_and_go(open_gallery: Open) -> None:
    page = open_gallery("controls")
    chips = page.locator("#controls .lab-presets button")
    before = tops(page, "#controls .lab-presets button")
    assert len(before) > 2
    expect(chips.first).to_be_visible()
    box = page.get_by_label("Prompt", exact=True)
    tall = box.bounding_box()
    box.fill("a line\n" * 9)
    grown = box.bounding_box()
    assert tall is not None
    assert grown is not None
    assert grown["height"] > tall["height"]  # what stood below it has moved
    assert tops(page, "#controls .lab-presets button") == before


def test_rows_of_words_have_a_line_of_their_own_where_they_are_narrow(open_gallery: Open) -> None:
    page = open_gallery("ranked")
    page.evaluate(
        """() => {
          const el = document.getElementById("ranked");
          el.classList.add("lab-said");
          el.style.width = "460px";
        }"""
    )
    words = "Once there was a town by the sea whose harbour was always full of ships from everywhere."
    rows = [{"label": "velmora, reversed", "bars": [], "cells": ["3.65 µs", "1.76 MiB"], "note": words, "dots": []}]
    set_state(page, "ranked", rows=rows, columns=[["switched in", 0], ["adapter", 0]], line=None)
    table, note = page.locator("#ranked table"), page.locator("#ranked .lab-bars-note")
    expect(note).to_have_text(words)
    whole, own = table.bounding_box(), page.locator("#ranked .lab-bars-cell").bounding_box()
    assert whole is not None
    assert own is not None
    assert own["width"] > 0.95 * whole["width"]
    assert note.evaluate("node => node.offsetHeight") < 60  # at most three lines, no ladder
    assert page.locator("#ranked .lab-bars-figure").first.evaluate("n => getComputedStyle(n, '::before').content") == (
        '"switched in "'
    )


@pytest.mark.parametrize("share", [0.0, 0.04, 0.5, 1.0])
def test_the_name_of_a_line_stays_above_the_bars(open_gallery: Open, share: float) -> None:
    page = open_gallery("ranked")
    set_state(page, "ranked", most=1.0, line=[share, "the plain model"])
    head, words = (page.locator(f"#ranked .lab-bars-line-name{part}").bounding_box() for part in ("", " span"))
    assert head is not None
    assert words is not None
    assert head["x"] - 1 <= words["x"]
    assert words["x"] + words["width"] <= head["x"] + head["width"] + 1
    line = page.locator("#ranked .lab-len-line").first.bounding_box()
    assert line is not None
    assert words["x"] - 1 <= line["x"] <= words["x"] + words["width"] + 2


@pytest.mark.parametrize(("way", "expected"), [(OURS, 0), (BOKEHS, 1)])
def test_a_plot_is_no_stop_of_the_tab_key(open_gallery: Open, way: str, expected: int) -> None:
    """Bokeh's own way is the mutation: its layer is a stop without a name."""
    page = open_gallery("offers")
    page.evaluate("() => { const el = document.createElement('div'); el.id = 'here'; document.body.prepend(el); }")
    page.add_script_tag(content=bokehjs_source())
    page.evaluate(way, item())
    page.wait_for_selector("#here [data-ready], #here[data-ready]")
    assert page.evaluate(TAB_STOPS) == expected
