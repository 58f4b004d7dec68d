"""A damaged, foreign or hostile recording is refused in words, whatever is wrong with it."""

from __future__ import annotations

import contextlib
import json
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.errors import RecordingError
from lab.events import ArrayData, Recording, RunCancelled, RunFinished, decode_line, encode_line, recover_spool
from lab.events.kv_cache import AttentionRead
from lab.events.recording import FORMAT, VERSION, Inspection

from .test_roundtrip import started

META = {"format": FORMAT, "version": str(VERSION)}
READ = AttentionRead(index=0, layers=(0,), weights=ArrayData.of([[[0.5, 0.5]]], "float16"), positions=2, bin_size=1)
WHOLE = Recording((started(), READ, RunFinished()), (Inspection(name="n", params={"a": 1}, answer={"b": [1.5]}),))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "run.safetensors"
    WHOLE.save(path)
    return path.read_bytes()


def load(folder: Path, data: bytes) -> Recording:
    path = folder / "run.safetensors"
    path.write_bytes(data)
    return Recording.load(path)


def refused(folder: Path, data: bytes, words: str | None = None) -> None:
    with pytest.raises(RecordingError, match=words) as error:
        load(folder, data)
    assert error.value.message
    assert error.value.remedy
    assert str(folder) not in str(error.value)


def test_the_undamaged_file_is_read(whole: bytes, tmp_path: Path) -> None:
    assert load(tmp_path, whole) == WHOLE


@given(cut=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_truncated_file_is_refused(whole: bytes, tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    refused(tmp_path_factory.mktemp("t"), whole[: cut % len(whole)])


@given(position=st.integers(0, 10**6), value=st.integers(0, 255))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_changed_byte_is_refused_or_read_but_never_anything_else(
    whole: bytes, tmp_path_factory: pytest.TempPathFactory, position: int, value: int
) -> None:
    position %= len(whole)
    changed = whole[:position] + bytes([value]) + whole[position + 1 :]
    with contextlib.suppress(RecordingError):  # anything else fails the test
        load(tmp_path_factory.mktemp("c"), changed)


@given(st.binary(max_size=300))
@settings(max_examples=100, deadline=None)
def test_noise_is_refused(tmp_path_factory: pytest.TempPathFactory, noise: bytes) -> None:
    refused(tmp_path_factory.mktemp("n"), noise)


def packed(tensors: dict[str, Any], metadata: dict[str, str] | None = None) -> bytes:
    return safetensors.numpy.save(tensors, META if metadata is None else metadata)


def as_tensor(*bodies: Any) -> np.ndarray[Any, Any]:
    lines = [body if isinstance(body, str) else json.dumps(body) for body in bodies]
    return np.frombuffer("\n".join(lines).encode(), dtype=np.uint8)


START, END = encode_line(started()).strip(), encode_line(RunCancelled()).strip()
NONE = np.zeros(0, np.uint8)


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ((), "begins with run_started"),
        ((END,), "begins with run_started"),
        ((START,), "ends with exactly one final event"),
        ((START, END, END), "exactly one final event"),
        ((START, "{", END), "damaged"),
        ((START, "[]", END), "not an event"),
        ((START, "null", END), "not an event"),
        ((START, {"event": 3}, END), "not an event"),
        ((START, {"event": "from_the_future"}, END), "newer version"),
        ((START, {"event": "progress", "stage": 3, "done": 1, "total": 1}, END), "damaged at 'stage'"),
        ((START, {"event": "progress"}, END), "damaged at 'stage'"),
        ((START, '{"event": "progress", "stage": "s", "done": NaN, "total": 1}', END), "NaN is not JSON"),
        ((START, "[" * 100_000, END), "damaged"),
        ((START, '{"event": "proof", "detail": ' + "[" * 900 + "]" * 900 + "}", END), "nested too deeply|damaged"),
        ((START, {"event": "attention_read", "weights": {"$tensor": "missing"}}, END), "lacks its array 'missing'"),
        ((START, {"event": "attention_read", "weights": {"$tensor": ["x"]}}, END), "lacks its array"),
        ((START, {"event": "attention_read", "weights": {"$tensor": "doubles"}}, END), "float64"),
        ((START, {"event": "attention_read", "weights": 3}, END), "damaged at"),
    ],
)
def test_events_that_are_damaged_are_refused(tmp_path: Path, events: tuple[Any, ...], words: str) -> None:
    tensors = {"events": as_tensor(*events), "inspections": NONE, "doubles": np.zeros(2)}
    refused(tmp_path, packed(tensors), words)


