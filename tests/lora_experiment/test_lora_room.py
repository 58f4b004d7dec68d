"""Where adapter and merged model are to be kept: tried before anything is trained, with the size that they need."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from experiment_runs import Ran
from lora_given import LINES, learn, params

from lab import paths
from lab.backend.local import LocalBackend
from lab.backend.protocol import RunRequest
from lab.cli.run import run as run_command
from lab.errors import BadInput, LabError, ModelError
from lab.events import RunFailed
from lab.events.lora import AdapterFacts, MergedModel, TrainStep
from lab.experiments.base import RunContext
from lab.experiments.lora.params import LoraParams
from lab.experiments.lora.room import BESIDE, adapter_bytes
from lab.experiments.lora.run import make_runner
from lab.models.disk import ROOM_BYTES
from lab.models.writing import stored_once

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
KEPT = [("save", "adapters"), ("merged_out", "trained")]
LEARN: dict[str, Any] = {"task": "train", "learn": "lines", "lines": LINES, "steps": 1, "batch": 2, "rank": 2}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(paths.CACHE_VARIABLE, str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


@pytest.fixture
def llama(tiny: Tiny) -> LoadedModel:
    return tiny("llama")


@pytest.mark.parametrize(("option", "folder"), KEPT)
def test_a_file_in_the_place_of_the_folder_is_said_before_the_run(
    cache: Path, llama: LoadedModel, option: str, folder: str
) -> None:
    (cache / folder).write_text("mine")
    with pytest.raises(BadInput, match=f"{cache}/{folder} .*File exists") as told:
        make_runner().prepare(llama.facts, params(llama, **LEARN, **{option: "x"}))
    assert paths.CACHE_VARIABLE in told.value.remedy
    make_runner().prepare(llama.facts, params(llama, **LEARN))  # nothing is to be kept
    assert (cache / folder).read_text() == "mine"


@pytest.mark.parametrize(("option", "folder"), KEPT)
def test_a_folder_is_tried_and_not_only_asked(
    cache: Path, llama: LoadedModel, monkeypatch: pytest.MonkeyPatch, option: str, folder: str
) -> None:
    """Permissions say yes, the disk says no."""
    (cache / folder).mkdir()
    settings = params(llama, **LEARN, **{option: "x"})

    def refuse(path: Path, *args: Any, **options: Any) -> None:
        del args, options
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "mkdir", refuse)
        with pytest.raises(BadInput, match=f"{folder} .Read-only file system") as told:
            make_runner().prepare(llama.facts, settings)
    assert paths.CACHE_VARIABLE in told.value.remedy
    make_runner().prepare(llama.facts, settings)
    assert list((cache / folder).iterdir()) == []


def begun(model: LoadedModel, monkeypatch: pytest.MonkeyPatch, free: int, **values: Any) -> None:
    """The first slice of a run, where so many bytes are free."""
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
        running = make_runner().run(RunContext(model=model), params(model, **LEARN, **values))
        next(running)
        running.close()


def test_room_is_asked_for_before_the_first_slice(
    cache: Path, llama: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    del cache
    # q_proj 32 x 32 and v_proj 16 x 32, rank 2, two layers, 4 bytes
    adapter = 4 * 2 * (2 * 64 + 2 * 48)
    assert adapter_bytes(llama.model, params(llama, **LEARN)) == adapter
    merged = sum(tensor.nbytes for tensor in stored_once(llama.model).values())
    needs = {
        "save": ({"save": "x"}, adapter + BESIDE, "The adapter x needs about 1 MiB in adapters of the lab's cache"),
        "merged": ({"merged_out": "y"}, merged + ROOM_BYTES, "The merged model y needs about .* in trained of"),
        "both": (
            {"save": "x", "merged_out": "y"},
            adapter + BESIDE + merged + ROOM_BYTES,
            "The merged model y with the adapter x needs",
        ),
    }
    for values, needed, words in needs.values():
        begun(llama, monkeypatch, needed, **values)
        with pytest.raises(ModelError, match=words) as told:
            begun(llama, monkeypatch, needed - 1, **values)
        assert told.value.exit_code == 2
        assert told.value.remedy == paths.NO_ROOM
    begun(llama, monkeypatch, 0)


def test_the_size_that_is_asked_for_is_that_of_the_adapter(cache: Path, llama: LoadedModel) -> None:
    for targets in ("q_v", "attention", "mlp", "all"):
        run = learn(llama, steps=1, rank=3, targets=targets, save=f"x-{targets}")
        wanted = adapter_bytes(llama.model, params(llama, **{**LEARN, "rank": 3}, targets=targets))
        assert run.of(AdapterFacts)[0].bytes == wanted
        size = sum(path.stat().st_size for path in (cache / "adapters" / f"x-{targets}").iterdir())
        assert wanted < size < wanted + BESIDE


@pytest.mark.parametrize(("option", "folder"), KEPT)
def test_a_disk_that_fills_while_it_trains_fails_the_run(
    cache: Path, llama: LoadedModel, monkeypatch: pytest.MonkeyPatch, option: str, folder: str
) -> None:
    """What was asked for was fine: no bad input, and no other directory is asked for where a name was given."""

    def full(descriptor: int) -> None:
        del descriptor
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("lab.models.writing.os.fsync", full)
    with pytest.raises(LabError, match=r"x cannot be written: No space left on device\. Nothing") as told:
        learn(llama, **{option: "x"}, steps=1)
    assert not isinstance(told.value, BadInput)
    assert (told.value.exit_code, told.value.remedy) == (1, paths.NO_ROOM)
    assert list((cache / folder).iterdir()) == []


def test_the_command_says_so_and_ends_with_2_or_1(
    cache: Path, tiny_directory: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {**LEARN, "prompt": "the cache", "max_new_tokens": 2, "chat": False, "save": "x"}
    request = RunRequest(experiment="lora", params=small, model=str(tiny_directory("llama")), device="cpu")
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
        assert run_command(request, "local", None, progress=False) == 2
    out, err = capsys.readouterr()
    assert "error: The adapter x needs about 1 MiB in adapters of the lab's cache directory, but 0 MiB are free." in err
    assert TrainStep.event not in out
    with monkeypatch.context() as patched:
        patched.setattr("lab.lora.peft_files.save_file", _no_space)
        assert run_command(request, "local", None, progress=False) == 1
    out, err = capsys.readouterr()
    assert "error: x cannot be written: No space left on device." in err
    assert paths.CACHE_VARIABLE in err
    assert TrainStep.event in out
    assert run_command(request, "local", None, progress=False) == 0
    assert [path.name for path in paths.adapters_dir().iterdir()] == ["x"]
    del cache


def _no_space(*args: Any, **options: Any) -> None:
    del args, options
    raise OSError(errno.ENOSPC, "No space left on device")


def ask(run: Ran) -> dict[str, Any]:
    runner = make_runner()
    return runner.inspect(run.context, run.context.model.facts, "save", runner.inspections["save"](name="x"))


def test_a_question_to_keep_it_has_the_fitting_remedy_too(
    cache: Path, llama: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    del cache
    run = learn(llama, steps=1)
    with monkeypatch.context() as patched:
        patched.setattr("lab.lora.peft_files.save_file", _no_space)
        with pytest.raises(LabError, match="x cannot be written") as told:
            ask(run)
    assert told.value.remedy == paths.NO_ROOM
    assert ask(run)["words"].startswith("Kept as x, as it stood after step 1, held-out loss ")


def test_over_the_backend_the_run_fails_with_the_reason(
    cache: Path, tiny_directory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    del cache
    small = {**LEARN, "prompt": "the cache", "max_new_tokens": 2, "chat": False, "merged_out": "x"}
    request = RunRequest(experiment="lora", params=small, model=str(tiny_directory("llama")), device="cpu")
    backend = LocalBackend()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
            events = list(backend.run(request))
        assert isinstance(events[-1], RunFailed)
        assert events[-1].code == "model"
        assert "The merged model x needs about" in events[-1].message
        assert [e for e in events if isinstance(e, TrainStep)] == []
        assert [e for e in backend.run(request) if isinstance(e, MergedModel)]
    finally:
        backend.close()


@pytest.mark.parametrize("option", ["save", "merged_out"])
@pytest.mark.parametrize("name", ["../up", ".hidden", "a b", "größe", "a/b", "-x", "x\n"])
def test_a_name_that_cannot_be_is_refused_with_the_characters_there_may_be(option: str, name: str) -> None:
    from lab.backend.validation import validated

    with pytest.raises(BadInput) as told:
        validated(LoraParams, {"task": "train", option: name})
    assert told.value.message.startswith(f"{option} is {name!r}: a name has letters, digits, - and _ only")
    with pytest.raises(BadInput, match="a name has letters"):
        validated(make_runner().inspections["save"], {"name": name})
    with pytest.raises(BadInput, match="at least 1"):
        validated(make_runner().inspections["save"], {"name": ""})
