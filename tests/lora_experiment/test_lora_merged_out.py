"""A merged model written by a run: whole or not there, the base named, found again, and off the 4-bit grid."""

from __future__ import annotations

import errno
import json
import math
import shutil
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from experiment_runs import run_experiment
from lora_given import learn, made, on_disk, params, ran
from safetensors.torch import load_file

from lab.errors import BadInput, LabError, ModelError
from lab.events.lora import AdapterFacts, MergedModel
from lab.events.quantization import GridNote
from lab.events.words import WordToken
from lab.experiments.base import RunContext
from lab.experiments.lora.params import LoraParams
from lab.experiments.lora.places import MOST_MERGED
from lab.experiments.lora.run import make_runner
from lab.experiments.quantization.params import QuantizationParams
from lab.experiments.quantization.run import make_runner as make_quantization
from lab.lora.merge import MergedShell, merged_weight
from lab.models.at_hand import models_at_hand, off_grid, trained_ids
from lab.models.linear import out_in, set_weight
from lab.models.registry import load_model
from lab.models.shell import make_shell

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAB_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def gridded(tiny: Tiny) -> LoadedModel:
    """A tiny model whose matrices all lie on the grid of 4 bits, float minimum, groups of 32."""
    shared = tiny("llama")
    model = replace(shared, model=deepcopy(shared.model))
    dice = torch.Generator().manual_seed(0)
    for module in model.model.get_submodule("model.layers").modules():
        if isinstance(module, torch.nn.Linear):
            codes = torch.randint(16, out_in(module).shape, generator=dice)
            codes[:, ::32], codes[:, 1::32] = 0, 15  # each group has both ends, so that its step is 1/32 exactly
            set_weight(module, (codes - 8) / 32)
    return model


def test_a_trained_adapter_becomes_a_model_that_the_quantization_bench_is_offered(
    cache: Path, gridded: LoadedModel
) -> None:
    run = learn(gridded, merged_out="island-4", learning_rate=0.02)
    (written,) = run.of(MergedModel)
    out = cache / "trained" / "island-4"
    assert (written.model, written.name, written.base) == (str(out), "island-4", gridded.facts.id)
    assert written.bytes == (out / "model.safetensors").stat().st_size
    assert written.projections == ("q_proj", "v_proj")
    assert (written.matrices, written.others) == (4, 10)
    # it was on the grid, and is no longer
    assert written.checked > 0
    assert written.base_changed == 0.0
    assert written.merged_changed > 0.5
    assert run.proof.verdict == "equal"

    (offered,) = off_grid(models_at_hand(), "quantization")
    assert offered.id == written.model
    again = load_model(offered.id, dtype="float32", device="cpu")
    spoken = ran(again, adapter=on_disk(cache, made(again)))
    assert [t.token_id for t in spoken.of(WordToken) if t.variant == "dense"] == [
        t.token_id for t in run.of(WordToken) if t.variant == "merged"
    ]
    study = QuantizationParams.model_validate(
        {"task": "layer", "layers": [0], "projection": "q_proj", "group_size": "32", "calibration_tokens": 32}
    )
    notes = {}
    for name, model in (("base", gridded), ("merged", again)):
        (notes[name],) = run_experiment(make_quantization(), model, study).of(GridNote)
    assert notes["base"].changed == 0.0
    assert notes["base"].words
    assert notes["merged"].changed > 0.5
    # what was not adapted is still on it, and that is said
    assert "o_proj" in notes["merged"].words
    assert notes["merged"].words.endswith("Those of q_proj, v_proj lie on no such grid.")