@pytest.mark.parametrize(
    ("shape", "dtype", "base64"),
    [
        ([10**30], "float32", ""),
        ([-1], "float32", ""),
        ([2], "float32", "AAAA"),
        ([1], "float64", "AAAAAAAAAAA="),
        ([1], "object", "AAAA"),
        ([1], ["float32"], "AAAA"),
        ([1.0], "uint8", "AA=="),
        ([True], "uint8", "AA=="),
        ("1", "uint8", "AA=="),
        (1, "uint8", "AA=="),
        (None, "uint8", "AA=="),
        ([1], "uint8", "not base64!"),
        ([1], "uint8", "é"),
        ([1], "uint8", 7),
    ],
)
def test_an_array_that_lies_is_refused(shape: Any, dtype: Any, base64: Any) -> None:
    weights = {"dtype": dtype, "shape": shape, "base64": base64}
    line = {"event": "attention_read", "index": 0, "layers": [], "weights": weights, "positions": 1, "bin_size": 1}
    with pytest.raises(RecordingError, match="damaged at 'weights'"):
        decode_line(json.dumps(line))


WRONG_NAME = '{"name": 3, "params": {}, "answer": {}}'
WRONG_PARAMS = '{"name": "n", "params": [], "answer": {}}'


@pytest.mark.parametrize("asked", ["{", "[]", "3", '{"name": "n"}', WRONG_NAME, WRONG_PARAMS])
def test_inspections_that_are_damaged_are_refused(tmp_path: Path, asked: str) -> None:
    refused(tmp_path, packed({"events": as_tensor(START, END), "inspections": as_tensor(asked)}), "inspections")


def test_tensors_of_the_wrong_kind_are_refused(tmp_path: Path) -> None:
    refused(tmp_path, packed({"inspections": NONE}), "'events' are missing")
    refused(tmp_path, packed({"events": as_tensor(START, END)}), "'inspections' are missing")
    refused(
        tmp_path, packed({"events": np.zeros((2, 2), np.uint8), "inspections": NONE}), "'events' are missing or damaged"
    )
    refused(
        tmp_path, packed({"events": np.zeros(2, np.float32), "inspections": NONE}), "'events' are missing or damaged"
    )


@pytest.mark.parametrize("version", ["2", "0", "-1", "", "one", "1.0", "9" * 5000])
def test_a_newer_or_strange_version_is_refused(tmp_path: Path, version: str) -> None:
    tensors = {"events": as_tensor(START, END), "inspections": NONE}
    refused(tmp_path, packed(tensors, {"format": FORMAT, "version": version}), "version|damaged")


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    refused(tmp_path, packed({"weight": np.zeros(3, np.float32)}, {"format": "pt"}), "not a lab recording")
    refused(tmp_path, packed({"weight": np.zeros(3, np.float32)}, {}), "not a lab recording")
    refused(tmp_path, struct.pack("<Q", 2**62) + b"{}")
    header = json.dumps(
        {"events": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}, "__metadata__": META}
    ).encode()
    refused(tmp_path, struct.pack("<Q", len(header)) + header + b"\0\0\0\0")


def test_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "went off",))

    refused(tmp_path, pickle.dumps(Bomb()))
    assert not (tmp_path / "went off").exists()


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.safetensors"
    with path.open("wb") as file:
        file.truncate(600 * 1024 * 1024)  # sparse: takes no space
    with pytest.raises(RecordingError, match="629,145,600 bytes"):
        Recording.load(path)


def test_paths_that_hold_no_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="No recording at"):
        Recording.load(tmp_path / "nothing")
    with pytest.raises(RecordingError):
        Recording.load(tmp_path)
    with pytest.raises(RecordingError, match="No spool at"):
        recover_spool(tmp_path / "nothing")
    (tmp_path / "empty").touch()
    with pytest.raises(RecordingError, match="no events"):
        recover_spool(tmp_path / "empty")


def test_a_failed_write_leaves_the_old_file_and_no_rest(tmp_path: Path) -> None:
    folder = tmp_path / "folder.safetensors"
    folder.mkdir()
    with pytest.raises(RecordingError, match="Cannot write"):
        WHOLE.save(folder)
    assert [p.name for p in tmp_path.iterdir()] == ["folder.safetensors"]
    with pytest.raises(RecordingError, match="Cannot write"):
        WHOLE.save(tmp_path / "no" / "run.safetensors")


def test_a_name_too_long_for_a_file_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="File name too long"):
        WHOLE.save(tmp_path / ("n" * 250))
    assert not list(tmp_path.iterdir())


def test_an_event_name_of_any_length_gives_a_short_error() -> None:
    with pytest.raises(RecordingError, match="Unknown event 'www") as caught:
        decode_line('{"event": "' + "w" * 1_000_000 + '"}')
    assert len(str(caught.value)) < 300
