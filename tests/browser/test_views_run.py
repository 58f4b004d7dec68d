"""Runner, player, proof, errors, run card, lesson, heartbeat."""

from __future__ import annotations

import json

import pytest
from gallery import Open, sent, set_state, wait_sent
from playwright.sync_api import expect

pytestmark = pytest.mark.browser


def test_run_and_stop(open_gallery: Open) -> None:
    page = open_gallery("runner")
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Run").click()
    assert [m["type"] for m in page.evaluate("views.runner.model.sent")] == ["stop", "run"]
    bar = page.get_by_role("progressbar", name="Progress of the run")
    expect(bar).to_have_attribute("aria-valuenow", "72")
    expect(bar).to_have_attribute("aria-valuetext", "token 37 of 52 · 24.8 tokens/s")
    set_state(page, "runner", phase="done", note="", can_run=False)
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()
    expect(page.get_by_role("button", name="Run")).to_be_disabled()
    expect(bar).to_have_attribute("aria-valuenow", "100")


def test_progress_is_announced_now_and_then_only(open_gallery: Open) -> None:
    page = open_gallery("runner")
    page.evaluate(
        """() => {
          window.said = 0;
          const spoken = document.querySelector("#runner [aria-live]");
          const all = { childList: true, characterData: true, subtree: true };
          new MutationObserver(() => { window.said += 1; }).observe(spoken, all);
          for (let i = 0; i < 200; i += 1) {
            const state = { phase: "running", fraction: i / 200, note: `token ${i} of 200`, can_run: true };
            views.runner.model.set("state", state);
          }
        }"""
    )
    expect(page.locator("#runner .lab-run-note")).to_have_text("token 199 of 200")
    assert page.evaluate("window.said") <= 1
    set_state(page, "runner", phase="done", note="done")
    expect(page.locator("#runner [aria-live]")).to_have_text("done")


def test_the_player_never_goes_beyond_what_has_arrived(open_gallery: Open) -> None:
    page = open_gallery("player")
    scrub = page.get_by_role("slider", name="Step")
    scrub.focus()
    page.keyboard.press("End")
    assert sent(page, "player", "step")[-1] == {"type": "step", "step": 36, "following": True}
    page.keyboard.press("ArrowRight")
    assert sent(page, "player", "step")[-1]["step"] == 36
    scrub.evaluate("node => { node.value = 51; node.dispatchEvent(new Event('input', { bubbles: true })) }")
    expect(scrub).to_have_value("36")
    page.keyboard.press("Home")
    expect(page.get_by_text("token 1 of 52")).to_be_visible()
    page.get_by_role("button", name="One step forward").click()
    expect(page.get_by_text("token 2 of 52")).to_be_visible()
    back = page.get_by_role("button", name="One step back")
    back.click()
    expect(back).to_have_attribute("aria-disabled", "true")
    back.click(force=True)
    assert sent(page, "player", "step")[-1]["step"] == 0


def test_playback_waits_for_data_and_ends_by_itself(open_gallery: Open) -> None:
    page = open_gallery("player")
    set_state(page, "player", step=0, available=3, total=5, rate=60)
    page.get_by_role("slider", name="Step").focus()
    page.keyboard.press("Space")
    expect(page.get_by_text("token 3 of 5 · waiting for the run")).to_be_visible()
    assert [m["step"] for m in sent(page, "player", "step")] == [1, 2]
    assert sent(page, "player", "play") == [{"type": "play", "playing": True}]
    set_state(page, "player", available=5)
    assert wait_sent(page, "player", "play", 2)[-1]["playing"] is False
    assert [m["step"] for m in sent(page, "player", "step")] == [1, 2, 3, 4]
    page.get_by_role("button", name="Play").click()
    assert sent(page, "player", "step")[4]["step"] == 0, "at the end Play begins again"


def test_the_player_follows_a_live_run(open_gallery: Open) -> None:
    page = open_gallery("player")
    set_state(page, "player", following=True, available=40, step=39)
    expect(page.get_by_text("token 40 of 52")).to_be_visible()
    set_state(page, "player", available=41, step=40)
    expect(page.get_by_text("token 41 of 52")).to_be_visible()


def test_a_proof_has_words_a_symbol_and_figures(open_gallery: Open) -> None:
    page = open_gallery()
    expect(page.locator("#proof").get_by_role("img", name="proven equal")).to_have_text("✓")
    expect(page.locator("#proof_different").get_by_role("img", name="different")).to_have_text("✕")
    expect(page.locator("#proof code")).to_have_text("generate()")
    page.locator("#proof summary").click()
    expect(page.locator("#proof").get_by_role("row")).to_contain_text("0.0131")
    page.get_by_role("button", name="Stop the check").click()
    assert sent(page, "proof_pending", "cancel") == [{"type": "cancel"}]
    set_state(page, "proof_pending", verdict="unproven", text="Stopped, unproven.", can_cancel=False)
    expect(page.get_by_role("button", name="Stop the check")).to_be_hidden()


