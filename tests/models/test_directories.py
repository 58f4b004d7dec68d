"""Directories in transformers format that are not what they should be: refused in words, and the next load works."""

from __future__ import annotations

import io
import json
import os
import shutil
import struct
import sys
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


@pytest.mark.parametrize(
    ("named", "shown"), [(".", "here"), ("..", "scratch"), ("../..", ""), ("/", "the root directory")]
)
def test_a_directory_without_a_name_of_its_own_is_named_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, shown: str
) -> None:
    inside = tmp_path / "scratch" / "here"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    with pytest.raises(ModelError) as caught:
        find_facts(named)
    assert caught.value.message == f"{shown or tmp_path.name} is not a model directory: it holds no config.json."
    assert str(tmp_path) not in str(caught.value)


def test_a_model_in_the_current_directory_has_its_name(bad: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bad)
    assert find_facts(".").name == "bad"
    (bad / WEIGHTS).unlink()
    with pytest.raises(ModelError, match=r"^bad holds no weights"):
        find_facts(".")


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


def test_names_that_the_system_refuses(refused: Refused, tmp_path: Path) -> None:
    refused(Path("n" * 300), "File name too long")
    refused(Path("~nobody-of-that-name/x"), "cannot be read")
    (tmp_path / "loop").symlink_to("loop")
    refused(tmp_path / "loop", "no directory or file")


def test_a_large_file_is_not_read_to_see_that_it_is_no_model(tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(1 << 36)  # 64 GiB of nothing
    with pytest.raises(ModelError, match="not a GGUF file"):
        find_facts(str(large))


@pytest.mark.parametrize("closed", [".", "config.json", WEIGHTS])
def test_files_without_permission(bad: Path, closed: str) -> None:
    assert find_facts(str(bad)).present  # and all is imported before the rights are given up
    (bad / closed).chmod(0o000)
    before = os.geteuid()
    if before == 0:  # root may read anything: be nobody for a moment
        os.seteuid(65534)
    try:
        with pytest.raises(ModelError, match=r"Permission denied|not readable"):
            find_facts(str(bad))
    finally:
        os.seteuid(before)
        (bad / closed).chmod(0o700)


@pytest.mark.parametrize("value", [[5], [["x"]], {"a": 1}, ["A" * 100_000], "Llama", []])
def test_an_architecture_that_is_no_name_is_not_believed(bad: Path, value: Any) -> None:
    change_config(bad, architectures=value)
    assert load_model(str(bad), device="cpu").facts.architecture == "LlamaForCausalLM"


@pytest.mark.parametrize("value", ["somebody/kernels", "flash_attention_2", "eager"])
def test_the_lab_chooses_the_attention_kernel(bad: Path, value: str) -> None:
    change_config(bad, _attn_implementation=value, attn_implementation=value)
    assert load_model(str(bad), device="cpu").model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize(
    ("name", "entry", "match"),
    [
        ("\ud800", {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}, "a tensor called"),
        ("n" * 100_000, {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}, "a tensor called"),
        ("n" * 100_000, {}, "not complete"),
        ("x", {"dtype": ["F32"], "shape": [0], "data_offsets": [0, 0]}, "unknown dtype"),
        ("x", {"dtype": "X" * 100_000, "shape": [0], "data_offsets": [0, 0]}, "unknown dtype"),
        ("x", {"dtype": "F32", "shape": [10**400], "data_offsets": [0, 0]}, "of shape"),
    ],
)
def test_hostile_entries_of_a_header(refused: Refused, bad: Path, name: str, entry: Any, match: str) -> None:
    change_header(bad, lambda header: header.update({name: entry}))
    refused(bad, match)
    with pytest.raises(ModelError) as caught:
        find_facts(str(bad))
    assert len(str(caught.value)) < 1000


def test_a_layer_number_of_any_length(bad: Path) -> None:
    entry = {"dtype": "F32", "shape": [0, 0], "data_offsets": [0, 0]}
    change_header(bad, lambda header: header.update({f"layers.{'9' * 900}.self_attn.k_proj.weight": entry}))
    assert len(find_facts(str(bad)).layers) == 2
    change_header(bad, lambda header: header.update({f"layers.{'9' * 5000}.self_attn.k_proj.weight": entry}))
    with pytest.raises(ModelError, match="a tensor called"):
        find_facts(str(bad))


def test_an_index_with_a_name_that_no_file_can_have(refused: Refused, bad: Path) -> None:
    (bad / WEIGHTS).unlink()
    (bad / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": {"a": "x" * 100_000}}))
    refused(bad, "is missing")


def test_a_tokenizer_with_code_is_refused_without_a_question(
    bad: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """At a terminal transformers asks whether to run it; nobody may be led to say yes."""
    (bad / "tokenizer_config.json").write_text(
        json.dumps({"auto_map": {"AutoTokenizer": ["evil.T", None]}, "tokenizer_class": "Evil"})
    )
    (bad / "evil.py").write_text("print('RAN')\nclass T: pass\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(ModelError) as refused:
        load_model(str(bad), device="cpu")
    assert str(bad) not in str(refused.value)
    said = "".join(capfd.readouterr())
    assert "[y/N]" not in said
    assert "RAN" not in said
    assert sys.stdin.read() == "y\n", "nobody read the answer"


def test_end_tokens_that_are_no_numbers(refused: Refused, bad: Path) -> None:
    (bad / "generation_config.json").write_text(json.dumps({"eos_token_id": ["x"]}))
    refused(bad, "end tokens")
