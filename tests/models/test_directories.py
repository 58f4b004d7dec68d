"""Directories in transformers format that are not what they should be: refused in words, and the next load works."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from lab.errors import ModelError
from lab.models.registry import find_facts, load_model

WEIGHTS = "model.safetensors"


@pytest.fixture
def bad(tiny_directory: Callable[..., Path], tmp_path: Path) -> Path:
    """A copy of a good model, to be damaged."""
    return Path(shutil.copytree(tiny_directory("llama"), tmp_path / "bad"))


@pytest.fixture
def refused(tiny_directory: Callable[..., Path]) -> Callable[[Path, str], None]:
    def check(path: Path, match: str) -> None:
        with pytest.raises(ModelError, match=match) as caught:
            load_model(str(path), device="cpu")
        assert caught.value.message
        assert "Traceback" not in str(caught.value)
        assert load_model(str(tiny_directory("llama")), device="cpu").facts.present

    return check


Refused = Callable[[Path, str], None]


def change_config(directory: Path, **values: Any) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def change_header(directory: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = directory / WEIGHTS
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    change(header)
    raw = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + data[8 + length :])


def test_missing_path(refused: Refused, tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", "no directory or file")


@pytest.mark.parametrize("name", ["", "no-such-model", "a\0b", "x" * 5000])
def test_names_that_name_nothing(name: str) -> None:
    with pytest.raises(ModelError) as caught:
        find_facts(name)
    assert "smollm2-135m-instruct" in caught.value.remedy


def test_empty_directory(refused: Refused, tmp_path: Path) -> None:
    refused(tmp_path, r"holds no config\.json")


def test_a_file_that_is_no_model(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    refused(tmp_path / "notes.txt", "not a GGUF file")


def test_pickle_only(refused: Refused, bad: Path) -> None:
    torch.save({"x": torch.zeros(1)}, bad / "pytorch_model.bin")
    (bad / WEIGHTS).unlink()
    refused(bad, r"only as pickle \(pytorch_model\.bin\)")


def test_no_weights(refused: Refused, bad: Path) -> None:
    (bad / WEIGHTS).unlink()
    refused(bad, "holds no weights")


@pytest.mark.parametrize("keep", [0, 5, 100, -64])
def test_truncated_weights(refused: Refused, bad: Path, keep: int) -> None:
    data = (bad / WEIGHTS).read_bytes()
    (bad / WEIGHTS).write_bytes(data[:keep])
    refused(bad, r"model\.safetensors is damaged")


def test_huge_header_length(refused: Refused, bad: Path) -> None:
    data = (bad / WEIGHTS).read_bytes()
    (bad / WEIGHTS).write_bytes(struct.pack("<Q", 2**62) + data[8:])
    refused(bad, r"header claims 4,611,686,018,427,387,904 bytes")


def test_offsets_beyond_the_file(refused: Refused, bad: Path) -> None:
    def lie(header: dict[str, Any]) -> None:
        header["model.norm.weight"]["data_offsets"][1] += 10**9
        header["model.norm.weight"]["shape"] = [32 + 10**9 // 4]

    change_header(bad, lie)
    refused(bad, r"'model\.norm\.weight' ends at byte")


def test_overlapping_tensors(refused: Refused, bad: Path) -> None:
    def lie(header: dict[str, Any]) -> None:
        header["again"] = header["model.norm.weight"]

    change_header(bad, lie)
    refused(bad, "overlap")


def test_shape_and_bytes_disagree(refused: Refused, bad: Path) -> None:
    def lie(header: dict[str, Any]) -> None:
        header["model.norm.weight"]["shape"] = [31]

    change_header(bad, lie)
    refused(bad, r"shape \[31\] and dtype F32 has 128 bytes")


@pytest.mark.parametrize(
    "raw", [b"[]", b"{", b'{"a": 1}', b'{"a": {"dtype": "F99", "shape": [], "data_offsets": [0, 0]}}']
)
def test_headers_that_say_nothing(refused: Refused, bad: Path, raw: bytes) -> None:
    (bad / WEIGHTS).write_bytes(struct.pack("<Q", len(raw)) + raw)
    refused(bad, "is damaged")


def test_shapes_of_another_config(refused: Refused, bad: Path) -> None:
    change_config(bad, intermediate_size=48)
    refused(bad, "another shape than the config's")


def test_a_missing_tensor(refused: Refused, bad: Path) -> None:
    tensors = load_file(bad / WEIGHTS)
    del tensors["model.norm.weight"]
    save_file(tensors, bad / WEIGHTS, metadata={"format": "pt"})
    refused(bad, r"lack 'model\.norm\.weight'")


def test_a_config_far_larger_than_the_files(refused: Refused, bad: Path) -> None:
    change_config(bad, num_hidden_layers=200, intermediate_size=100_000)
    refused(bad, r"describes [\d,]+ parameters, but its files hold 2")


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers = 1000000000"),
        ({"hidden_size": 0}, "hidden_size = 0|does not fit"),
        ({"vocab_size": -5}, "vocab_size = -5|does not fit"),
        ({"num_key_value_heads": 3}, "4 query heads for 3 key/value heads|does not fit"),
        ({"num_attention_heads": "four"}, "does not fit"),
    ],
)
def test_absurd_configs(refused: Refused, bad: Path, values: dict[str, Any], match: str) -> None:
    change_config(bad, **values)
    refused(bad, match)


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_broken_config(refused: Refused, bad: Path, text: str) -> None:
    (bad / "config.json").write_text(text)
    refused(bad, r"config\.json")


def test_unknown_architecture(refused: Refused, bad: Path) -> None:
    change_config(bad, model_type="nosuch")
    refused(bad, "unknown architecture 'nosuch'")


def test_code_from_the_repository_is_not_run(refused: Refused, bad: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    (bad / "modeling_own.py").write_text(f"open({str(mark)!r}, 'w').close()\nclass Own: pass\n")
    auto_map = {"AutoConfig": "modeling_own.Own", "AutoModelForCausalLM": "modeling_own.Own"}
    change_config(bad, model_type="own", auto_map=auto_map)
    refused(bad, r"needs code from its own repository \(auto_map")
    # a known architecture is loaded with transformers' own code, whatever else the directory offers
    change_config(bad, model_type="llama", auto_map=auto_map)
    assert load_model(str(bad), device="cpu").facts.architecture == "LlamaForCausalLM"
    assert not mark.exists()


@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_encoder_decoders(refused: Refused, bad: Path, kind: str) -> None:
    (bad / "config.json").write_text(json.dumps({"model_type": kind, "is_encoder_decoder": True}))
    refused(bad, "encoder-decoder")
    (bad / "config.json").write_text(json.dumps({"model_type": kind}))
    refused(bad, "encoder-decoder|not a causal")


def test_not_a_language_model(refused: Refused, bad: Path) -> None:
    (bad / "config.json").write_text(json.dumps({"model_type": "vit"}))
    refused(bad, "not a causal language model")


def test_stored_quantized(refused: Refused, bad: Path) -> None:
    change_config(bad, quantization_config={"quant_method": "gptq", "bits": 4})
    refused(bad, r"stored quantized \(gptq\)")


def test_no_tokenizer(refused: Refused, bad: Path) -> None:
    for path in bad.glob("tokenizer*"):
        path.unlink()
    refused(bad, "no tokenizer that can be read")


def test_a_tokenizer_of_another_model(refused: Refused, tiny_directory: Callable[..., Path]) -> None:
    small = tiny_directory("llama", vocab_size=100)
    refused(small, r"100 embeddings, but its tokenizer knows 317 tokens")


def test_an_index_that_points_outside(refused: Refused, bad: Path) -> None:
    (bad / WEIGHTS).rename(bad.parent / "elsewhere.safetensors")
    index = {"metadata": {}, "weight_map": {"model.norm.weight": "../elsewhere.safetensors"}}
    (bad / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(bad, "outside its own directory")


def test_an_index_with_a_missing_file(refused: Refused, bad: Path) -> None:
    (bad / WEIGHTS).unlink()
    index = {"metadata": {}, "weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}}
    (bad / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(bad, r"model-00001-of-00001\.safetensors is missing")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"dtype": "float8"}, "dtype 'float8' is not offered"),
        ({"dtype": "float16"}, "dtype 'float16' is not offered"),
        ({"device": "tpu"}, "device 'tpu' is not offered"),
        ({"device": "cuda:x"}, "device 'cuda:x' is not offered"),
        ({"device": "cpu:1"}, "device 'cpu:1' is not offered"),
        ({"device": "cuda:99"}, "no CUDA device|There is no cuda:99"),
    ],
)
def test_bad_choices(tiny_directory: Callable[..., Path], options: dict[str, str], match: str) -> None:
    with pytest.raises(ModelError, match=match):
        load_model(str(tiny_directory("llama")), **options)


def test_the_hub_cannot_be_reached() -> None:
    with pytest.raises(ModelError, match=r"hub cannot be reached") as caught:
        load_model("some-owner/some-model")
    assert "directory" in caught.value.remedy
    with pytest.raises(ModelError, match="not on this machine"):
        find_facts("some-owner/some-model")
