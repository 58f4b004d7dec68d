"""A plot's canvas is cleared whole: Bokeh's own way leaves half of its first column and row of pixels as they were."""

from __future__ import annotations

from typing import Any

import pytest
from gallery import Open
from playwright.sync_api import Page

from widgets.plot import Plot, bokehjs_source, new_figure, source

pytestmark = pytest.mark.browser

OURS = """async (item) => {
    const { mount } = await import("/stand_in.js");
    const state = { label: "a line", data: {}, props: {} };
    const [plot, here] = [await import("/module/plot.js"), document.getElementById("here")];
    const view = await mount(plot, here, state, { traits: { item } });
    globalThis.redraw = (columns) => view.model.set("state", { ...state, data: { line: columns } });
}"""
BOKEHS = """async (item) => {
    const found = await Bokeh.embed.embed_item(item, document.getElementById("here"));
    const doc = [...found][0].model.document;
    globalThis.redraw = (columns) => { doc.get_model_by_name("line").data = columns; };
    document.getElementById("here").dataset.ready = "true";
}"""
LAYERS = """() => {
    const found = [];
    const look = (node) => {
        if (node.localName === "canvas") found.push(node);
        for (const child of [...(node.shadowRoot?.children ?? []), ...node.children]) look(child);
    };
    look(document.getElementById("here"));
    // the first is what data are drawn on; the one above it holds what is drawn under a pointer, at need
    return found.filter((canvas) => canvas.width > 1).slice(0, 1);
}"""
STAIN = f"""() => {{
    for (const canvas of ({LAYERS})()) {{
        const ctx = canvas.getContext("2d");
        ctx.save();
        ctx.resetTransform();
        ctx.fillStyle = "#f00";
        ctx.fillRect(0, 0, 1, canvas.height);
        ctx.fillRect(0, 0, canvas.width, 1);
        ctx.restore();
    }}
}}"""
LEFT = f"""() => ({LAYERS})().map((canvas) => {{
    const ctx = canvas.getContext("2d");
    const sides = [ctx.getImageData(0, 0, 1, canvas.height), ctx.getImageData(0, 0, canvas.width, 1)];
    return sides.reduce((sum, {{ data }}) => {{
        for (let i = 0; i < data.length; i += 4) sum += data[i] > 8 && data[i + 1] < 8 && data[i + 3] > 8;
        return sum;
    }}, 0);
}})"""


def item() -> dict[str, Any]:
    fig = new_figure(x_label="step", y_label="ms", height=150)
    fig.line("x", "y", source=source("line", "x", "y"))
    found: dict[str, Any] = Plot(fig, "a line").item
    return found


def stains_after_a_redraw(open_gallery: Open, way: str, width: int, ratio: float) -> tuple[int, int]:
    """Stained pixels before and after the next redraw."""
    page: Page = open_gallery("offers", width=width, device_scale_factor=ratio)
    page.evaluate("() => { const el = document.createElement('div'); el.id = 'here'; document.body.prepend(el); }")
    page.add_script_tag(content=bokehjs_source())
    page.evaluate(way, item())
    page.wait_for_function(
        f"() => document.querySelector('#here [data-ready], #here[data-ready]') && ({LAYERS})().length"
    )
    page.evaluate(STAIN)
    before = sum(page.evaluate(LEFT))
    page.evaluate("() => redraw({ x: [0, 1], y: [1, 0] })")
    drawn = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))"
    for _ in range(3):
        page.evaluate(drawn)
    return before, sum(page.evaluate(LEFT))


@pytest.mark.parametrize("width", [1280, 800])
@pytest.mark.parametrize("ratio", [1, 1.25, 2])
def test_nothing_stays_at_the_edge_of_a_plot(open_gallery: Open, width: int, ratio: float) -> None:
    before, after = stains_after_a_redraw(open_gallery, OURS, width, ratio)
    assert before > width
    assert after == 0


def test_without_the_mend_it_stays(open_gallery: Open) -> None:
    """The mutation; once it fails, Bokeh clears its canvas whole and `clearWhole` can go."""
    _, after = stains_after_a_redraw(open_gallery, BOKEHS, 1280, 2)
    assert after > 100
