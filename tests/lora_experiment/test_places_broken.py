"""Places for adapters that are not what they should be: said in words, at once, without waiting for another's lock."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest
import torch

from lab.errors import BadInput, ModelError
from lab.experiments.lora.places import adapter_path
from lab.lora.adapter import Adapter, BaseFacts, LoraConfig
from lab.lora.peft_files import read_adapter, write_adapter
from lab.paths import adapters_dir

NAME = "model.layers.0.self_attn.q_proj"


def adapter(side: int, value: float) -> Adapter:
    return Adapter(
        "made",
        LoraConfig(rank=1, alpha=1.0, targets=("q_proj",)),
        {NAME: (torch.full((1, side), value), torch.full((side, 1), value))},
        BaseFacts("", {NAME: (side, side)}, None, ""),
    )


def test_a_user_that_does_not_exist_is_a_name_like_any_other() -> None:
    assert adapter_path("~nobody-of-that-name/x") == Path("~nobody-of-that-name/x")


def test_a_file_in_the_place_of_kept_adapters_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_CACHE_DIR", str(tmp_path))
    (tmp_path / "adapters").write_text("no folder")
    with pytest.raises(BadInput, match="adapters"):
        adapters_dir()


def test_an_adapter_that_another_process_writes_is_refused_at_once(tmp_path: Path) -> None:
    with (tmp_path / ".mine.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(BadInput, match="mine is being written"):
            write_adapter(adapter(8, 1.0), tmp_path / "mine")
    assert write_adapter(adapter(8, 1.0), tmp_path / "mine").is_dir()
    assert [path.name for path in tmp_path.iterdir() if path.name != "mine"] in ([], [".mine.lock"])


def test_factors_too_large_are_refused_without_their_product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = write_adapter(adapter(64, 1e25), tmp_path / "huge")

    def no_product(*_: object, **__: object) -> None:
        raise AssertionError("the product was formed")

    monkeypatch.setattr(Adapter, "delta", no_product)
    with pytest.raises(ModelError, match="factors are too large"):
        read_adapter(written)
    assert read_adapter(write_adapter(adapter(64, 1e3), tmp_path / "large")).tensors