def test_an_error_can_be_dismissed_and_the_next_one_shows(open_gallery: Open) -> None:
    page = open_gallery("error")
    expect(page.get_by_role("alert")).to_contain_text("at most 8,192.")
    page.get_by_role("button", name="Dismiss").click()
    expect(page.get_by_role("alert")).to_be_hidden()
    set_state(page, "error", open=True, message="Another one.", remedy="", code="busy")
    expect(page.get_by_role("alert")).to_contain_text("Another one.")


def test_the_run_card_opens_closes_by_escape_and_copies(open_gallery: Open) -> None:
    page = open_gallery("card", permissions=["clipboard-read", "clipboard-write"])
    button = page.get_by_role("button", name="Run card")
    button.click()
    dialog = page.get_by_role("dialog", name="Run card")
    expect(dialog).to_contain_text("smollm2-135m-instruct")
    dialog.get_by_role("button", name="Copy as JSON").click()
    expect(dialog.get_by_role("status")).to_have_text("copied")
    card = json.loads(page.evaluate("navigator.clipboard.readText()"))
    assert card["params"]["max_new_tokens"] == 48
    dialog.get_by_role("button", name="Copy as Python").click()
    expect(dialog.get_by_role("status")).to_have_text("copied")
    code = page.evaluate("navigator.clipboard.readText()")
    assert "RunRequest(" in code
    assert code.count("smollm2-135m-instruct") == 1
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(button).to_be_focused()


def test_a_lesson_asks_and_answers_and_folds(open_gallery: Open) -> None:
    page = open_gallery("lesson")
    expect(page.get_by_text("the dashed line in the picture")).to_be_hidden()
    page.get_by_role("button", name="9 ×").click()
    assert sent(page, "lesson", "answer") == [{"type": "answer", "section": 3, "choice": 2}]
    expect(page.get_by_role("button", name="✕ 9 ×")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("button", name="✓ 3 ×")).to_be_visible()
    expect(page.get_by_text("the dashed line in the picture")).to_be_visible()
    page.get_by_role("button", name="Fold the lesson").click()
    expect(page.get_by_text("This is not")).to_be_hidden()
    assert sent(page, "lesson", "fold") == [{"type": "fold", "folded": True}]
    page.get_by_role("button", name="Show the lesson").click()
    expect(page.get_by_text("This is not")).to_be_visible()


def test_the_figures_say_where_they_come_from(open_gallery: Open) -> None:
    page = open_gallery("figures")
    figures = page.locator(".lab-figure")
    expect(figures.nth(0)).to_contain_text("MEASURED")
    expect(figures.nth(1).locator(".lab-badge")).to_have_attribute("data-badge", "DERIVED")
    expect(figures.nth(3).locator(".lab-figure-value")).to_have_text("–")
    set_state(page, "figures", figures=[{"id": "a", "value": "3.00", "unit": "MiB", "badge": "MEASURED"}])
    expect(figures).to_have_count(1)


def test_a_page_whose_kernel_ended_says_so_and_is_inert_until_it_answers_again(open_gallery: Open) -> None:
    page = open_gallery()
    wait_sent(page, "heartbeat", "ping", 2)
    expect(page.locator("#heartbeat").get_by_role("alert")).to_be_hidden()
    page.evaluate("window.alive = false; document.querySelector('.lab-page').style.contain = 'layout'")
    page.evaluate("document.body.style.height = '4000px'; scrollTo(0, 600)")
    alert = page.locator("#heartbeat").get_by_role("alert")
    expect(alert).to_contain_text("The notebook’s kernel ended. Reload the page to go on.")
    box = alert.bounding_box()
    assert box is not None
    assert 0 <= box["y"] < 40, "it is seen wherever the page stands"
    expect(page.locator(".lab-page")).to_have_class("lab-page lab-dead")
    for view in ("controls", "runner", "player", "export"):
        assert page.locator(f"#{view}").evaluate("node => node.inert"), view
    assert not page.locator("#heartbeat").evaluate("node => node.inert")
    page.evaluate("window.alive = true")
    expect(alert).to_be_hidden()
    expect(page.locator(".lab-page")).to_have_class("lab-page")
    assert not page.locator("#controls").evaluate("node => node.inert")


def test_a_kernel_still_busy_with_the_page_s_own_cells_is_not_called_dead(open_gallery: Open) -> None:
    page = open_gallery("heartbeat")
    page.evaluate(
        """() => {
          const v = views.heartbeat; v.cleanup();
          window.alive = false;
          const el = document.getElementById("heartbeat");
          v.model.set("state", { ...v.model.get("state"), pace: { ping: 40, dead: 120, first: 60000 } });
          v.model.sent.length = 0;
          return import("/module/heartbeat.js").then((m) => { v.cleanup = m.default.render({ model: v.model, el }); });
        }"""
    )
    wait_sent(page, "heartbeat", "ping", 10)  # more than three times the deadline
    expect(page.locator("#heartbeat").get_by_role("alert")).to_be_hidden()
