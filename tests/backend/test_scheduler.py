"""Turns, queue, stop, deadline, failures: the scheduler with small generators."""

from __future__ import annotations

import threading

import pytest

from lab.backend.limits import Limits
from lab.backend.live import LiveRun
from lab.backend.protocol import InspectRequest, RunRequest
from lab.errors import BadInput, Busy, LabError, ModelError, NotFound
from lab.events import (
    Event,
    Loading,
    Progress,
    Queued,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunStarted,
)

from .toys import FACTS, Clock, CountRunner, ToySource, assert_whole, backend, first_of, until


def ask_for(**params: object) -> RunRequest:
    return RunRequest(experiment="count", model="toy", params=dict(params))


def numbers(events: list[Event]) -> list[int]:
    return [e.done for e in events if isinstance(e, Progress)]


def test_a_run_tells_its_start_its_events_and_its_measured_end() -> None:
    clock = Clock()
    back = backend(CountRunner(clock=clock))
    events = list(back.run(ask_for(steps=4, seconds=0.25)))
    assert_whole(events)
    start, end = events[0], events[-1]
    assert isinstance(start, RunStarted)
    assert isinstance(end, RunFinished)
    assert start.card.params["steps"] == 4
    assert start.card.versions["lab"]
    assert start.recorded == ""
    assert len(numbers(events)) == 4
    assert end.text == "a"
    assert end.compute_ms == pytest.approx(1000.0)
    assert end.longest_slice_ms == pytest.approx(250.0)
    assert end.slices == 6  # four steps, the proof, the return
    assert end.ran_beside == 0
    assert end.peak_bytes > 1024 * 1024
    back.close()


def test_runs_that_take_turns_give_what_each_gives_alone() -> None:
    alone = {label: numbers(list(backend().run(ask_for(steps=50, label=label)))) for label in ("a", "bb", "ccc")}
    gate = threading.Event()
    runner = CountRunner()
    back = backend(runner, ToySource(gate=gate))
    streams = {label: back.run(ask_for(steps=50, label=label)) for label in alone}
    gate.set()
    together = {label: list(stream) for label, stream in streams.items()}
    assert {label: numbers(events) for label, events in together.items()} == alone
    for events in together.values():
        end = events[-1]
        assert isinstance(end, RunFinished)
        assert end.ran_beside == 2
    first_fifty = runner.trace[:50]
    assert {first_fifty.count(label) for label in alone} != {50, 0}  # they did take turns
    back.close()


def test_turns_are_fair_by_measured_time() -> None:
    assert _largest_lead() <= 3.0  # one slice of the slow one


def test_turns_that_count_slices_instead_of_time_would_be_seen_as_unfair(monkeypatch: pytest.MonkeyPatch) -> None:
    count_slice = LiveRun.count_slice

    def mutated(run: LiveRun, seconds: float) -> None:
        before = run.turn_s
        count_slice(run, seconds)
        run.turn_s = before + 1.0

    monkeypatch.setattr(LiveRun, "count_slice", mutated)
    assert _largest_lead() > 3.0


def _largest_lead() -> float:
    """How far two runs that are both active drift apart, in seconds of computing."""
    clock, gate = Clock(), threading.Event()
    runner = CountRunner(clock=clock)
    back = backend(runner, ToySource(gate=gate))
    slow = back.run(ask_for(label="slow", steps=30, seconds=3.0))
    quick = back.run(ask_for(label="quick", steps=90, seconds=1.0))
    gate.set()
    list(slow)
    list(quick)
    back.close()
    leads = []
    for cut in range(4, 61):
        seen = runner.trace[:cut]
        leads.append(abs(3.0 * seen.count("slow") - 1.0 * seen.count("quick")))
    return max(leads)


