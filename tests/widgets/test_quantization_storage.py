"""The storage calculator's section, answered by the real count: a pasted config, sizes by hand, refusals in words."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pages import send, walk
from samples import sample_facts

from lab.backend.validation import validated
from lab.errors import LabError
from lab.events.codec import to_json
from lab.experiments.quantization.storage_question import StorageQuestion, answer_storage
from widgets.experiment import Desk
from widgets.quantization.state import QuantizationState
from widgets.quantization.storage_fields import DEFAULTS, SCHEMA, question_of
from widgets.quantization.storage_section import StorageSection

SMALL = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 320,
    "torch_dtype": "float32",
}


class Calculator:
    """The section at a desk where the real question is answered."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

        def ask(name: str, params: dict[str, Any], reply: Callable[..., None], *, of_run: bool) -> None:
            assert (name, of_run) == ("storage", False)
            self.asked.append(params)
            try:
                answer = to_json(answer_storage(sample_facts(), validated(StorageQuestion, params)))
            except LabError as error:
                reply(None, str(error))
                return
            reply(answer, "")

        self.section = StorageSection(Desk(ask=ask, touch=lambda: None, lock=threading.RLock()))
        self.draw()

    def draw(self) -> Calculator:
        self.section.render(QuantizationState(), -1, live=False)
        return self

    def enter(self, **values: Any) -> Calculator:
        send(self.section._controls, type="values", changed=values)
        return self.draw().draw()

    @property
    def said(self) -> str:
        return " ".join(text for _, text in self.section._words.state["lines"])

    @property
    def hidden(self) -> bool:
        return self.section._figures.layout.display == "none"


def test_a_pasted_config_is_counted_and_what_is_wrong_is_said() -> None:
    page = Calculator().enter(model="config")
    assert page.hidden
    assert page.said.startswith("Paste the text of a config.json")
    asked = len(page.asked)
    page.draw()
    assert len(page.asked) == asked  # nothing is asked before there is something to ask
    page.enter(config=json.dumps(SMALL))
    assert not page.hidden
    assert page.said.startswith("The given config (llama): ")
    weights = page.section.tables(QuantizationState())[0].rows[-1][1]
    assert weights == 2 * (4 * 256 * 256 + 3 * 256 * 512) + 2 * 320 * 256 + 5 * 256
    page.enter(config=json.dumps({**SMALL, "hidden_size": "wide"}))
    assert page.hidden
    assert "hidden_size is 'wide'; it must be a whole number from 1 to 1,000,000. Correct it" in page.said
    page.enter(config="<img src=x>")
    assert "The config is no JSON" in page.said
    nameless = {k: v for k, v in SMALL.items() if k != "model_type"}
    assert "counted as a Llama-like decoder" in page.enter(config=json.dumps(nameless)).said


def test_sizes_by_hand_are_counted() -> None:
    page = Calculator().enter(model="sizes")
    assert page.asked[-1]["hidden"] == 4096
    assert "weights" not in page.asked[-1]
    assert page.said.startswith("A decoder of these sizes: ")
    rows = page.section.tables(QuantizationState())[0].rows
    assert rows[-1][1] == 6_738_415_616
    assert "cannot share 5 key/value heads" in page.enter(kv_heads=5).said
    assert page.enter(kv_heads=8, tied=True).section.tables(QuantizationState())[0].rows[-1][1] < rows[-1][1]


def test_a_link_holds_what_was_read_of_a_config_and_sizes() -> None:
    page = Calculator().enter(model="config", config=json.dumps({**SMALL, "extra": "x" * 5000}))
    link = page.section.link()
    assert "extra" not in link["size_config"]
    other = Calculator()
    other.section.restore(link)
    assert other.draw().draw().said == page.said
    assert "size_config" not in page.enter(model="count").section.link()
    by_hand = Calculator().enter(model="sizes", layers=3, tied=True).section.link()
    assert by_hand == {"size_model": "sizes", "size_layers": 3, "size_tied": True}
    third = Calculator()
    third.section.restore({"size_model": "sizes", "size_layers": 0, "size_tied": 1, "size_config": "x" * 70_000})
    assert {k: v for k, v in third.section.values.items() if v != DEFAULTS[k]} == {"model": "sizes"}


@pytest.mark.parametrize("model", SCHEMA["properties"]["model"]["enum"])
def test_every_choice_of_the_form_is_a_question_that_is_allowed(model: str) -> None:
    asked = question_of({**DEFAULTS, "model": model, "config": json.dumps(SMALL)})
    assert answer_storage(sample_facts(), StorageQuestion(**asked))["total"]["bytes"] > 0
    fields = StorageQuestion.model_json_schema()["properties"]
    for name in ("hidden", "layers", "head_dim", "vocab"):
        shown = SCHEMA["properties"][name]
        assert (shown["minimum"], shown["maximum"]) == (fields[name]["minimum"], fields[name]["maximum"])
        assert shown["default"] == fields[name]["default"]


def test_every_view_of_the_section_is_plain_json() -> None:
    page = Calculator().enter(model="config", config='{"model_type": "<b>"}')
    for view in walk(page.section.widget):
        json.dumps(view.state, allow_nan=False)
    assert "'<b>'" in page.said
