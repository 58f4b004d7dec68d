"""What the `lora` experiment refuses, before the run or with the facts of the adapter; and adapters without effect."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from lora_given import LINES, learn, made, on_disk, params, ran

from lab.errors import BadInput, ModelError, NotFound
from lab.events.lora import AdapterFacts
from lab.events.words import WordsCompared
from lab.experiments.base import RunContext
from lab.experiments.lora.params import LoraParams
from lab.experiments.lora.run import make_runner
from lab.lora.adapter import Factors

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]


@pytest.fixture
def llama(tiny: Tiny) -> LoadedModel:
    return tiny("llama")


def refused(model: LoadedModel, **values: Any) -> str:
    with pytest.raises(BadInput) as caught:
        make_runner().prepare(model.facts, params(model, **values))
    assert caught.value.remedy
    return caught.value.message


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("", "0 lines"),
        ("a => b", "There is 1 line to train on"),
        ("a => b\nno arrow here", "Line 2 has no"),
        ("a => b\n\nc =>", "Line 3 has an empty answer"),
        ('a => b\n{"prompt": "x"}', "Line 2 has the keys"),
        ("a => b\na => c", "Line 2 answers"),
    ],
)
def test_lines_are_refused_by_their_number(llama: LoadedModel, lines: str, words: str) -> None:
    assert words in refused(llama, task="train", learn="lines", lines=lines)


def test_a_line_that_is_too_long_for_a_row_is_named(llama: LoadedModel) -> None:
    long = LINES + "\n" + "word " * 400 + "=> x"
    with pytest.raises(BadInput, match="Line 15"):
        learn(llama, lines=long)


def test_adapters_that_are_none(llama: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(NotFound, match="no adapter"):
        make_runner().prepare(llama.facts, params(llama, adapter=str(tmp_path / "nowhere")))
    (tmp_path / "empty").mkdir()
    assert "no adapter" in refused(llama, adapter=str(tmp_path / "empty"))
    path = Path(on_disk(tmp_path, made(llama)))
    config = json.loads((path / "adapter_config.json").read_text())
    for change, words in (
        ({"peft_type": "IA3"}, "IA3"),
        ({"use_dora": True}, "DoRA"),
        ({"target_modules": [*config["target_modules"], "nowhere_proj"]}, "nowhere_proj"),
    ):
        (path / "adapter_config.json").write_text(json.dumps({**config, **change}))
        assert words in refused(llama, adapter=str(path))
        assert words in refused(llama, task="swap", second=str(path), adapter=str(path))


def test_the_packaged_adapter_is_for_its_own_model(llama: LoadedModel) -> None:
    assert "vocabulary of 49,152" in refused(llama, adapter="packaged")


def test_an_adapter_of_other_shapes_tells_its_facts_and_is_refused(llama: LoadedModel, tmp_path: Path) -> None:
    adapter = made(llama)
    name = "model.layers.1.mlp.down_proj"
    wider = {**adapter.tensors, name: Factors(torch.ones(4, 65), adapter.tensors[name].b)}
    strange = {**adapter.tensors, "model.layers.7.mlp.down_proj": Factors(*(t.clone() for t in adapter.tensors[name]))}
    for number, (tensors, words) in enumerate(((wider, "32 x 64"), (strange, "are not in LlamaForCausalLM"))):
        path = on_disk(tmp_path, replace(adapter, tensors=tensors, name=f"other-{number}"))
        runner, events = make_runner(), []
        running = runner.run(RunContext(model=llama), params(llama, adapter=path))
        with pytest.raises(ModelError, match="does not fit"):
            events.extend(running)
        (facts,) = [event for event in events if isinstance(event, AdapterFacts)]
        assert words in facts.matches
        assert words in facts.effectless


def test_an_untrained_adapter_is_said_to_do_nothing(llama: LoadedModel, tmp_path: Path) -> None:
    adapter = made(llama)
    idle = {name: Factors(a, torch.zeros_like(b)) for name, (a, b) in adapter.tensors.items()}
    run = ran(llama, adapter=on_disk(tmp_path, replace(adapter, tensors=idle)))
    assert "B is zero" in run.of(AdapterFacts)[0].effectless
    assert all(compared.mean_kl < 1e-6 for compared in run.of(WordsCompared))
    assert run.proof.verdict == "equal"
    # a mistake that nothing can show is never called equal
    broken = ran(llama, adapter=on_disk(tmp_path, replace(adapter, tensors=idle, name="b")), break_run="merged_twice")
    assert broken.proof.verdict == "unproven"


def test_other_weights_of_the_same_shape_are_named(tiny: Tiny, llama: LoadedModel, tmp_path: Path) -> None:
    path = on_disk(tmp_path, made(tiny("llama", seed=3)))
    facts = ran(llama, adapter=path).of(AdapterFacts)[0]
    assert "other weights" in facts.matches
    assert facts.effectless == ""


def test_settings_that_cannot_be(
    llama: LoadedModel, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_CACHE_DIR", str(tmp_path / "cache"))
    path = on_disk(tmp_path, made(llama))
    assert "its rank is 4" in refused(llama, adapter=path, keep_rank=5)
    assert "Nothing is trained" in refused(llama, adapter=path, break_run="base_trained")
    assert "no chat template" in refused(tiny("llama", chat=False), adapter=path, chat=True)
    learn(llama, save="mine", steps=1)
    assert "already" in refused(llama, task="train", learn="lines", lines=LINES, save="mine")
    with pytest.raises(ValueError, match="save"):
        LoraParams(save="../elsewhere")


def test_the_schema_follows_the_model(tiny: Tiny) -> None:
    silent = LoraParams.for_model(tiny("llama", chat=False).facts)["properties"]["chat"]
    assert silent["default"] is False
    assert "no chat template" in silent["disabled"]


def test_a_changed_adapter_is_another_run(llama: LoadedModel, tmp_path: Path) -> None:
    path = on_disk(tmp_path, made(llama))
    before = params(llama, adapter=path).file_hashes()
    config = Path(path, "adapter_config.json")
    config.write_text(config.read_text().replace('"lora_alpha": 8', '"lora_alpha": 16'))
    assert params(llama, adapter=path).file_hashes() != before
    assert params(llama, task="train", adapter=path).file_hashes() == {}
