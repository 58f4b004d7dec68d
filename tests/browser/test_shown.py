"""What is hidden before a page exists and shown later, in real widgets of a real kernel behind Voila; no model."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from free_port import free_port
from playwright.sync_api import Browser, Page, expect

from lab.cli.page import PageServer, page_environment, voila_command

pytestmark = pytest.mark.browser

CODE = """
import threading
import ipywidgets as ipw
from ipywidgets import Widget
from widgets.action_row import Action, ActionRow
from widgets.choice import Choice
from widgets.experiment import Desk
from widgets.heartbeat import Heartbeat
from widgets.resend import resend
from widgets.shown import show_if
from widgets.text import Words

desk = Desk(ask=lambda *_, **__: None, touch=lambda: None, lock=threading.RLock())
choice = Choice(desk, "Matrix")          # hidden until there is more than one
note = Words(("p", "Nothing there yet."), css_class="lab-caption")   # shown until then
box = ipw.VBox([Words(("p", "A whole box"), css_class="lab-caption")])
by_class = Words(("p", "By class"), css_class="lab-caption")
by_class.add_class("lab-gone")
show_if(False, box)
row = ActionRow(label="What the run told")
row.show([Action("1", "one matrix"), Action("2", "two matrices")])

def told(count):
    many = count == "2"
    choice.show(["query", "key"][: int(count)])
    show_if(many, box)
    show_if(not many, note)
    (by_class.remove_class if many else by_class.add_class)("lab-gone")
    row.state = {**row.state, "label": f"told {count}"}

row.on_action(told)

# What changes between the states that a browser asks for and its models, here at the worst moment: they are collected.
early, form, lost = (Words(("p", f"{name}: before"), css_class="lab-caption") for name in ("early", "form", "lost"))
late = Words(("p", "late: there"), css_class="lab-caption")
show_if(False, form)
inner = ipw.VBox([])
take = Widget._handle_control_comm_msg

def asked(message):
    comm = Widget._control_comm
    send = comm.send

    def answer(*given, **named):
        for words in (early, lost):
            words.say(("p", words.state["lines"][0][1].replace("before", "after")))
        show_if(True, form)
        inner.children = [late]
        send(*given, **named)

    comm.send = answer
    take(message)

Widget._handle_control_comm_msg = asked
whole = ipw.VBox([row, note, choice.widget, box, by_class, early, form, inner])
heart = Heartbeat()
heart.on_shown(lambda: resend(whole))
print("ready")
ipw.VBox([heart, whole, lost])
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a page made by the code above, served as `lab up` serves its pages."""
    folder = tmp_path_factory.mktemp("shown")
    cell = {"cell_type": "code", "id": "one", "metadata": {}, "execution_count": None, "outputs": [], "source": CODE}
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    notebook = {"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (folder / "shown.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    port = free_port()
    environment = page_environment(f"http://127.0.0.1:{free_port()}", "t" * 32, None)
    root = str(Path(__file__).resolve().parents[2])
    environment["PYTHONPATH"] = ":".join(filter(None, (root, environment.get("PYTHONPATH", ""))))
    server = PageServer(voila_command("127.0.0.1", port, folder), environment, "127.0.0.1", port)
    try:
        server.wait_ready(60, threading.Event())
        yield f"http://127.0.0.1:{port}/voila/render/shown.ipynb"
    finally:
        server.stop()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    page = browser.new_page()
    page.goto(address, wait_until="commit")
    expect(page.get_by_text("By class")).to_be_attached(timeout=40_000)
    yield page
    page.context.close()


def press(page: Page, count: str, words: str) -> None:
    page.get_by_role("button", name=words).click()
    expect(page.get_by_role("group", name=f"told {count}")).to_be_visible(timeout=10_000)


def test_what_was_hidden_before_the_page_shows_and_hides_again(page: Page) -> None:
    form, box = page.get_by_role("radio", name="key"), page.get_by_text("A whole box")
    note = page.get_by_text("Nothing there yet.")
    expect(note).to_be_visible(timeout=10_000)
    expect(form).to_have_count(0)
    expect(box).to_be_hidden()
    for _ in range(2):
        press(page, "2", "two matrices")
        expect(form).to_be_visible()
        expect(box).to_be_visible()
        expect(note).to_be_hidden()
        press(page, "1", "one matrix")
        expect(form).to_be_hidden()
        expect(box).to_be_hidden()
        expect(note).to_be_visible()


def test_a_class_would_have_stayed(page: Page) -> None:
    """Why `show_if` is there. Should this fail, views of anywidget follow their classes again."""
    old = page.locator(".lab-words", has_text="By class")
    expect(old).to_have_class(re.compile("lab-gone"), timeout=10_000)
    press(page, "2", "two matrices")
    expect(page.get_by_role("radio", name="key")).to_be_visible()  # later messages have come
    expect(old).to_have_class(re.compile("lab-gone"))


def test_what_changed_while_the_browser_built_its_models_is_sent_once_more(page: Page) -> None:
    expect(page.get_by_text("early: after")).to_be_visible(timeout=10_000)
    expect(page.get_by_text("form: before")).to_be_visible()
    expect(page.get_by_text("late: there")).to_be_visible()
    # One that is not sent again shows that the change did fall between the two.
    expect(page.get_by_text("lost: before")).to_be_visible()
