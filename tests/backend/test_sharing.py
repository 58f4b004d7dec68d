"""Identical cards, recordings on disk, questions and kept state."""

from __future__ import annotations

import math
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from lab.backend.kept import size_of
from lab.backend.limits import Limits
from lab.backend.local import LocalBackend
from lab.backend.protocol import InspectRequest, RunRequest
from lab.backend.store import RunStore
from lab.errors import BadInput, LabError, NotFound, Unavailable
from lab.events import Progress, RunFailed, RunFinished, RunStarted

from .toys import CountRunner, ToySource, assert_whole, backend, count_experiment, first_of, until


def ask_for(*, fresh: bool = False, **params: object) -> RunRequest:
    return RunRequest(experiment="count", model="toy", params=dict(params), fresh=fresh)


def question(run_id: str | None = None, **params: object) -> InspectRequest:
    return InspectRequest(experiment="count", model="toy", name="ask", params=dict(params), run_id=run_id)


def stored(tmp_path: Path, runner: CountRunner, max_bytes: int = 10**9, **more: object) -> LocalBackend:
    return backend(runner, store=RunStore(tmp_path, max_bytes), **more)


def flush(back: LocalBackend) -> None:
    assert back._recorder is not None
    assert back._recorder.flush()


def test_identical_cards_share_one_live_run_and_late_readers_get_all() -> None:
    gate, runner = threading.Event(), CountRunner()
    back = backend(runner, ToySource(gate=gate))
    first = back.run(ask_for(steps=20))
    second = back.run(ask_for(steps=20))
    gate.set()
    events = [list(first), list(second)]
    assert events[0] == events[1]
    assert_whole(events[0])
    assert runner.ran == 1
    back.close()


def test_a_shared_run_goes_on_until_its_last_reader_leaves() -> None:
    runner = CountRunner()
    back = backend(runner)
    one, two = back.run(ask_for(hold=True)), back.run(ask_for(hold=True))
    assert one.run_id == two.run_id
    one.close()
    steps = len(runner.trace)
    until(lambda: len(runner.trace) > steps, "it goes on for the other")
    assert first_of(iter(two), Progress)
    two.close()
    until(lambda: runner.closed == ["a"], "it was closed")
    back.close()


def test_many_that_ask_at_once_for_one_card_run_once(tmp_path: Path) -> None:
    runner = CountRunner()
    back = stored(tmp_path, runner)
    ends: list[object] = []
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait()
        ends.append(list(back.run(ask_for(steps=200)))[-1])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(ends) == 8
    assert len(set(ends)) == 1
    assert runner.ran == 1
    back.close()


def test_a_finished_run_answers_its_card_also_for_the_next_process(tmp_path: Path) -> None:
    runner = CountRunner()
    back = stored(tmp_path, runner)
    live = list(back.run(ask_for(steps=5)))
    at_once = list(back.run(ask_for(steps=5)))  # perhaps not packed yet
    flush(back)
    back.close()
    again = stored(tmp_path, runner)
    from_disk = list(again.run(ask_for(steps=5)))
    for events in (at_once, from_disk):
        start = events[0]
        assert isinstance(start, RunStarted)
        assert start.recorded.endswith("+00:00")
        assert events[1:] == [e for e in live[1:] if e.event not in ("queued", "loading")]
    assert runner.ran == 1
    fresh = list(again.run(ask_for(steps=5, fresh=True)))
    assert isinstance(fresh[0], RunStarted)
    assert fresh[0].recorded == ""
    assert runner.ran == 2
    assert next(iter(again.run(ask_for(steps=6)))).recorded == ""  # type: ignore[attr-defined]
    again.close()
    assert not list(tmp_path.glob("*.ndjson"))


def test_stopped_and_failed_runs_are_not_recorded(tmp_path: Path) -> None:
    back = stored(tmp_path, CountRunner())
    stream = back.run(ask_for(hold=True))
    first_of(iter(stream), Progress)
    stream.close()
    assert isinstance(list(back.run(ask_for(fail_at=1)))[-1], RunFailed)
    until(lambda: back.health().runs_active == 0, "both ended")
    flush(back)
    assert list(tmp_path.iterdir()) == []
    back.close()


