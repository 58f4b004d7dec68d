"""Where files are kept, and the words when they cannot be."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from lab import paths
from lab.errors import BadInput


def test_the_variable_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.CACHE_VARIABLE, str(tmp_path / "here"))
    assert paths.cache_dir() == tmp_path / "here"
    assert paths.models_dir().is_dir()
    assert paths.runs_dir().is_dir()


def test_else_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(paths.CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    assert paths.cache_location() == tmp_path / "inference-lab"
    assert not paths.cache_location().exists()  # asking creates nothing


def test_runtime_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.CACHE_VARIABLE, str(tmp_path))
    (tmp_path / "runtime").mkdir(mode=0o755)
    assert stat.S_IMODE(paths.runtime_dir().stat().st_mode) == 0o700


def test_a_file_in_the_way_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(paths.CACHE_VARIABLE, str(tmp_path / "file" / "cache"))
    with pytest.raises(BadInput, match=r"cannot write to its cache directory .*file/cache") as caught:
        paths.cache_dir()
    assert paths.CACHE_VARIABLE in caught.value.remedy


def test_a_read_only_place_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # root may write anywhere except where the kernel itself says no
    place = Path("/proc/lab") if os.geteuid() == 0 else tmp_path / "closed"
    if place.parent != Path("/proc"):
        place.mkdir(mode=0o500)
    monkeypatch.setenv(paths.CACHE_VARIABLE, str(place))
    with pytest.raises(BadInput, match="cannot write"):
        paths.cache_dir()