def test_a_newcomer_neither_waits_for_the_old_nor_overtakes_their_past() -> None:
    clock = Clock()
    runner = CountRunner(clock=clock)
    # Fake seconds pass fast: the old run must not meet the usual deadline before the newcomer ends.
    back = backend(runner, limits=Limits(deadline_s=1e9))
    old = back.run(ask_for(label="old", hold=True, seconds=1.0))
    until(lambda: runner.trace.count("old") > 500, "the old run's 500 steps")
    new = back.run(ask_for(label="new", steps=100, seconds=1.0))
    list(new)
    first = runner.trace.index("new")
    shared = runner.trace[first : len(runner.trace) - 1 - runner.trace[::-1].index("new")]
    assert abs(shared.count("new") - shared.count("old")) <= 2
    old.close()
    back.close()


def test_too_many_runs_wait_with_their_position_and_then_are_refused() -> None:
    back = backend(limits=Limits(active_runs=2, waiting_runs=2))
    active = [back.run(ask_for(hold=True, label=f"a{i}")) for i in range(2)]
    for stream in active:
        first_of(iter(stream), Progress)
    waiting = [back.run(ask_for(label=f"w{i}")) for i in range(2)]
    assert [first_of(iter(s), Queued) for s in waiting] == [Queued(position=0), Queued(position=1)]
    with pytest.raises(Busy, match="2 runs are active and 2 wait") as refused:
        back.run(ask_for(label="one too many"))
    assert refused.value.retry_after_s > 0
    assert back.health().runs_active == 2
    assert back.health().runs_waiting == 2
    waiting[0].close()
    assert first_of(iter(waiting[1]), Queued) == Queued(position=0)
    active[0].close()
    assert isinstance(list(waiting[1])[-1], RunFinished)
    active[1].close()
    back.close()


def test_stop_ends_a_run_within_one_slice_and_says_unproven() -> None:
    runner = CountRunner()
    back = backend(runner)
    stream = back.run(ask_for(hold=True))
    seen = iter(stream)
    first_of(seen, Progress)
    stream.close()
    rest = list(seen)
    assert rest[-1] == RunCancelled(reason="stopped, unproven")
    until(lambda: runner.closed == ["a"], "the generator was closed")
    until(lambda: back.health().runs_active == 0, "the run left")
    steps = len(runner.trace)
    assert isinstance(list(back.run(ask_for(label="next")))[-1], RunFinished)
    assert len(runner.trace) == steps + 3
    back.close()


def test_a_waiting_run_can_be_stopped_before_it_starts() -> None:
    runner = CountRunner()
    back = backend(runner, limits=Limits(active_runs=1))
    first = back.run(ask_for(hold=True))
    second = back.run(ask_for(label="second"))
    second.close()
    until(lambda: back.health().runs_waiting == 0, "the waiting run left")
    assert "second" not in runner.trace
    first.close()
    back.close()


def test_a_deadline_ends_a_run_in_words() -> None:
    clock = Clock()
    back = backend(CountRunner(clock=clock), limits=Limits(deadline_s=10.0))
    end = list(back.run(ask_for(hold=True, seconds=3.0)))[-1]
    assert isinstance(end, RunFailed)
    assert end.code == "deadline"
    assert "10 s" in end.message
    back.close()


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("value", "error"),
        ("lab", "bad_input"),
        ("memory", "memory"),
        ("torch", "memory"),
        ("exit", "error"),
        ("fatal", "error"),
    ],
)
def test_an_exception_ends_its_own_run_and_nothing_else(kind: str, code: str, caplog: pytest.LogCaptureFixture) -> None:
    runner = CountRunner()
    back = backend(runner)
    beside = back.run(ask_for(hold=True, label="beside"))
    events = list(back.run(ask_for(fail_at=2, fail_with=kind)))
    assert_whole(events)
    end = events[-1]
    assert isinstance(end, RunFailed)
    assert end.code == code
    assert "/root" not in f"{end.message}{end.remedy}"
    assert "Traceback" not in f"{end.message}{end.remedy}"
    # The server's log has it all; what was said in words needs no traceback.
    assert any("failed" in record.message for record in caplog.records)
    assert any(record.exc_info for record in caplog.records) == (kind != "lab")
    steps = runner.trace.count("beside")
    until(lambda: runner.trace.count("beside") > steps, "the other run goes on")
    beside.close()
    assert isinstance(list(back.run(ask_for(label="next")))[-1], RunFinished)
    back.close()