@pytest.mark.parametrize("damage", ["truncated", "foreign", "empty", "another card"])
def test_a_damaged_recording_is_removed_and_the_run_runs(tmp_path: Path, damage: str) -> None:
    runner = CountRunner()
    back = stored(tmp_path, runner)
    list(back.run(ask_for(steps=4)))
    list(back.run(ask_for(steps=5)))
    flush(back)
    four, five = sorted(tmp_path.glob("*.safetensors"), key=lambda p: p.stat().st_mtime_ns)
    whole = five.read_bytes()
    broken = {
        "truncated": whole[: len(whole) // 2],
        "foreign": b"\x02\0\0\0\0\0\0\0{}",
        "empty": b"",
        "another card": four.read_bytes(),
    }
    five.write_bytes(broken[damage])
    events = list(back.run(ask_for(steps=5)))
    assert events[0].recorded == ""  # type: ignore[attr-defined]
    assert isinstance(events[-1], RunFinished)
    assert runner.ran == 3
    back.close()


def test_the_store_keeps_to_its_bytes_the_least_recently_used_first(tmp_path: Path) -> None:
    runner = CountRunner()
    back = stored(tmp_path, runner)
    list(back.run(ask_for(steps=1)))
    flush(back)
    size = sum(p.stat().st_size for p in tmp_path.iterdir())
    back.close()
    back = stored(tmp_path, runner, max_bytes=size * 3 + size // 2)
    for steps in (2, 3, 1, 4):  # 1 is used again, so 2 is the oldest
        list(back.run(ask_for(steps=steps)))
        flush(back)
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) <= size * 3 + size // 2
    recorded = {steps: next(iter(back.run(ask_for(steps=steps)))).recorded != "" for steps in (1, 3, 4, 2)}  # type: ignore[attr-defined]
    assert recorded == {1: True, 3: True, 4: True, 2: False}
    back.close()


def test_a_disk_that_fails_costs_the_recording_not_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    back = stored(folder, CountRunner())
    folder.rmdir()
    assert isinstance(list(back.run(ask_for()))[-1], RunFinished)
    assert isinstance(list(back.run(ask_for(label="b")))[-1], RunFinished)
    back.close()


def test_orphaned_spools_are_removed(tmp_path: Path) -> None:
    dead = tmp_path / f"{'0' * 64}.4194305.ndjson"  # above the largest process id of Linux
    dead.write_text("{}\n")
    asked = tmp_path / f"{'0' * 64}.asked.ndjson"
    asked.write_text("")
    RunStore(tmp_path, 1000)
    assert not dead.exists()
    assert asked.exists()


def test_a_question_is_answered_while_a_run_goes_on_and_goes_ahead_of_it() -> None:
    runner = CountRunner()
    back = backend(runner)
    stream = back.run(ask_for(hold=True, label="busy"))
    first_of(iter(stream), Progress)
    answer = back.inspect(question(stream.run_id, index=2))
    assert answer == {"label": "busy", "index": 2, "text": "xx"}
    steps = len(runner.trace)
    until(lambda: len(runner.trace) > steps, "the run goes on")
    stream.close()
    back.close()


def test_a_question_to_a_finished_run_is_cached_recorded_and_answered_after_its_state_is_gone(tmp_path: Path) -> None:
    runner = CountRunner()
    back = stored(tmp_path, runner)
    stream = back.run(ask_for(label="x"))
    list(stream)
    answer = back.inspect(question(stream.run_id, index=3))
    assert back.inspect(question(stream.run_id, index=3)) == answer
    assert runner.asked == 1
    flush(back)
    back.close()
    again = stored(tmp_path, runner)
    replay = again.run(ask_for(label="x"))
    assert replay.run_id == stream.run_id
    assert again.inspect(question(replay.run_id, index=3)) == answer
    with pytest.raises(Unavailable, match="no longer in memory"):
        again.inspect(question(replay.run_id, index=4))
    with pytest.raises(Unavailable):
        again.inspect(question("0" * 16))
    again.close()


def test_a_question_of_the_model_alone_needs_no_run_and_no_worker() -> None:
    source = ToySource(gate=threading.Event())
    back = backend(source=source)
    stream = back.run(ask_for())  # the worker is inside the load
    assert back.inspect(question(index=1)) == {"layers": 1, "index": 1, "low": -math.inf}
    stream.close()
    back.close()


def test_questions_are_refused_in_words() -> None:
    back = backend()
    stream = back.run(ask_for())
    list(stream)
    with pytest.raises(NotFound, match="no question 'why'"):
        back.inspect(InspectRequest(experiment="count", model="toy", name="why"))
    with pytest.raises(BadInput, match="index is -1"):
        back.inspect(question(stream.run_id, index=-1))
    with pytest.raises(LabError, match=r"has 300,0\d\d bytes; the limit is 262,144"):
        back.inspect(question(stream.run_id, index=300_000))
    with pytest.raises(LabError, match="internal error") as failed:
        back.inspect(question(stream.run_id, fail=True))
    assert "/root" not in str(failed.value)
    assert isinstance(list(back.run(ask_for(label="next")))[-1], RunFinished)
    back.close()


def test_a_question_to_the_run_of_another_experiment_says_so(tmp_path: Path) -> None:
    two = {name: replace(count_experiment(CountRunner()), name=name) for name in ("count", "other")}
    with closing(LocalBackend(source=ToySource(), experiments=two, store=RunStore(tmp_path, 10**9))) as back:
        stream = back.run(ask_for(label="x"))
        list(stream)
        wrong = replace(question(stream.run_id), experiment="other")
        words = r"belongs to another experiment: it is of 'count', not of 'other'\. Ask 'count'"
        with pytest.raises(NotFound, match=words):
            back.inspect(wrong)
        assert back.inspect(question(stream.run_id))["label"] == "x"
        flush(back)
    with closing(LocalBackend(source=ToySource(), experiments=two, store=RunStore(tmp_path, 10**9))) as again:
        replay = again.run(ask_for(label="x"))  # from its recording, which has the answer to that very question
        assert again.inspect(question(replay.run_id))["label"] == "x"
        with pytest.raises(NotFound, match=words):
            again.inspect(replace(question(replay.run_id), experiment="other"))
        living = again.run(ask_for(label="busy", hold=True))
        first_of(iter(living), Progress)
        with pytest.raises(NotFound, match=words):
            again.inspect(replace(question(living.run_id), experiment="other"))
        living.close()


def test_kept_state_is_bounded_and_the_oldest_goes_first() -> None:
    back = backend(limits=Limits(kept_bytes=250_000))
    ids = []
    for label in ("a", "b", "c"):
        stream = back.run(ask_for(label=label, keep_bytes=100_000))
        list(stream)
        ids.append(stream.run_id)
    with pytest.raises(Unavailable):
        back.inspect(question(ids[0]))
    assert [back.inspect(question(i))["label"] for i in ids[1:]] == ["b", "c"]
    big = back.run(ask_for(label="big", keep_bytes=300_000))
    list(big)
    with pytest.raises(Unavailable):
        back.inspect(question(big.run_id))
    assert back.inspect(question(ids[2]))["label"] == "c"
    back.close()


def test_a_stopped_run_can_still_be_asked() -> None:
    back = backend()
    stream = back.run(ask_for(hold=True, label="half"))
    first_of(iter(stream), Progress)
    stream.close()
    until(lambda: back.health().runs_active == 0, "it ended")
    assert back.inspect(question(stream.run_id))["label"] == "half"
    back.close()


def test_models_beyond_the_limit_are_dropped_unless_in_use() -> None:
    source = ToySource()
    back = backend(source=source, limits=Limits(models=1))
    assert list(back.run(ask_for()))
    assert list(back.run(RunRequest(experiment="count", model="toy", dtype="bfloat16")))
    assert list(back.run(ask_for(label="again")))
    assert source.loads == ["toy", "toy", "toy"]
    assert back.health().models_loaded == ("toy",)
    back.close()


def test_size_counts_each_thing_once_and_arrays_by_their_bytes() -> None:
    import numpy as np

    array = np.zeros(1000, dtype=np.float32)
    assert 4000 <= size_of({"a": array, "b": [array, array]}) < 5000
    model = np.zeros(10**6)
    assert size_of({"model": model, "x": 1}, apart_from=model) < 1000
