"""Which models are on this machine, and which of them lie on no grid."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lab import paths
from lab.backend.model_room import ModelRoom
from lab.backend.source import Placement
from lab.models import facts as facts_module
from lab.models.at_hand import hub_ids, models_at_hand, off_grid, trained_ids
from lab.models.registry import DEFAULT_MODEL, list_models

Tiny = Callable[..., Path]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the lab's, and one of the hub's."""
    from huggingface_hub import constants

    monkeypatch.setenv(paths.CACHE_VARIABLE, str(tmp_path / "lab"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path


def put_in_hub(cache: Path, repo: str, source: Path) -> Path:
    """A model in the layout of the hub's cache."""
    folder = cache / "hub" / f"models--{repo.replace('/', '--')}"
    snapshot = folder / "snapshots" / ("a" * 40)
    shutil.copytree(source, snapshot)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("a" * 40)
    return snapshot


def test_nothing_is_at_hand_on_an_empty_machine_and_nothing_is_made(cache: Path) -> None:
    assert [*trained_ids(), *hub_ids(), *models_at_hand()] == []
    assert DEFAULT_MODEL in {facts.id for facts in list_models()}  # it can be fetched
    assert not (cache / "lab" / "trained").exists()


def test_trained_and_hub_models_are_at_hand_and_on_no_grid(
    cache: Path, tiny_directory: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(_: Path) -> str:
        raise AssertionError("no weights are read to list models")

    monkeypatch.setattr(facts_module, "weight_hash", read)
    trained = paths.trained_dir() / "merged"
    shutil.copytree(tiny_directory("llama"), trained)
    (paths.trained_dir() / "adapter").mkdir()  # no model
    put_in_hub(cache, "org/tiny-qwen", tiny_directory("qwen2"))
    broken = put_in_hub(cache, "org/broken", tiny_directory("llama"))
    (broken / "config.json").write_text('{"model_type": "t5"}')
    reader = put_in_hub(cache, "org/reads-only", tiny_directory("llama"))
    config = json.loads((reader / "config.json").read_text())
    (reader / "config.json").write_text(json.dumps({**config, "architectures": ["BertForMaskedLM"]}))
    part = put_in_hub(cache, "org/part", tiny_directory("llama"))
    (part / "model.safetensors").unlink()
    (cache / "hub" / "datasets--org--text").mkdir()
    found = {facts.id: facts for facts in models_at_hand()}
    assert list(found) == [str(trained), "org/tiny-qwen"]
    assert found["org/tiny-qwen"].source == "hub"
    assert all(facts.present and facts.grid is None for facts in found.values())
    assert [f.id for f in off_grid(found.values())] == list(found)


@pytest.mark.usefixtures("cache")
def test_a_model_on_a_grid_or_of_no_use_is_not_offered(tiny_directory: Tiny) -> None:
    (facts,) = models_at_hand([str(tiny_directory("llama"))])
    assert off_grid([facts], "quantization") == [facts]
    for other in (
        replace(facts, grid="Q4_1, groups of 32"),
        replace(facts, present=False),
        replace(facts, experiments={"quantization": "it keeps no keys"}),
    ):
        assert off_grid([other], "quantization") == []


@pytest.mark.usefixtures("cache")
def test_a_directory_is_listed_once_it_was_loaded(tiny_directory: Tiny) -> None:
    room, model = ModelRoom(), str(tiny_directory("llama"))
    before = room.list()
    placement = Placement(dtype="float32", device="cpu", attention="sdpa", threads=1)
    room.load(model, placement, lambda _stage, _share: None)
    assert [f.id for f in room.list() if f not in before] == [model]
    assert room.list()[-1].experiments["quantization"] == ""