def test_loading_is_told_and_its_failure_ends_that_run_alone() -> None:
    source = ToySource()
    back = backend(source=source)
    assert any(isinstance(e, Loading) for e in back.run(ask_for()))
    assert not any(isinstance(e, Loading) for e in back.run(ask_for(label="b")))
    assert source.loads == ["toy"]
    source.error = ModelError("The weights are cut short.", remedy="Copy them again.")
    end = list(back.run(RunRequest(experiment="count", model="toy", dtype="bfloat16")))[-1]
    assert end == RunFailed(code="model", message="The weights are cut short.", remedy="Copy them again.")
    assert isinstance(list(back.run(ask_for(label="c")))[-1], RunFinished)
    back.close()


def test_a_load_that_nobody_waits_for_is_given_up() -> None:
    source = ToySource(gate=threading.Event())
    back = backend(source=source)
    stream = back.run(ask_for())
    first_of(iter(stream), Loading)
    stream.close()
    until(lambda: back.health().runs_active == 0, "the load was given up")
    assert source.loads == []
    back.close()


def test_weights_that_change_while_loading_are_refused() -> None:
    back = backend(source=ToySource(hash_after_load="ee" * 32))
    end = list(back.run(ask_for()))[-1]
    assert isinstance(end, RunFailed)
    assert "changed" in end.message
    back.close()


def test_a_model_that_is_not_here_yet_gets_its_card_after_loading() -> None:
    from dataclasses import replace

    source = ToySource({"toy": replace(FACTS, present=False, weight_hash="")})
    events = list(backend(source=source).run(ask_for()))
    kinds = [e.event for e in events]
    assert kinds[:2] == ["loading", "run_started"]
    start = events[1]
    assert isinstance(start, RunStarted)
    assert start.card.weight_hash == "cd" * 32


def test_bad_input_is_refused_before_anything_runs() -> None:
    runner = CountRunner()
    back = backend(runner, limits=Limits(prompt_characters=10))
    for params, words in (
        ({"steps": 0}, r"steps is 0; it must be at least 1\. Use at least 1"),
        ({"steps": 200_000}, r"steps is 200000; the limit is 100000"),
        ({"steps": "many"}, r"steps is 'many'"),
        ({"stepps": 3}, r"no parameter 'stepps'\. Did you mean 'steps'"),
        ({"label": "x" * 1001}, r"label has 1,001 characters; the limit is 1,000"),
        ({"prompt": "x" * 11}, r"prompt has 11 characters; this backend allows 10"),
        ({"steps": 50_000}, r"this model allows 16000"),
    ):
        with pytest.raises(BadInput, match=words):
            back.run(ask_for(**params))
    with pytest.raises(NotFound, match="no experiment 'dance'"):
        back.run(RunRequest(experiment="dance", model="toy"))
    with pytest.raises(ModelError, match="no model 'nothing'"):
        back.run(RunRequest(experiment="count", model="nothing"))
    with pytest.raises(BadInput, match="does not count"):
        back.run(RunRequest(experiment="count", model="other"))
    with pytest.raises(ModelError, match="float7"):
        back.run(RunRequest(experiment="count", model="toy", dtype="float7"))
    assert runner.ran == 0
    back.close()


def test_closing_the_backend_ends_every_run() -> None:
    back = backend(limits=Limits(active_runs=1))
    streams = [back.run(ask_for(hold=True, label=label)) for label in ("a", "b")]
    back.close()
    assert [list(s)[-1] for s in streams] == [RunCancelled(reason="the backend was closed")] * 2
    with pytest.raises(LabError, match="closing"):
        back.run(ask_for())
    with pytest.raises(LabError):
        back.inspect(InspectRequest(experiment="count", name="ask", run_id="gone", model="toy"))
