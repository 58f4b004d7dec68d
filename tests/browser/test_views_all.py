"""Every view on a static page: drawn from JSON, named, contrasted, silent on the network."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from contrast import CONTRAST
from gallery import Open, set_state, views
from playwright.sync_api import expect

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 800])
def test_all_views_draw_without_error_or_foreign_request(open_gallery: Open, theme: str, width: int) -> None:
    page = open_gallery(theme=theme, width=width)
    for name in views():
        if name != "heartbeat":
            assert page.evaluate("id => document.getElementById(id).getBoundingClientRect().height > 8", name), name
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page is wider than the window"
    hosts = {urlsplit(url).hostname for url in page.requests if not url.startswith("data:")}  # type: ignore[attr-defined]
    assert hosts == {"127.0.0.1"}


@pytest.mark.parametrize("ticks", [(0.01, 0.02, 0.05, 0.1, 0.2, 0.5), (0.001, 0.01, 0.1), (0.01, 0.02, 0.05)])
def test_ticks_below_bars_have_room_at_any_width(open_gallery: Open, ticks: tuple[float, ...]) -> None:
    page = open_gallery("ranked", width=800)
    words = [[tick, f"{tick:.1%}"] for tick in ticks]
    set_state(page, "ranked", low=ticks[0], most=ticks[-1] * 1.12, ticks=words, line=None)
    apart = """([width, all]) => {
      const root = document.querySelector("#ranked");
      Object.assign(root.style, { width, maxWidth: "none" });
      const seen = [...root.querySelectorAll(".lab-bars-ticks span:not([hidden])")];
      const boxes = seen.map(n => n.getBoundingClientRect());
      const room = boxes.every((box, i) => i === 0 || box.left >= boxes[i - 1].right + 4);
      return room && boxes.length > 0 && (!all || boxes.length === all);
    }"""
    for width, all_of_them in (("340px", 0), ("1000px", len(ticks)), ("340px", 0)):
        page.wait_for_function(apart, arg=[width, all_of_them])


def test_every_control_has_a_name(open_gallery: Open) -> None:
    page = open_gallery()
    for details in page.locator("details").all():
        details.evaluate("node => { node.open = true }")
    page.get_by_role("button", name="Export").click()
    snapshot = page.locator("body").aria_snapshot()
    controls = r"- (button|textbox|slider|combobox|radio|checkbox|menuitem|img|progressbar|table|group|region|dialog)"
    unnamed = [line.strip() for line in snapshot.splitlines() if re.match(rf"{controls}(:| \[|$)", line.strip())]
    # disclosures are groups that the browser names by their summary
    assert [line for line in unnamed if not line.startswith("- group")] == []
    for name in ("Prompt", "New tokens", "New tokens, exact value", "Top-p", "Seed"):
        assert f'"{name}"' in snapshot


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_a_contrast_of_at_least_four_and_a_half(open_gallery: Open, theme: str) -> None:
    page = open_gallery(theme=theme)
    assert page.evaluate(CONTRAST) == []
    page.evaluate("document.querySelector('.lab-figure-note').style.color = '#7b7b7b'")
    assert page.evaluate(CONTRAST) != [], "the check must see a poor one"


def test_a_state_is_drawn_again_without_a_kernel_after_a_view_ended(open_gallery: Open) -> None:
    page = open_gallery()
    left = page.evaluate(
        """() => Object.entries(views)
          .map(([id, v]) => { v.cleanup(); return [id, v.model.listening()]; })
          .filter((e) => e[1] > 0)"""
    )
    assert left == []


HOSTILE = "<img src=x onerror=window.X=1>"


def test_hostile_text_is_text_in_every_view(open_gallery: Open) -> None:
    page = open_gallery()
    page.evaluate(
        """(bad) => {
          const fixed = [
            "kind", "phase", "verdict", "id", "badge", "mode", "model", "groups", "schema", "values", "css_class",
          ];
          const spoil = (value, key) => {
            if (fixed.includes(key)) return value;
            if (typeof value === "string") return bad;
            if (Array.isArray(value)) return value.map((item) => spoil(item, key));
            if (!value || typeof value !== "object") return value;
            return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, spoil(v, k)]));
          };
          for (const { model } of Object.values(views)) model.set("state", spoil(model.get("state"), ""));
          for (const node of document.querySelectorAll("details")) node.open = true;
        }""",
        HOSTILE,
    )
    expect(page.locator("#strip bdi").first).to_have_text(HOSTILE)
    expect(page.locator("#lesson h2").first).to_have_text(HOSTILE)
    expect(page.locator("#error .lab-error-message")).to_have_text(HOSTILE)
    assert page.locator("img, [onerror]").count() == 0
    assert page.evaluate("window.X") is None


def test_reduced_motion_stops_animations(open_gallery: Open) -> None:
    page = open_gallery("runner", reduced_motion="reduce")
    set_state(page, "runner", phase="loading", fraction=None)
    assert page.locator(".lab-bar-fill").evaluate("node => getComputedStyle(node).animationName") == "none"
