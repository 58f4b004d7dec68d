"""The form: what it sends, what it refuses in words, what it keeps while Python writes."""

from __future__ import annotations

import pytest
from gallery import Open, sent, set_state, wait_sent
from playwright.sync_api import expect

pytestmark = pytest.mark.browser


def test_a_slider_moves_by_keyboard_and_sends_its_field(open_gallery: Open) -> None:
    page = open_gallery("controls")
    slider = page.get_by_role("slider", name="New tokens", exact=True)
    slider.focus()
    page.keyboard.press("ArrowRight")
    message = wait_sent(page, "controls", "values")[-1]
    assert message["changed"] == {"max_new_tokens": 49}
    assert message["values"]["max_new_tokens"] == 49
    assert message["values"]["prompt"].startswith("The cache")
    assert message["invalid"] == []
    expect(page.get_by_role("textbox", name="New tokens, exact value")).to_have_value("49")


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("600", "600 is above the limit of 512 tokens."),
        ("0", "0 is below the limit of 1 tokens."),
        ("abc", "“abc” is not a whole number."),
        ("1.5", "“1.5” is not a whole number."),
        ("", "It is empty; write a number."),
        ("1e999", "“1e999” is not a whole number."),
    ],
)
def test_a_bad_number_is_refused_in_words_and_not_sent(open_gallery: Open, typed: str, words: str) -> None:
    page = open_gallery("controls")
    page.get_by_role("textbox", name="New tokens, exact value").fill(typed)
    field = page.locator('[data-field="max_new_tokens"]')
    expect(field.locator(".lab-error")).to_have_text(words)
    message = wait_sent(page, "controls", "values")[-1]
    assert message["changed"] == {}
    assert message["invalid"] == ["max_new_tokens"]
    assert message["values"]["max_new_tokens"] == 48
    slider = page.get_by_role("slider", name="New tokens", exact=True)
    expect(slider).to_have_attribute("aria-invalid", "true")
    described = slider.get_attribute("aria-describedby")
    assert page.locator(f"#{described}").text_content() == words
    page.get_by_role("textbox", name="New tokens, exact value").fill("50")
    assert wait_sent(page, "controls", "values", 2)[-1]["changed"] == {"max_new_tokens": 50}
    expect(field.locator(".lab-error")).to_be_hidden()


def test_typing_is_sent_once_it_pauses_and_keeps_focus_and_caret(open_gallery: Open) -> None:
    page = open_gallery("controls")
    box = page.get_by_role("textbox", name="Prompt")
    box.fill("")
    box.press_sequentially("日本語 🙂 fine")
    message = wait_sent(page, "controls", "values")[-1]
    page.wait_for_function("views.controls.model.sent.at(-1).values.prompt === '日本語 🙂 fine'")
    assert len(sent(page, "controls", "values")) < len("日本語 🙂 fine")
    box.press("ArrowLeft")
    caret = box.evaluate("node => node.selectionStart")
    # An older echo from Python, then a newer state of other fields, must not take the typed text away.
    set_state(page, "controls", values={**message["values"]})
    set_state(page, "controls", errors={"seed": "The seed was refused."})
    expect(box).to_be_focused()
    expect(box).to_have_value("日本語 🙂 fine")
    assert box.evaluate("node => node.selectionStart") == caret
    expect(page.locator('[data-field="seed"] .lab-error')).to_have_text("The seed was refused.")


def test_python_s_own_change_is_shown(open_gallery: Open) -> None:
    page = open_gallery("controls")
    values = page.evaluate("views.controls.model.get('state').values")
    set_state(page, "controls", values={**values, "prompt": "from a link", "max_new_tokens": 7, "do_sample": False})
    expect(page.get_by_role("textbox", name="Prompt")).to_have_value("from a link")
    expect(page.get_by_role("slider", name="New tokens", exact=True)).to_have_value("7")
    expect(page.get_by_role("radio", name="greedy")).to_be_checked()


