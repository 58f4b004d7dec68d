"""How shared parts stand: badges on one line, names of lines beside their tables, plots out of the tab order."""

from __future__ import annotations

import pytest
from gallery import Open, set_state
from playwright.sync_api import Page
from test_plot_canvas import BOKEHS, OURS, item

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
