"""Adapters as files: there and back, what peft wrote, and everything that is refused."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from golden.make_peft import ALPHAS, IN, OUT, RANKS, WRITTEN
from lora_files import Q, settings, tensors, written
from lora_made import GPT2, exact, logits, trained
from safetensors.torch import load_file, save_file

from lab.errors import BadInput, ModelError
from lab.lora.adapter import Adapter, Factors, effectless, misfit
from lab.lora.attach import Attached
from lab.lora.peft_config import CONFIG, MAX_CONFIG_BYTES, peft_config
from lab.lora.peft_files import WEIGHTS, read_adapter, write_adapter
from lab.models.loading import LoadedModel
from lab.models.shell import make_shell

Tiny = Callable[..., LoadedModel]


@pytest.mark.parametrize("rslora", [False, True])
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_there_and_back(tiny: Tiny, tmp_path: Path, kind: str, rslora: bool) -> None:
    model = tiny(kind).model
    made = trained(model, GPT2 if kind == "gpt2" else ("q_proj", "down_proj"), alpha=7.5, rslora=rslora, name="Größe 1")
    made = replace(made, base=replace(made.base, model_id="somewhere/model", weight_hash="ab" * 32))
    first, second, *_ = made.tensors
    a, b = made.tensors[first]
    mixed = replace(made, tensors={**made.tensors, first: Factors(a[:2], b[:, :2])}, alphas={second: 3.0})
    for adapter in (made, mixed):
        out = write_adapter(adapter, tmp_path / str(len(adapter.alphas)), card="# A card\n")
        back = read_adapter(out)
        assert (back.name, back.config, dict(back.alphas)) == (adapter.name, adapter.config, dict(adapter.alphas))
        assert back.base == adapter.base
        assert back.tensors.keys() == adapter.tensors.keys()
        for name, pair in adapter.tensors.items():
            assert all(torch.equal(left, right) for left, right in zip(back.tensors[name], pair, strict=True))
            assert back.scale(name) == adapter.scale(name)
        with Attached(make_shell(model), [adapter]).using(adapter.name) as shell:
            wanted = logits(shell)
        with Attached(make_shell(model), [back]).using(back.name) as shell:
            assert torch.equal(logits(shell), wanted)
        assert sorted(path.name for path in out.iterdir()) == ["README.md", CONFIG, WEIGHTS]


def from_peft() -> Adapter:
    return read_adapter(WRITTEN)


def test_a_directory_that_peft_wrote() -> None:
    found = from_peft()
    assert {name: pair.a.shape[0] for name, pair in found.tensors.items()} == RANKS
    assert {name: found.scale(name) for name in found.tensors} == {n: ALPHAS[n] / RANKS[n] for n in RANKS}
    assert torch.equal(found.tensors["first"].a, exact(3, IN, 10))
    assert torch.equal(found.tensors["second"].b, exact(IN, 2, 21))
    assert found.base.shapes == {"first": (OUT, IN), "second": (IN, OUT)}
    assert found.config.targets == ("first", "second")
    assert found.base.vocabulary is None
    assert found.name == "from_peft"


@pytest.mark.parametrize("mutation", ["no patterns", "swapped"])
def test_a_usual_mistake_is_told_from_peft_s(mutation: str) -> None:
    found = from_peft()
    pair = found.tensors["first"]
    if mutation == "no patterns":
        assert replace(found, alphas={}).scale("first") != ALPHAS["first"] / RANKS["first"]
    else:
        assert pair.a.t().shape != exact(3, IN, 10).shape


def test_the_names_and_settings_are_peft_s(tiny: Tiny, tmp_path: Path) -> None:
    out = written(tiny, tmp_path / "a")
    keys = load_file(out / WEIGHTS).keys()
    assert keys == {f"base_model.model.model.layers.{i}.self_attn.q_proj.lora_{x}.weight" for i in (0, 1) for x in "AB"}
    theirs = json.loads((WRITTEN / CONFIG).read_text(encoding="utf-8"))
    ours = json.loads((out / CONFIG).read_text(encoding="utf-8"))
    assert ours.keys() <= theirs.keys()
    assert ours == peft_config(read_adapter(out))
    for key in ("r", "lora_alpha", "use_rslora", "fan_in_fan_out"):
        assert type(ours[key]) is type(theirs[key])


def test_half_precision_is_widened(tiny: Tiny, tmp_path: Path) -> None:
    out = written(tiny, tmp_path / "a")
    for dtype in (torch.bfloat16, torch.float16):
        tensors(out, lambda held, dtype=dtype: held.update({n: t.to(dtype) for n, t in held.items()}))  # type: ignore[misc]
        pair = read_adapter(out).tensors[Q]
        assert pair.a.dtype == pair.b.dtype == torch.float32


KINDS = {
    "IA3": {"peft_type": "IA3"},
    "ADALORA": {"peft_type": "ADALORA"},
    "PROMPT_TUNING": {"peft_type": "PROMPT_TUNING"},
    "no type": {"peft_type": None},
    "DoRA": {"use_dora": True},
    "modules_to_save": {"modules_to_save": ["lm_head"]},
    "biases": {"bias": "lora_only"},
    "lora_bias": {"lora_bias": True},
    "trainable_token_indices": {"trainable_token_indices": [1, 2]},
    "target_parameters": {"target_parameters": ["mlp.experts.gate_up_proj"]},
    "layer_replication": {"layer_replication": [[0, 2]]},
    "alora_invocation_tokens": {"alora_invocation_tokens": [7]},
    "QALoRA": {"use_qalora": True},
    "pissa": {"init_lora_weights": "pissa_niter_16"},
    "olora": {"init_lora_weights": "olora"},
    "LoftQ": {"loftq_config": {"loftq_bits": 4}},
    "SEQ_CLS": {"task_type": "SEQ_CLS"},
    "from_the_future": {"from_the_future": {"x": 1}},
    "rank '8'": {"r": "8"},
    "rank 0": {"r": 0},
    "Alpha nan": {"lora_alpha": float("nan")},
    "use_rslora": {"use_rslora": "yes"},
    "target_modules": {"target_modules": [1]},
    "base_model_name_or_path": {"base_model_name_or_path": ["x"]},
    "only module names": {"alpha_pattern": {"(a+)+b": 3}},
    "no regular expressions": {"alpha_pattern": {r"layers\.\d\.self_attn\.q_proj": 80}},
    r"pattern 'q\\\\wproj'": {"rank_pattern": {r"q\wproj": 4}},
    r"pattern '\.\*q_proj'": {"alpha_pattern": {".*q_proj": 80}},
    r"pattern 'q_proj\\\\'": {"alpha_pattern": {"q_proj\\": 80}},
    "alpha_pattern has 'k_proj', which fits none": {"alpha_pattern": {"q_proj": 80, "k_proj": 3}},
    "rank_pattern has 'proj', which fits none": {"rank_pattern": {"proj": 4}},
    r"rank_pattern has '\^q_proj', which fits none": {"rank_pattern": {"^q_proj": 4}},
    "alpha_pattern has 1,001 names": {"alpha_pattern": {f"x{i}": 1 for i in range(1001)}},
    "target_modules has 10,001 names": {"target_modules": [f"x{i}" for i in range(10_001)]},
    "Alpha 1000": {"lora_alpha": 10**400},
    "Alpha 2000000": {"alpha_pattern": {"q_proj": 2_000_000}},
    "rank_pattern": {"rank_pattern": ["q_proj"]},
    "rank 99999": {"rank_pattern": {"q_proj": 99_999}},
    "the target 'v_proj'": {"target_modules": ["q_proj", "v_proj"]},
    "config says rank 8": {"r": 8},
    "and its config says rank 3": {"rank_pattern": {"q_proj": 3}},
    r"r is 1\.0; a rank has no point": {"r": 1.0},
    r"rank_pattern of 'q_proj' is 3\.0": {"rank_pattern": {"q_proj": 3.0}},
    r"rank 1e\+300": {"r": 1e300},
}
WORDS = {"no type": "None, no plain LoRA", "rank 99999": "99999", "rank_pattern": "rank_pattern is", "rank 0": "rank 0"}


@pytest.mark.parametrize("word", KINDS)
def test_other_kinds_and_wrong_settings_are_refused_by_name(tiny: Tiny, tmp_path: Path, word: str) -> None:
    out = settings(written(tiny, tmp_path / "a"), **KINDS[word])
    with pytest.raises(ModelError, match=WORDS.get(word, word)) as told:
        read_adapter(out)
    assert told.value.remedy
    assert str(tmp_path) not in told.value.message


def test_harmless_settings_are_taken(tiny: Tiny, tmp_path: Path) -> None:
    out = settings(
        written(tiny, tmp_path / "a"),
        init_lora_weights="gaussian",
        lora_dropout=0.1,
        auto_mapping={"base_model_class": "X", "parent_library": "os"},
        layers_to_transform=[0, 1],
        target_modules=r".*\.q_proj",
        from_the_future=None,
        revision="main",
    )
    assert read_adapter(out).config.targets == ("q_proj",)


FOREIGN = {
    "DoRA": "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector",
    "trained an embedding": "base_model.model.model.embed_tokens.lora_embedding_A",
    "trained biases": f"base_model.model.{Q}.lora_B.bias",
    "brings the embedding": "base_model.model.model.embed_tokens.weight",
    "AdaLoRA": f"base_model.model.{Q}.lora_E",
    "no factor of plain LoRA": f"base_model.model.{Q}.weight",
    "'q_proj.lora_A.weight' that is no factor": "q_proj.lora_A.weight",
    "lacks one of the factors": "base_model.model.model.layers.9.x.lora_A.weight",
}


@pytest.mark.parametrize("word", FOREIGN)
def test_other_tensors_are_refused_by_name(tiny: Tiny, tmp_path: Path, word: str) -> None:
    out = tensors(written(tiny, tmp_path / "a"), lambda held: held.update({FOREIGN[word]: torch.ones(4, 4)}))
    with pytest.raises(ModelError, match=word):
        read_adapter(out)


CHANGES: dict[str, torch.Tensor] = {
    "I32 of shape": torch.ones(4, 32, dtype=torch.int32),
    r"F32 of shape \[128\]": torch.ones(128),
    r"shape \[0, 32\]": torch.ones(0, 32),
    "config says rank 4": torch.ones(5, 32),
    "not finite": torch.full((4, 32), float("nan")),
}


@pytest.mark.parametrize("word", CHANGES)
def test_wrong_factors_are_refused(tiny: Tiny, tmp_path: Path, word: str) -> None:
    name = f"base_model.model.{Q}.lora_A.weight"
    out = tensors(written(tiny, tmp_path / "a"), lambda held: held.update({name: CHANGES[word]}))
    with pytest.raises(ModelError, match=word):
        read_adapter(out)


def test_no_tensors_adapt_nothing(tiny: Tiny, tmp_path: Path) -> None:
    out = tensors(written(tiny, tmp_path / "a"), lambda held: held.clear())
    with pytest.raises(ModelError, match="adapts nothing"):
        read_adapter(out)


def header(body: object, data: bytes = b"", length: int | None = None) -> bytes:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


HOSTILE = {
    "empty": b"",
    "length": header({}, length=2**62),
    "no json": header(b"{]"),
    "deep": header(b"[" * 100_000),
    "list": header([1]),
    "offsets": header({"a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 10**12]}}, b"0" * 16),
    "overflow": header({"a": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 16]}}, b"0" * 16),
    "negative": header({"a": {"dtype": "F32", "shape": [-2, -2], "data_offsets": [0, 16]}}, b"0" * 16),
    "overlap": header({n: {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]} for n in "ab"}, b"0" * 16),
    "pickle": b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00" + b"cos\nsystem\n" * 9,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_headers_are_refused(tiny: Tiny, tmp_path: Path, kind: str) -> None:
    out = written(tiny, tmp_path / "a")
    (out / WEIGHTS).write_bytes(HOSTILE[kind])
    with pytest.raises(ModelError, match="damaged"):
        read_adapter(out)


def test_a_file_cut_anywhere_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    out = written(tiny, tmp_path / "a")
    whole = (out / WEIGHTS).read_bytes()
    for length in (0, 7, 8, 100, len(whole) // 2, len(whole) - 1):
        (out / WEIGHTS).write_bytes(whole[:length])
        with pytest.raises(ModelError):
            read_adapter(out)
    (out / WEIGHTS).write_bytes(whole)
    assert read_adapter(out).tensors


def test_pickle_is_refused_by_name(tiny: Tiny, tmp_path: Path) -> None:
    out = written(tiny, tmp_path / "a")
    (out / WEIGHTS).rename(out / "adapter_model.bin")
    with pytest.raises(ModelError, match=r"only as pickle \('adapter_model\.bin'\)"):
        read_adapter(out)
    (out / "adapter_model.bin").unlink()
    with pytest.raises(ModelError, match=f"holds no {WEIGHTS}"):
        read_adapter(out)


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (b"", "not readable JSON"),
        (b"[" * 9000, "not readable JSON"),
        (b"[]", "no object"),
        (b"\xff\xfe", "not readable"),
    ],
)
def test_broken_configs_are_refused(tiny: Tiny, tmp_path: Path, raw: bytes, word: str) -> None:
    out = written(tiny, tmp_path / "a")
    (out / CONFIG).write_bytes(raw)
    with pytest.raises(ModelError, match=word.replace("no object", "not an object")):
        read_adapter(out)


def test_a_byte_order_mark_is_read_over(tiny: Tiny, tmp_path: Path) -> None:
    out = written(tiny, tmp_path / "a")
    wanted = read_adapter(out).config
    (out / CONFIG).write_bytes(b"\xef\xbb\xbf" + (out / CONFIG).read_bytes())
    assert read_adapter(out).config == wanted


def test_a_rank_with_a_point_is_told_what_to_write(tiny: Tiny, tmp_path: Path) -> None:
    out = settings(written(tiny, tmp_path / "a"), r=4.0)
    with pytest.raises(ModelError, match=r"r is 4\.0") as told:
        read_adapter(out)
    assert told.value.remedy == "Write 4 in its place."
    assert read_adapter(settings(out, r=4)).config.rank == 4


def test_a_folder_s_name_cannot_drive_a_terminal(tiny: Tiny, tmp_path: Path) -> None:
    out = written(tiny, tmp_path / "a\x1b[31m\r\u202eb")
    held = load_file(out / WEIGHTS)
    save_file(held, str(out / WEIGHTS), metadata={"format": "pt"})
    assert read_adapter(out).name == "a\\x1b[31m\\r\\u202eb"
    for change in ({"peft_type": "IA3"}, {"r": 0}, {"r": 8}, {"use_dora": True}):
        with pytest.raises(ModelError) as told:
            read_adapter(settings(out, **{"peft_type": "LORA", "r": 4, "use_dora": False, **change}))
        assert "x1b[31m" in told.value.message
        assert told.value.message.isprintable()
    (out / WEIGHTS).rename(out / "\x1b.bin")
    settings(out, r=4, use_dora=False)
    with pytest.raises(ModelError, match="only as pickle") as told:
        read_adapter(out)
    assert told.value.message.isprintable()


def test_a_large_or_a_missing_config_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    out = written(tiny, tmp_path / "a")
    (out / CONFIG).write_bytes(b" " * (MAX_CONFIG_BYTES + 1))
    with pytest.raises(ModelError, match="more than 1 MiB"):
        read_adapter(out)
    (out / CONFIG).unlink()
    with pytest.raises(ModelError, match="holds no adapter_config"):
        read_adapter(out)
    with pytest.raises(ModelError, match="holds no adapter_config"):
        read_adapter(tmp_path / "nowhere")


def test_what_a_foreign_file_says_of_itself_is_not_believed(tiny: Tiny, tmp_path: Path) -> None:
    out = written(tiny, tmp_path / "a")
    held = load_file(out / WEIGHTS)
    for told in (
        "[" * 9000,
        "1",
        '{"name": 5, "vocabulary": "x", "weight_hash": "zz", "targets": [3]}',
        '{"name": "a\\nb"}',
    ):
        save_file(held, str(out / WEIGHTS), metadata={"format": "pt", "lab": told})
        found = read_adapter(out)
        assert (found.name, found.base.vocabulary, found.base.weight_hash) == ("a", None, "")


def test_a_wrong_base_is_found_after_reading(tiny: Tiny, tmp_path: Path) -> None:
    found = read_adapter(written(tiny, tmp_path / "a"))
    assert misfit(found, tiny().model) == ""
    assert "are not in GPT2LMHeadModel" in effectless(found, tiny("gpt2").model)
    assert "64 x 64, its update 32 x 32" in effectless(found, tiny("llama", hidden_size=64).model)
    assert "vocabulary of 320, and the model has 400" in effectless(found, tiny("llama", vocab_size=400).model)


def test_nothing_is_written_over(tiny: Tiny, tmp_path: Path) -> None:
    out = written(tiny, tmp_path / "a")
    before = (out / WEIGHTS).read_bytes()
    with pytest.raises(BadInput, match="exists already"):
        written(tiny, out)
    with pytest.raises(BadInput, match="is no directory"):
        written(tiny, tmp_path / "no" / "a")
    assert (out / WEIGHTS).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == ["a"]