def test_the_sampling_fields_follow_their_condition(open_gallery: Open) -> None:
    page = open_gallery("controls")
    expect(page.get_by_role("slider", name="Temperature", exact=True)).to_be_visible()
    page.get_by_role("radio", name="greedy").check(force=True)
    expect(page.get_by_role("slider", name="Temperature", exact=True)).to_be_hidden()
    assert wait_sent(page, "controls", "values")[-1]["changed"] == {"do_sample": False}
    page.get_by_role("radio", name="greedy").press("ArrowRight")
    expect(page.get_by_role("slider", name="Temperature", exact=True)).to_be_visible()


def test_presets_and_models_are_told_by_index_and_id(open_gallery: Open) -> None:
    page = open_gallery("controls")
    page.get_by_role("button", name="What does a chat remember?").click()
    assert sent(page, "controls", "preset") == [{"type": "preset", "index": 1}]
    page.get_by_role("combobox", name="Model").select_option("b")
    assert sent(page, "controls", "model") == [{"type": "model", "id": "b"}]


def test_a_field_that_the_model_cannot_use_says_why(open_gallery: Open) -> None:
    page = open_gallery("controls")
    box = page.get_by_role("checkbox", name="Ask as a chat")
    expect(box).to_be_disabled()
    note = page.locator(f"#{box.get_attribute('aria-describedby')}")
    expect(note).to_have_text("This model has no chat template.")


def test_layers_are_chosen_by_mouse_and_keyboard_up_to_their_limit(open_gallery: Open) -> None:
    page = open_gallery("controls_rest")
    page.get_by_text("Compare").click()
    group = page.get_by_role("group", name="Attention of layers")
    group.get_by_role("button", name="layer 4", exact=True).click()
    assert wait_sent(page, "controls_rest", "values")[-1]["changed"] == {"trace_layers": [0, 4, 9]}
    page.keyboard.press("ArrowRight")
    expect(group.get_by_role("button", name="layer 5", exact=True)).to_be_focused()
    page.keyboard.press("Space")
    expect(group.get_by_role("button", name="layer 5", exact=True)).to_have_attribute("aria-pressed", "true")
    for layer in (11, 12, 13, 14, 15):
        group.get_by_role("button", name=f"layer {layer}", exact=True).click()
    expect(page.locator('[data-field="trace_layers"] .lab-error')).to_have_text("9 chosen; at most 8.")
    assert group.locator('[tabindex="0"]').count() == 1


def test_the_known_mistakes_are_a_list_and_a_locked_form_is_locked(open_gallery: Open) -> None:
    page = open_gallery("controls_rest")
    page.get_by_role("radio", name="shift the positions by one").check()
    assert wait_sent(page, "controls_rest", "values")[-1]["changed"] == {"break_run": "shift_positions"}
    set_state(page, "controls_rest", disabled=True)
    expect(page.get_by_role("radio", name="nothing")).to_be_disabled()
    expect(page.get_by_role("radio", name="shift the positions by one")).to_be_checked()


def test_an_unknown_number_of_layers_is_typed(open_gallery: Open) -> None:
    page = open_gallery("controls_rest")
    schema = page.evaluate("views.controls_rest.model.get('state').schema")
    del schema["properties"]["trace_layers"]["items"]["maximum"]
    set_state(page, "controls_rest", schema=schema)
    page.get_by_text("Compare").click()
    box = page.get_by_role("textbox", name="Attention of layers")
    expect(box).to_have_value("0, 9")
    box.fill("3, x")
    expect(page.locator('[data-field="trace_layers"] .lab-error')).to_have_text(
        "“x” is no layer; write numbers: 0, 9, 19."
    )
    box.fill("19 3")
    page.wait_for_function(
        "JSON.stringify(views.controls_rest.model.sent.at(-1)?.changed) === '{\"trace_layers\":[3,19]}'"
    )
