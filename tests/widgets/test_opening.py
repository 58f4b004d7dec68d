"""How a page opens, and what its link brings back."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.experiments.kv_cache.params import KVCacheParams
from lab.settings import REPLAY
from widgets.linked import read_link, write_link
from widgets.opening import RECORDINGS, open_page

KV_CACHE = RECORDINGS / "kv_cache.safetensors"


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """No address and no `lab replay`."""
    monkeypatch.delenv(REPLAY, raising=False)
    monkeypatch.delenv("QUERY_STRING", raising=False)


def test_a_page_opens_with_its_packaged_recording_and_runs() -> None:
    opening = open_page("kv_cache", None, autorun=True)
    assert opening.recording is not None
    assert opening.recording.started.card.experiment == "kv_cache"
    assert (opening.trouble, opening.autorun, opening.replay) == (None, True, False)
    assert not open_page("kv_cache", None, autorun=False).autorun


def test_the_address_may_say_that_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUERY_STRING", "theme=dark&autorun=0")
    opening = open_page("kv_cache", None, autorun=True)
    assert (opening.autorun, opening.replay) == (False, False)
    monkeypatch.setenv("QUERY_STRING", "autorun=1")
    assert open_page("kv_cache", None, autorun=True).autorun


def test_a_replay_runs_nothing_and_another_page_shows_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REPLAY, str(KV_CACHE))
    for experiment in ("kv_cache", "lora"):
        opening = open_page(experiment, None, autorun=True)
        assert opening.recording is not None
        assert opening.recording.started.card.experiment == experiment
        assert (opening.autorun, opening.replay) == (False, True)


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"no recording")
    opening = open_page("kv_cache", broken, autorun=True)
    assert opening.recording is None
    assert opening.trouble is not None
    assert "broken.safetensors" in opening.trouble.message
    assert not opening.autorun


def test_a_link_comes_back_as_it_was_written() -> None:
    present = KVCacheParams().model_dump(mode="json")
    changed = {**present, "max_new_tokens": 7, "prompt": "12"}
    linked = read_link(write_link(changed, model="m", step=3, settings={"layer": 9}), KVCacheParams, present)
    assert (linked.params, linked.model, linked.step, linked.settings) == (changed, "m", 3, {"layer": 9})


def test_what_a_link_may_not_say_is_as_it_was() -> None:
    present = KVCacheParams().model_dump(mode="json")
    values = {"max_new_tokens": -1, "prompt": 12, "step": -2, "model": 5, "layer": "x"}
    linked = read_link(values, KVCacheParams, present)
    assert linked.params == {**present, "prompt": "12"}
    assert (linked.model, linked.step, linked.settings) == ("", None, {"layer": "x"})