def test_the_file_holds_base_plus_update_and_the_card_names_both(
    cache: Path, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.models.writing.PIECE_BYTES", 1000)  # every matrix in several pieces
    for kind, dtype, targets in (
        ("llama", "float32", ("q_proj", "down_proj")),
        ("gpt2", "float32", ("c_attn", "c_fc")),
        ("qwen2", "bfloat16", ("v_proj",)),
        ("llama", "bfloat16", ("lm_head", "o_proj")),
    ):
        model, name = tiny(kind, dtype=dtype), f"{kind}-{dtype}"
        adapter = made(model, targets=targets, name=name)
        run = ran(model, adapter=on_disk(tmp_path, adapter), merged_out=name, factor=0.5)
        out = cache / "trained" / name
        stored = load_file(out / "model.safetensors")
        for module in adapter.tensors:
            wanted = merged_weight(model.model.get_submodule(module), adapter, module, 0.5)
            found = stored[f"{module}.weight"]
            assert found.dtype == model.dtype
            assert torch.equal(found.t() if kind == "gpt2" else found, wanted)
        mine = model.model.state_dict()
        others = [key for key in stored if key.removesuffix(".weight") not in adapter.tensors]
        assert all(torch.equal(stored[key], mine[key]) for key in others)
        assert len(others) > 3
        again = load_model(str(out), dtype=dtype, device="cpu")
        ids = torch.tensor([[1, 2, 3, 4]])
        shell = MergedShell(make_shell(model.model))
        shell.merge(adapter, 0.5)
        with torch.inference_mode():
            assert torch.equal(again.model(ids).logits, shell.shell(ids).logits)
        card = (out / "README.md").read_text()
        assert adapter.name in card
        assert model.facts.id in card
        assert str(model.facts.weight_hash) in card
        assert "0.5 of its scale" in card
        assert ("no longer tied" in card) == ("lm_head" in targets)
        assert run.of(MergedModel)[0].matrices == len(adapter.tensors)


def test_rows_that_hold_no_whole_group_are_not_measured(cache: Path, tiny: Tiny, tmp_path: Path) -> None:
    del cache
    model = tiny("llama", hidden_size=48, intermediate_size=40)
    (written,) = ran(model, adapter=on_disk(tmp_path, made(model)), merged_out="odd").of(MergedModel)
    assert written.checked == 0
    assert math.isnan(written.base_changed)


def steps_until_writing(model: LoadedModel, **values: Any) -> Any:
    """A run that has begun to write, at its first pause there."""
    running = make_runner().run(RunContext(model=model), params(model, **values))
    for event in running:
        if getattr(event, "stage", "") == "writing the merged model" and event.done > 0:
            return running
    raise AssertionError("it never began to write")


def test_a_run_that_is_stopped_while_it_writes_leaves_nothing(
    cache: Path, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.models.writing.PIECE_BYTES", 1000)
    model = tiny("llama")
    given = on_disk(tmp_path, made(model))
    running = steps_until_writing(model, adapter=given, merged_out="half")
    assert not (cache / "trained" / "half").exists()
    with pytest.raises(BadInput, match="being written by another run"):
        ran(model, adapter=given, merged_out="half")  # which does not wait: it shares the thread with the first
    assert list((cache / "trained").iterdir())
    running.close()
    assert list((cache / "trained").iterdir()) == []
    assert trained_ids() == []
    assert ran(model, adapter=given, merged_out="half").of(MergedModel)


def test_a_full_disk_leaves_nothing(cache: Path, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama")
    given = on_disk(tmp_path, made(model))

    def full(descriptor: int) -> None:
        del descriptor
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("lab.models.writing.os.fsync", full)
        with pytest.raises(LabError, match=r"No space left on device\. Nothing of it was left"):
            ran(model, adapter=given, merged_out="much")
    assert list((cache / "trained").iterdir()) == []
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
        with pytest.raises(ModelError, match=r"much needs about .* MiB in trained of .*, but 1 MiB are free"):
            ran(model, adapter=given, merged_out="much")
    assert list((cache / "trained").iterdir()) == []


def refused(model: LoadedModel, **values: Any) -> str:
    with pytest.raises(BadInput) as caught:
        make_runner().prepare(model.facts, params(model, **values))
    assert caught.value.remedy
    return caught.value.message


def test_what_cannot_be_written_is_refused_before_the_run(cache: Path, tiny: Tiny, tmp_path: Path) -> None:
    model = tiny("llama")
    given = on_disk(tmp_path, made(model))
    assert "swap writes no merged model" in refused(model, adapter=given, task="swap", merged_out="x")
    assert "wrongly on purpose" in refused(model, adapter=given, merged_out="x", break_run="merged_twice")
    ran(model, adapter=given, merged_out="x")
    assert "There is a model 'x' already" in refused(model, adapter=given, merged_out="x")
    for number in range(MOST_MERGED - 1):
        folder = cache / "trained" / f"m{number}"
        folder.mkdir()
        (folder / "config.json").write_text("{}")
    assert "16 models were written here already" in refused(model, adapter=given, merged_out="y")
    for name in ("../up", "a/b", "", ".hidden"):
        bad = {"adapter": given, "merged_out": name}
        if name:
            with pytest.raises(ValueError, match="merged_out"):
                params(model, **bad)
        else:
            assert ran(model, **bad).of(MergedModel) == []


def test_what_was_kept_can_be_chosen_by_its_name(cache: Path, tiny: Tiny) -> None:
    del cache
    model = tiny("llama")

    def offered() -> list[list[str]]:
        fields = LoraParams.for_model(model.facts)["properties"]
        return [fields[name]["suggestions"] for name in ("adapter", "second")]

    assert offered() == [["packaged"]] * 2
    learn(model, save="second")
    learn(model, save="first", seed=1)
    assert offered() == [["packaged", "first", "second"]] * 2
    run = ran(model, task="swap", adapter="first", second="second")
    assert [facts.name for facts in run.of(AdapterFacts)] == ["first", "second"]


def test_a_merge_that_does_not_agree_is_not_written(
    cache: Path, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutation: a merge that adds twice the update. Its proof is red, and nothing of it stays."""
    from lab.lora import merge

    real = merge.merged_weight
    monkeypatch.setattr(merge, "merged_weight", lambda m, a, n, f=1.0: real(m, a, n, 2 * f))
    model = tiny("llama")
    run = ran(model, adapter=on_disk(tmp_path, made(model)), merged_out="wrong")
    assert run.proof.verdict == "different"
    assert run.of(MergedModel) == []
    assert run.of(AdapterFacts)
    assert list((cache / "trained").iterdir()) == []


def test_a_recording_of_such_a_run_is_no_stand_in_for_it(cache: Path, tiny_directory: Any, tmp_path: Path) -> None:
    from lab.backend.local import LocalBackend
    from lab.backend.protocol import RunRequest
    from lab.backend.store import RunStore

    model = str(tiny_directory("llama"))
    given = on_disk(tmp_path, made(load_model(model, device="cpu")))
    small = {"prompt": "the cache", "max_new_tokens": 2, "heldout_tokens": 32, "chat": False, "adapter": given}
    backend = LocalBackend(store=RunStore(tmp_path / "runs", 10**8))
    try:
        for _ in range(2):
            request = RunRequest(experiment="lora", model=model, device="cpu", params={**small, "merged_out": "again"})
            events = list(backend.run(request))
            assert [e for e in events if isinstance(e, MergedModel)], events[-1]
            assert json.loads((cache / "trained" / "again" / "config.json").read_text())["model_type"] == "llama"
            shutil.rmtree(cache / "trained" / "again")
    finally:
        backend.close()
