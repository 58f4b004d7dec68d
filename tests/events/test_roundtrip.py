"""What is encoded comes back: every event class, any text, any float, any array."""

from __future__ import annotations

import dataclasses
import json
import math
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.errors import RecordingError
from lab.events import (
    ArrayData,
    Event,
    LayerFacts,
    ModelFacts,
    Recording,
    RunCancelled,
    RunCard,
    RunFailed,
    RunFinished,
    RunStarted,
    Spool,
    decode_line,
    encode_line,
    event_types,
    recover_spool,
)
from lab.events.array import DTYPES
from lab.events.codec import from_json, to_json
from lab.events.decoding import Candidate
from lab.events.recording import Inspection

text = st.text(st.characters(codec=None), max_size=8)  # lone surrogates too
floats = st.floats(allow_nan=False)  # NaN is not equal to itself: its own test
ints = st.integers(-(2**63), 2**63)
keys = text | st.sampled_from(["$float", "$tensor", "$$"])
plain = st.recursive(
    st.none() | st.booleans() | ints | floats | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
questions = st.lists(st.tuples(text, st.dictionaries(text, plain, max_size=2)), max_size=2)
SIMPLE: dict[Any, st.SearchStrategy[Any]] = {str: text, int: ints, float: floats, bool: st.booleans()}


@st.composite
def arrays(draw: st.DrawFn) -> ArrayData:
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    dtype = draw(st.sampled_from(DTYPES))
    size = math.prod(shape) * np.dtype(dtype).itemsize
    return ArrayData(dtype=dtype, shape=tuple(shape), data=draw(st.binary(min_size=size, max_size=size)))


def of_type(hint: Any) -> st.SearchStrategy[Any]:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and args[-1] is not Ellipsis:
        return st.tuples(*(of_type(arg) for arg in args))
    if origin is tuple:
        return st.lists(of_type(args[0]), max_size=3).map(tuple)
    if origin is typing.Literal:
        return st.sampled_from(args)
    if origin is dict:
        return st.dictionaries(text, plain if args[1] is Any else of_type(args[1]), max_size=3)
    if len(args) == 2 and type(None) in args:
        return st.none() | of_type(next(a for a in args if a is not type(None)))
    if hint is ArrayData:
        return arrays()
    if hint in SIMPLE:
        return SIMPLE[hint]
    assert dataclasses.is_dataclass(hint), hint
    return instances(typing.cast("type[Any]", hint))


def instances(cls: type[Any]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(cls)
    return st.fixed_dictionaries({f.name: of_type(hints[f.name]) for f in dataclasses.fields(cls)}).map(
        lambda v: cls(**v)
    )


events = st.sampled_from(sorted(event_types().values(), key=lambda c: c.event)).flatmap(instances)
middles = events.filter(lambda e: not isinstance(e, RunStarted | RunFinished | RunCancelled | RunFailed))
finals = st.sampled_from([RunFinished, RunCancelled, RunFailed]).flatmap(instances)
SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
quick = settings(max_examples=60, deadline=None, suppress_health_check=SLOW_IS_FINE)


def started(**more: Any) -> RunStarted:
    layer = LayerFacts(kind="full", window=None, kv_heads=3, head_dim=64)
    facts = ModelFacts(
        id="m", name="M", source="directory", architecture="A", present=True, layers=(layer,), hidden=1, query_heads=1,
        kv_heads=1, head_dim=1, vocab=1, context=1, tied=True, parameters=1, dtype="float32",
        weight_bytes=4, weight_hash="00", grid=None, chat_template=False, license="",
    )  # fmt: skip
    card = RunCard(
        experiment="e", model="m", weight_hash="00", dtype="float32", device="cpu", attention="sdpa", threads=1
    )
    return RunStarted(run_id="r", card=card, facts=facts, **more)


@given(events)
@quick
def test_every_event_comes_back_from_its_line(event: Event) -> None:
    line = encode_line(event)
    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert line.isascii()
    assert json.loads(line, parse_constant=lambda _: pytest.fail("not JSON"))["event"] == event.event
    assert decode_line(line) == event
    assert decode_line(line.encode()) == event


@pytest.mark.parametrize("cls", event_types().values(), ids=lambda c: c.event)
@given(data=st.data())
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_each_class_has_a_name_in_snake_case_and_comes_back(cls: type[Event], data: st.DataObject) -> None:
    assert cls.event == "".join(f"_{c.lower()}" if c.isupper() else c for c in cls.__name__).lstrip("_")
    event = data.draw(instances(cls))
    assert decode_line(encode_line(event)) == event


@given(plain)
@quick
def test_plain_data_come_back_even_where_they_look_like_an_encoding(value: Any) -> None:
    assert from_json(json.loads(json.dumps(to_json(value), allow_nan=False))) == value


def test_a_dict_that_looks_like_a_float_or_a_tensor_stays_a_dict(tmp_path: Path) -> None:
    for detail in ({"x": {"$float": "NaN"}}, {"x": {"$tensor": "events"}}, {"$$float": 1}):
        from lab.events import Proof

        proof = Proof(verdict="equal", claim="c", compared=1, matched=1, detail=detail)
        assert decode_line(encode_line(proof)) == proof
        Recording((started(), proof, RunCancelled())).save(tmp_path / "r.safetensors")
        assert Recording.load(tmp_path / "r.safetensors").events[1] == proof


def test_non_finite_floats_have_their_own_encoding() -> None:
    for value in (math.inf, -math.inf, math.nan):
        line = encode_line(RunFinished(compute_ms=value))
        json.loads(line, parse_constant=lambda _: pytest.fail("not JSON"))
        back = decode_line(line)
        assert isinstance(back, RunFinished)
        assert back.compute_ms == value or (math.isnan(value) and math.isnan(back.compute_ms))
    assert decode_line(encode_line(RunCancelled(reason="Infinity"))) == RunCancelled(reason="Infinity")


@given(arrays())
@quick
def test_arrays_come_back_with_their_bytes_shape_and_type(array: ArrayData) -> None:
    assert ArrayData.from_json(json.loads(json.dumps(array.to_json()))) == array
    again = ArrayData.of(array.numpy(), array.dtype)
    assert again == array
    assert not array.numpy().flags.writeable


def test_a_transposed_array_is_copied_in_its_own_order() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert ArrayData.of(values.T, "float32").numpy().tolist() == values.T.tolist()


@given(
    st.lists(middles, max_size=6),
    finals,
    st.lists(st.tuples(text, st.dictionaries(text, plain, max_size=2)), max_size=2),
)
@quick
def test_a_recording_comes_back_from_its_file(
    tmp_path_factory: pytest.TempPathFactory, between: list[Event], end: Event, asked: list[tuple[str, dict[str, Any]]]
) -> None:
    path = tmp_path_factory.mktemp("r") / "run.safetensors"
    inspections = tuple(Inspection(name=name, params=values, answer=values) for name, values in asked)
    recording = Recording((started(), *between, end), inspections)
    recording.save(path)
    assert Recording.load(path) == recording
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    for inspection in inspections:
        assert recording.answer(inspection.name, inspection.params) == inspection.answer
    assert recording.answer("never asked", {}) is None


@given(st.lists(middles, max_size=4), st.integers(0, 10_000))
@quick
def test_a_spool_cut_anywhere_gives_all_whole_events(
    tmp_path_factory: pytest.TempPathFactory, between: list[Event], cut: int
) -> None:
    path = tmp_path_factory.mktemp("s") / "run.spool"
    with Spool(path) as spool:
        spool.write(started())
        first = path.stat().st_size
        for event in between:
            spool.write(event)
    whole = path.read_bytes()
    cut = first + cut % (len(whole) - first + 1)
    path.write_bytes(whole[:cut])
    recovered = recover_spool(path)
    kept = whole[:cut].count(b"\n") - 1
    assert recovered.events[:-1] == (started(), *between[:kept])
    assert recovered.events[-1] == RunCancelled(reason="the process was killed; recovered from its spool")


def test_a_spool_packs_into_the_same_recording(tmp_path: Path) -> None:
    array = ArrayData.of([[1.5, -2.0]], "float16")
    from lab.events.kv_cache import AttentionRead, TokenDecoded

    middle = (
        AttentionRead(index=0, layers=(0,), weights=array, positions=2, bin_size=1),
        TokenDecoded(
            index=0, token_id=1, text="\ud800<img src=x>", log_prob=-math.inf, ms=1.0, phase="prefill",
            top=(Candidate(1, "é", -0.5),), gap=0.1, computed=1, is_end=False,
        ),
    )  # fmt: skip
    spool = Spool(tmp_path / "run.spool")
    for event in (started(), *middle, RunFinished(text="\ud800")):
        spool.write(event)
    packed = spool.pack(tmp_path / "run.safetensors")
    assert Recording.load(tmp_path / "run.safetensors") == packed
    assert packed.events[1:-1] == middle
    assert [p.name for p in tmp_path.iterdir()] == ["run.safetensors"]


def test_a_spool_without_an_end_is_not_packed_and_stays(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "run.spool")
    spool.write(started())
    with pytest.raises(RecordingError, match="final event"):
        spool.pack(tmp_path / "run.safetensors")
    assert [p.name for p in tmp_path.iterdir()] == ["run.spool"]


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    link = tmp_path / "full.spool"
    link.symlink_to("/dev/full")
    spool = Spool(link)
    with pytest.raises(RecordingError, match="No space left"):
        spool.write(started())
    with pytest.raises(RecordingError, match="No space left"):
        spool.pack(tmp_path / "run.safetensors")


def test_cards_are_equal_where_all_that_decides_is_and_keys_are_stable() -> None:
    card = started().card
    assert card.key() == dataclasses.replace(card).key()
    for name, value in (("threads", 2), ("dtype", "bfloat16"), ("params", {"seed": 1}), ("versions", {"torch": "2"})):
        assert dataclasses.replace(card, **{name: value}).key() != card.key()
    ab, ba = {"a": 1, "b": 2}, {"b": 2, "a": 1}
    assert dataclasses.replace(card, params=ab).key() == dataclasses.replace(card, params=ba).key()


def test_only_plain_data_travel() -> None:
    for value in (object(), {1, 2}, b"bytes", {1: 2}, np.float32(1)):
        with pytest.raises(TypeError, match="does not travel"):
            to_json({"x": value})
