"""Link and export: what leaves the page."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from bokeh.embed import json_item
from bokeh.plotting import figure
from bokeh.resources import Resources
from gallery import Open, sent, set_state, wait_sent
from playwright.sync_api import expect

pytestmark = pytest.mark.browser


def test_the_copied_link_restores_every_value_and_hands_on_no_token(open_gallery: Open) -> None:
    page = open_gallery("link&token=secret", permissions=["clipboard-read", "clipboard-write"])
    query = {"prompt": "a=b&c #日本語 🙂\n", "n": 48, "text": "12", "flag": True, "layers": [0, 9], "null": "null"}
    set_state(page, "link", query=query)
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    link = page.evaluate("navigator.clipboard.readText()")
    assert "secret" not in link
    assert parse_qs(urlsplit(link).fragment)["n"] == ["48"]
    page.goto(link.replace("?", "?again=1&"))
    page.wait_for_selector("body[data-ready]")
    values = wait_sent(page, "link", "link")[0]["values"]
    assert {name: values[name] for name in query} == query


def test_a_changed_address_is_told_and_the_address_can_follow(open_gallery: Open) -> None:
    page = open_gallery("link", fragment="#max_new_tokens=8")
    assert sent(page, "link", "link")[0]["values"]["max_new_tokens"] == 8
    page.evaluate("location.hash = '#max_new_tokens=9&__proto__=1'")
    assert wait_sent(page, "link", "link", 2)[1]["values"] == {"only": "link", "max_new_tokens": 9}
    set_state(page, "link", follow=True, query={"seed": 3})
    page.wait_for_function("location.hash === '#seed=3'")
    assert len(sent(page, "link", "link")) == 2, "following the state is no news"


def test_a_link_can_be_copied_by_hand_where_the_clipboard_is_closed(open_gallery: Open) -> None:
    page = open_gallery("link")
    page.evaluate(
        "navigator.clipboard.writeText = () => Promise.reject(new Error('no')); document.execCommand = () => false;"
    )
    page.get_by_role("button", name="Copy link").click()
    field = page.get_by_role("textbox", name="Link to this page with its settings")
    expect(field).to_be_visible()
    assert "prompt=The+cache" in field.input_value()


def test_the_menu_works_by_keyboard_and_saves_what_python_sends(open_gallery: Open, tmp_path: Path) -> None:
    page = open_gallery("export")
    button = page.get_by_role("button", name="Export")
    button.focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("menuitem", name="Pictures as PNG")).to_be_focused()
    expect(button).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("Escape")
    expect(page.get_by_role("menu")).to_be_hidden()
    expect(button).to_be_focused()
    button.click()
    expect(page.get_by_role("menuitem", name="Pictures as PNG")).to_be_focused()
    button.click()
    expect(page.get_by_role("menu")).to_be_hidden()
    page.keyboard.press("ArrowUp")
    expect(page.get_by_role("menuitem", name="The run, replays")).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert sent(page, "export", "export") == [{"type": "export", "id": "csv"}]
    with page.expect_download() as download:
        page.evaluate(
            """() => {
              const bytes = new DataView(new Uint8Array([0, 255, 128, 10]).buffer);
              const file = { type: "file", name: "run.safetensors", mime: "application/octet-stream" };
              views.export.model.receive(file, [bytes]);
            }"""
        )
    assert download.value.suggested_filename == "run.safetensors"
    download.value.save_as(tmp_path / "run")
    assert (tmp_path / "run").read_bytes() == bytes([0, 255, 128, 10])


def test_a_file_that_cannot_be_made_yet_says_why(open_gallery: Open) -> None:
    page = open_gallery("export")
    page.get_by_role("button", name="Export").click()
    item = page.get_by_role("menuitem", name="The run, replays")
    expect(item).to_contain_text("The run has not ended.")
    item.click(force=True)
    assert sent(page, "export", "export") == []


@pytest.mark.parametrize(("kind", "magic"), [("png", b"\x89PNG"), ("svg", b"<svg")])
def test_bokeh_plots_are_saved_by_the_page(open_gallery: Open, tmp_path: Path, kind: str, magic: bytes) -> None:
    page = open_gallery("export")
    page.add_script_tag(content="\n".join(Resources(mode="inline", components=["bokeh"]).js_raw))
    plot = figure(width=300, height=200, name="ledger", background_fill_alpha=0, border_fill_alpha=0)
    plot.line([1, 2, 3], [1, 4, 9])
    page.evaluate(
        """(item) => {
          const el = document.createElement("div");
          el.id = "plot";
          document.querySelector("article").append(el);
          return Bokeh.embed.embed_item(item, "plot").then(() => {});
        }""",
        json_item(plot, None),
    )
    set_state(page, "export", items=[{"id": kind, "label": "Pictures"}])
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name="Pictures").click()
    assert download.value.suggested_filename == f"ledger.{kind}"
    download.value.save_as(tmp_path / "plot")
    data = (tmp_path / "plot").read_bytes()
    assert data.startswith(magic)
    assert len(data) > 1500


def test_no_picture_is_said(open_gallery: Open) -> None:
    page = open_gallery("export")
    page.get_by_role("button", name="Export").click()
    page.get_by_role("menuitem", name="Pictures as PNG").click()
    expect(page.locator("#export").get_by_role("status")).to_have_text("There is no picture to save yet.")


def test_the_menu_stays_beside_its_button_while_the_page_scrolls(open_gallery: Open) -> None:
    page = open_gallery("export")
    page.evaluate("document.querySelector('main').style.marginTop = '1500px'")
    button = page.get_by_role("button", name="Export")
    button.click()  # scrolls there first; the event comes after the click
    page.evaluate("scrollBy(0, -40)")
    near = """() => {
      const [a, b] = ["#export button", "[role=menu]"].map((q) => document.querySelector(q).getBoundingClientRect());
      return Math.min(Math.abs(b.top - a.bottom), Math.abs(a.top - b.bottom)) < 8 && Math.abs(a.right - b.right) < 8;
    }"""
    page.wait_for_function(near, timeout=5000)
    expect(page.get_by_role("menu")).to_be_visible()
