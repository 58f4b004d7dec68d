"""Facts are those of the tensors: heads, own head_dim, windows, ties."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import CONFIGS
from transformers.cache_utils import DynamicCache
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from lab.events.codec import from_json, to_json
from lab.experiments.registry import with_experiments
from lab.models.architecture import shape_of
from lab.models.loading import LoadedModel
from lab.models.registry import find_facts
from lab.models.weights import weight_hash
from lab.models.words import cache_bytes_per_token, facts_in_words, layers_in_words


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_facts_match_the_loaded_model(tiny: Callable[..., LoadedModel], kind: str) -> None:
    loaded = tiny(kind)
    facts = loaded.facts
    assert facts.parameters == sum(p.numel() for p in loaded.model.parameters())
    assert facts.weight_bytes == 4 * facts.parameters
    assert facts.dtype == "float32"
    tied = loaded.model.get_output_embeddings().weight is loaded.model.get_input_embeddings().weight
    assert facts.tied == tied
    assert facts.architecture == type(loaded.model).__name__
    assert facts.grid is None
    assert facts.chat_template


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_facts_match_the_cache(tiny: Callable[..., LoadedModel], kind: str) -> None:
    """12 positions through a window of 8: the tensors say which layers slide, and how wide keys really are."""
    loaded = tiny(kind)
    cache = DynamicCache(config=loaded.model.config)
    with torch.inference_mode():
        loaded.model(torch.arange(3, 15)[None], cache=cache)
    assert len(cache.layers) == len(loaded.facts.layers)
    for layer, facts in zip(cache.layers, loaded.facts.layers, strict=True):
        positions = 12 if facts.kind == "full" else 7  # a sliding layer keeps window - 1 for the next token
        assert tuple(layer.keys.shape) == (1, facts.kv_heads, positions, facts.head_dim)


def test_own_head_dim_is_not_hidden_over_heads(tiny: Callable[..., LoadedModel]) -> None:
    facts = tiny("qwen3").facts
    assert facts.head_dim == 16
    assert facts.hidden // facts.query_heads == 8  # what the obvious formula would say


def test_windows(tiny: Callable[..., LoadedModel]) -> None:
    assert [la.kind for la in tiny("gemma3").facts.layers] == ["sliding"] * 5 + ["full"]
    assert [la.kind for la in tiny("gemma2").facts.layers] == ["sliding", "full"] * 2
    assert [la.window for la in tiny("mistral").facts.layers] == [8, 8]
    assert [la.kind for la in tiny("mixtral").facts.layers] == ["full", "full"]
    assert layers_in_words(tiny("gemma3").facts.layers) == "6: 5 sliding (window 8), 1 full attention"


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("deepseek_v3", {"num_hidden_layers": 2}, ["other", "other"]),
        ("mamba", {"num_hidden_layers": 2}, ["other", "other"]),
        ("qwen3_next", {"num_hidden_layers": 4}, ["other", "other", "other", "full"]),
        ("qwen2", {"num_hidden_layers": 2, "sliding_window": 8}, ["full", "full"]),
    ],
)
def test_kinds_of_other_architectures(kind: str, values: dict[str, Any], expected: list[str]) -> None:
    shape = shape_of(CONFIG_MAPPING[kind](**values), kind)
    assert [layer.kind for layer in shape.layers] == expected


def test_multi_query_by_its_own_name() -> None:
    shape = shape_of(CONFIG_MAPPING["falcon"](num_hidden_layers=1), "falcon")
    assert (shape.query_heads, shape.kv_heads) == (71, 1)


def test_a_layer_with_heads_of_its_own(tiny_directory: Callable[..., Path], tmp_path: Path) -> None:
    """The tensors are believed where they differ from the config."""
    directory = shutil.copytree(tiny_directory("llama"), tmp_path / "odd")
    tensors = load_file(directory / "model.safetensors")
    tensors["model.layers.1.self_attn.k_proj.weight"] = torch.zeros(8, 32)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    assert [layer.kv_heads for layer in find_facts(str(directory)).layers] == [2, 1]


def test_the_weight_hash_names_the_weights(tiny_directory: Callable[..., Path], tmp_path: Path) -> None:
    first = tiny_directory("llama")
    assert find_facts(str(first)).weight_hash == weight_hash(first)
    tensors = load_file(first / "model.safetensors")
    shards = tmp_path / "shards"
    shards.mkdir()
    names = sorted(tensors)
    for number in (0, 1):
        save_file({n: tensors[n] for n in names[number::2]}, shards / f"part{number}.safetensors", metadata={"a": "b"})
    places = {n: f"part{i % 2}.safetensors" for i, n in enumerate(names)}
    (shards / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert weight_hash(shards) == weight_hash(first)  # spread over files, other metadata: the same weights
    assert weight_hash(tiny_directory("llama", seed=1)) != weight_hash(first)
    changed = tensors["model.norm.weight"].clone()
    changed.view(torch.int32)[5] ^= 1  # one bit
    save_file({**tensors, "model.norm.weight": changed}, shards / "model.safetensors")
    assert weight_hash(shards) != weight_hash(first)


def test_a_changed_file_is_hashed_again(tiny_directory: Callable[..., Path], tmp_path: Path) -> None:
    directory = shutil.copytree(tiny_directory("llama"), tmp_path / "copy")
    before = find_facts(str(directory)).weight_hash
    tensors = load_file(directory / "model.safetensors")
    tensors["model.norm.weight"] += 1
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    assert find_facts(str(directory)).weight_hash != before


def test_licence_of_a_model_card(tiny_directory: Callable[..., Path], tmp_path: Path) -> None:
    directory = shutil.copytree(tiny_directory("llama"), tmp_path / "card")
    (directory / "README.md").write_text("---\nlicense: mit\n---\n# x\n")
    assert find_facts(str(directory)).license == "mit"


def test_facts_travel(tiny: Callable[..., LoadedModel]) -> None:
    body = json.loads(json.dumps(to_json(tiny("gemma3").facts)))
    assert from_json(body)["layers"][5] == {"kind": "full", "window": None, "kv_heads": 1, "head_dim": 16}


def test_words(tiny: Callable[..., LoadedModel]) -> None:
    facts = tiny("llama").facts
    words = dict(facts_in_words(with_experiments(facts)))
    assert words["heads"] == "4 query, 2 key/value (2 query heads share one)"
    assert words["experiment kv_cache"] == "can use it"
    assert cache_bytes_per_token(facts, 4) == 2 * 2 * 2 * 8 * 4
