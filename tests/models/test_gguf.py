"""GGUF files: converted right, refused in words."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_gguf import write_gguf

from lab.errors import ModelError
from lab.models.gguf_header import read_gguf_header
from lab.models.grid import check_grid
from lab.models.loading import LoadedModel
from lab.models.manifest import is_whole, read_manifest
from lab.models.registry import find_facts, list_models, load_model

IDS = torch.tensor([[7, 120, 45, 200, 9, 33, 301, 64, 5, 77]])


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAB_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def source(tiny: Callable[..., LoadedModel]) -> LoadedModel:
    return tiny("llama")


@pytest.fixture
def good(source: LoadedModel, tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf", source.model)


def logits(loaded: LoadedModel) -> torch.Tensor:
    with torch.inference_mode():
        output = loaded.model(IDS).logits
    assert isinstance(output, torch.Tensor)
    return output


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(a.flatten(), b.flatten(), dim=0))


def test_plain_numbers_give_the_same_logits(source: LoadedModel, tmp_path: Path) -> None:
    loaded = load_model(str(write_gguf(tmp_path / "plain.gguf", source.model, kind="F32")))
    assert loaded.facts.grid is None
    assert torch.equal(logits(loaded), logits(source))


@pytest.mark.parametrize(("query_heads", "kv_heads"), [(2, 2), (4, 4)])
def test_a_wrong_permutation_would_be_seen(
    source: LoadedModel, tmp_path: Path, query_heads: int, kv_heads: int
) -> None:
    path = write_gguf(tmp_path / "wrong.gguf", source.model, kind="F32", query_heads=query_heads, kv_heads=kv_heads)
    assert cosine(logits(load_model(str(path))), logits(source)) < 0.99


def test_the_weights_are_the_files_numbers(good: Path) -> None:
    loaded = load_model(str(good))
    tensors = {t.name: t for t in gguf.GGUFReader(str(good)).tensors}
    for ours, theirs in (("mlp.down_proj", "ffn_down"), ("self_attn.v_proj", "attn_v"), ("mlp.up_proj", "ffn_up")):
        stored = tensors[f"blk.1.{theirs}.weight"]
        expected = gguf.quants.dequantize(stored.data, stored.tensor_type)
        assert np.array_equal(loaded.model.get_parameter(f"model.layers.1.{ours}.weight").numpy(), expected)


def test_conversion_keeps_template_tokenizer_and_grid(good: Path, own_cache: Path) -> None:
    loaded = load_model(str(good))
    assert loaded.facts.source == "gguf"
    assert loaded.facts.grid == "Q4_1, groups of 32; some tensors Q8_0"
    assert loaded.facts.chat_template
    assert loaded.end_token_ids == {2}
    assert loaded.tokenizer.tokenize("\n\n12") == ["Ċ", "Ċ", "1", "2"]  # this vocabulary has no double newline
    assert loaded.tokenizer("<|im_end|>")["input_ids"] == [2]
    assert check_grid(loaded.model.get_parameter("model.layers.0.mlp.up_proj.weight")).on_grid
    (directory,) = (p for p in (own_cache / "models").iterdir() if p.is_dir())
    manifest = read_manifest(directory)
    assert manifest is not None
    assert manifest.tensor_types == {"Q4_1": 14, "F32": 5, "Q8_0": 1}
    assert manifest.weight_hash == loaded.facts.weight_hash


def test_a_file_is_converted_once_and_known_by_name(good: Path, own_cache: Path, tmp_path: Path) -> None:
    stages: list[str] = []
    first = load_model(str(good), progress=lambda stage, _: stages.append(stage))
    assert any("unpacking" in stage for stage in stages)
    moved = good.rename(tmp_path / "other name.gguf")
    stages.clear()
    load_model(str(moved), progress=lambda stage, _: stages.append(stage))
    assert not any("unpacking" in stage for stage in stages)
    names = [facts.id for facts in list_models() if facts.source == "gguf"]
    assert len(names) == 1
    assert find_facts(names[0]).weight_hash == first.facts.weight_hash
    assert [p.name for p in own_cache.rglob("*.gguf")] == []


def test_a_damaged_conversion_is_made_again(good: Path, own_cache: Path) -> None:
    before = load_model(str(good)).facts
    (directory,) = (p for p in (own_cache / "models").iterdir() if p.is_dir())
    weights = directory / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert not is_whole(directory)
    assert load_model(str(good)).facts == before


def test_facts_before_conversion(good: Path, own_cache: Path) -> None:
    facts = find_facts(str(good))
    assert not own_cache.exists()
    assert not facts.present
    after = load_model(str(good)).facts
    for name in ("layers", "hidden", "query_heads", "kv_heads", "head_dim", "vocab", "context", "tied", "parameters"):
        assert getattr(facts, name) == getattr(after, name), name
    assert (facts.weight_bytes, facts.dtype, facts.grid) == (after.weight_bytes, after.dtype, after.grid)


def refused(path: Path, match: str, good: Path) -> None:
    """`path` is refused with words that match, and the next load works."""
    with pytest.raises(ModelError, match=match) as caught:
        load_model(str(path))
    assert caught.value.remedy
    with pytest.raises(ModelError, match=match):
        find_facts(str(path))
    assert load_model(str(good)).facts.present


def test_empty(good: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.gguf").touch()
    refused(tmp_path / "empty.gguf", "damaged: it has 0 bytes", good)


def test_not_gguf(good: Path, tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("This is a text of more than twenty-four bytes.")
    refused(tmp_path / "text.gguf", "not a GGUF file", good)


def test_missing(good: Path, tmp_path: Path) -> None:
    refused(tmp_path / "nowhere.gguf", "no directory or file", good)


def test_truncated_weights(good: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(good.read_bytes()[:-200])
    refused(cut, r"damaged: 'blk.*' ends at byte [\d,]+ of a file of [\d,]+ bytes|'output_norm", good)


def test_unknown_tensor_type(good: Path, tmp_path: Path) -> None:
    data = bytearray(good.read_bytes())
    at = data.index(b"blk.0.attn_q.weight") + len("blk.0.attn_q.weight") + 4 + 16
    assert struct.unpack_from("<I", data, at) == (int(gguf.GGMLQuantizationType.Q4_1),)
    for number, match in ((99, "unknown tensor type 99"), (int(gguf.GGMLQuantizationType.Q8_1), "as Q8_1, which")):
        struct.pack_into("<I", data, at, number)
        bad = tmp_path / f"type{number}.gguf"
        bad.write_bytes(data)
        refused(bad, match, good)


def test_without_tokenizer(source: LoadedModel, good: Path, tmp_path: Path) -> None:
    refused(write_gguf(tmp_path / "bare.gguf", source.model, tokenizer=False), "holds no tokenizer", good)


def test_without_chat_template(source: LoadedModel, tmp_path: Path) -> None:
    loaded = load_model(str(write_gguf(tmp_path / "mute.gguf", source.model, chat=False)))
    assert not loaded.facts.chat_template
    assert not loaded.tokenizer.chat_template


def test_unknown_architecture(source: LoadedModel, good: Path, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "odd.gguf", source.model, architecture="nosuch")
    with pytest.raises(ModelError, match="nosuch"):
        load_model(str(path))
    assert load_model(str(good)).facts.present


def test_a_part_of_a_split_file(source: LoadedModel, good: Path, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "part.gguf", source.model, change=lambda w: w.add_uint16("split.count", 3))
    refused(path, "one of 3 parts", good)


@given(cut=st.floats(0, 0.999), flips=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), max_size=3))
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_garbled_header_raises_anything_else(
    good: Path, tmp_path: Path, cut: float, flips: list[tuple[float, int]]
) -> None:
    data = bytearray(good.read_bytes())
    header = len(data) // 2
    for where, value in flips:
        data[int(where * header)] = value
    path = tmp_path / "garbled.gguf"
    path.write_bytes(data[: int(cut * len(data))])
    with pytest.raises(ModelError):
        read_gguf_header(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", 16_711_682),
        ("block_count", 2**31),
        ("attention.head_count_kv", 2**40),
        ("context_length", 2**62),
    ],
)
def test_absurd_sizes_are_refused_at_once(source: LoadedModel, tmp_path: Path, key: str, value: int) -> None:
    def change(writer: gguf.GGUFWriter) -> None:
        for data in writer.kv_data:
            data.pop(f"llama.{key}", None)
        writer.add_uint64(f"llama.{key}", value)

    file = write_gguf(tmp_path / "absurd.gguf", source.model, change=change)
    with pytest.raises(ModelError, match=rf"its {key} is {value:,}; the lab takes up to"):
        find_facts(str(file))


def test_names_of_any_length_are_cut(source: LoadedModel, tmp_path: Path) -> None:
    def change(writer: gguf.GGUFWriter) -> None:
        for data in writer.kv_data:
            data.pop("general.name", None)
        writer.add_name("n" * 100_000)
        writer.add_license("y" * 100_000)

    facts = find_facts(str(write_gguf(tmp_path / "long.gguf", source.model, change=change)))
    assert len(facts.name) == len(facts.license) == 120


def test_a_disk_without_room_is_said_before_the_conversion(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.models.disk.ROOM_BYTES", 1 << 60)
    with pytest.raises(
        ModelError, match=r"needs about .* MiB in the cache directory while it is made, but .* are free"
    ):
        load_model(str(good), device="cpu")
    monkeypatch.undo()
