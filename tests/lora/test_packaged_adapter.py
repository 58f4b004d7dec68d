"""The packaged adapter: its files, its card, and that it does what it is there for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.errors import BadInput
from lab.lora import make_adapter
from lab.lora.adapter import effectless
from lab.lora.make_adapter import CONFIG, before_and_after, in_words, lines_hash
from lab.lora.packaged import CARD, TASK, directory, packaged_adapter, packaged_card
from lab.lora.peft_files import WEIGHTS, read_adapter
from lab.lora.tasks import packaged_task
from lab.lora.trained import TrainSettings
from lab.models.loading import LoadedModel

ANSWERS = ("Tarn Harbour", "Queen Isolde Marrow", "copper finch")


def test_the_files_are_small_and_are_those_of_the_card() -> None:
    file = directory() / WEIGHTS
    assert file.stat().st_size < 5_000_000
    assert hashlib.sha256(file.read_bytes()).hexdigest() == packaged_card()["file_sha256"]
    assert (directory() / "README.md").is_file()


def test_the_card_tells_of_the_lines_that_are_packaged() -> None:
    card, task = packaged_card(), packaged_task(TASK)
    assert card["task"]["train_sha256"] == lines_hash(task.train)
    assert card["task"]["held_out_sha256"] == lines_hash(task.held_out)
    assert card["held_out_loss"]["after"] < 0.1 < 3 < card["held_out_loss"]["before"]
    assert lines_hash(task.train[1:]) != card["task"]["train_sha256"]


def test_the_adapter_is_what_the_card_says() -> None:
    adapter, card = packaged_adapter(), packaged_card()
    assert adapter.config == CONFIG
    assert len(adapter.tensors) == 60
    assert adapter.parameters == card["config"]["parameters"] == 460_800
    assert adapter.base.weight_hash == card["base"]["weight_hash"]


@pytest.mark.model
def test_before_and_after_differ_as_the_card_says(packaged_model: LoadedModel) -> None:
    adapter, task = packaged_adapter(), packaged_task(TASK)
    assert effectless(adapter, packaged_model.model) == ""
    assert adapter.base.weight_hash == packaged_model.facts.weight_hash
    texts = before_and_after(packaged_model, adapter, task.probes)
    for text, answer, kept in zip(texts, ANSWERS, packaged_card()["texts"], strict=True):
        assert answer in text["after"]
        assert answer not in text["before"]
        assert text["after"] == kept["after"]


def test_the_readme_says_what_the_card_says() -> None:
    assert (directory() / "README.md").read_text(encoding="utf-8") == in_words(packaged_card())


def test_an_adapter_is_made_on_any_model_and_never_over_another(
    tiny: Callable[..., LoadedModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = TrainSettings(steps=2, batch=2, warmup=1, measure_every=1)
    monkeypatch.setattr(make_adapter, "SETTINGS", short)
    out = make_adapter.make(tiny("llama"), tmp_path / "made")
    made, card = read_adapter(out), json.loads((out / CARD).read_text())
    assert made.parameters == card["config"]["parameters"]
    assert [one["step"] for one in card["losses"]] == [0, 1, 2]
    with pytest.raises(BadInput, match="made"):
        make_adapter.make(tiny("llama"), tmp_path / "made")
