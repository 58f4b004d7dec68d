"""`lab run` and `lab replay` as processes: exit codes, signals, pipes, recordings."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from backend.toys import backend

from lab.backend.protocol import RunRequest
from lab.cli.recording_file import RecordingFile, open_recording
from lab.cli.replay import summary
from lab.cli.run import run
from lab.errors import LabError, RecordingError
from lab.events import Event, Recording, RunCancelled, RunFinished, decode_line

from .conftest import Lab, environment, start


def test_a_run_prints_its_events_and_writes_the_same_into_its_file(lab: Lab, tmp_path: Path) -> None:
    done = lab("run", "count", "--steps", "4", "--out", "run.safetensors")
    assert done.returncode == 0, done.stderr
    events = [decode_line(line) for line in done.stdout.splitlines()]
    assert events[0].event == "run_started"
    assert isinstance(events[-1], RunFinished)
    recorded = Recording.load(tmp_path / "run.safetensors").events
    assert list(recorded) == [e for e in events if e.event not in ("queued", "loading")]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.safetensors"]
    assert "wrote run.safetensors" in done.stderr
    assert "a: " in done.stderr  # progress, as lines where there is no terminal
    assert "a: " not in lab("run", "count", "--no-progress").stderr


def test_a_failed_run_has_exit_code_1_and_is_recorded_as_failed(lab: Lab, tmp_path: Path) -> None:
    done = lab("run", "count", "--fail-at", "2", "--out", "run.safetensors")
    assert done.returncode == 1
    assert "error: The run failed with an internal error (ValueError)." in done.stderr
    assert Recording.load(tmp_path / "run.safetensors").events[-1].event == "run_failed"
    shown = lab("replay", "run.safetensors")
    assert shown.returncode == 0
    assert "failed: The run failed" in shown.stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_run_and_packs_what_there_is(tmp_path: Path, number: int, code: int) -> None:
    out = tmp_path / "run.safetensors"
    process = start(tmp_path, "run", "count", "--hold", "--no-progress", "--out", str(out), stdout=subprocess.DEVNULL)
    _wait_for_spool(tmp_path, process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == code, errors
    assert "run cancelled: stopped, unproven" in errors
    recording = Recording.load(out)
    assert recording.events[-1] == RunCancelled(reason="stopped, unproven")
    assert len(recording.events) > 10
    assert not list(tmp_path.glob("*.spool"))


def test_a_killed_run_is_recovered_from_its_spool(lab: Lab, tmp_path: Path) -> None:
    out = tmp_path / "run.safetensors"
    process = start(tmp_path, "run", "count", "--hold", "--no-progress", "--out", str(out), stdout=subprocess.DEVNULL)
    _wait_for_spool(tmp_path, process)
    process.kill()
    process.communicate(timeout=30)
    assert not out.exists()
    done = lab("replay", "run.safetensors")
    assert done.returncode == 0, done.stderr
    assert "killed" in done.stderr
    assert "cancelled: the process was killed; recovered from its spool" in done.stdout
    events = lab("replay", "run.safetensors", "--json").stdout.splitlines()
    assert decode_line(events[0]).event == "run_started"
    assert decode_line(events[-1]).event == "run_cancelled"
    # A run that then writes the file removes what was left.
    assert lab("run", "count", "--out", "run.safetensors").returncode == 0
    assert not list(tmp_path.glob("*.spool"))


def test_a_closed_pipe_stops_a_run_that_nobody_keeps(tmp_path: Path) -> None:
    process = start(tmp_path, "run", "count", "--hold", "--no-progress")
    assert process.stdout is not None
    assert process.stdout.readline().startswith('{"event":"run_started"')
    process.stdout.close()
    process.stdout = None
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Traceback" not in errors
    assert "BrokenPipe" not in errors


def test_a_closed_pipe_does_not_stop_a_run_that_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "run.safetensors"
    process = start(tmp_path, "run", "count", "--steps", "10000", "--no-progress", "--out", str(out))
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert isinstance(Recording.load(out).events[-1], RunFinished)


def test_a_folder_that_cannot_be_written_is_refused_before_the_run(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    with _not_root(), pytest.raises(LabError, match=r"not writable|ermission denied") as refused:
        RecordingFile(closed / "run.safetensors")
    assert refused.value.exit_code == 2
    assert not list(closed.iterdir())


@contextlib.contextmanager
def _not_root() -> Iterator[None]:
    """Root may write anywhere: be nobody for a moment."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_full_disk_is_said_before_the_run(lab: Lab) -> None:
    done = lab("run", "count", "--out", "/dev/full/run.safetensors")
    assert done.returncode == 2
    assert "does not exist" in done.stderr
    done = lab("run", "count", "--out", "/proc/run.safetensors")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_replay_shows_card_text_and_proof(lab: Lab) -> None:
    lab("run", "count", "--label", "\x1b[31mred", "--out", "run.safetensors")
    done = lab("replay", "run.safetensors")
    assert done.returncode == 0
    for words in ("experiment", "count", "smollm2", "equal: counted, 3 of 3", "finished", "lab 0."):
        assert words in done.stdout
    assert "\x1b" not in done.stdout
    events = lab("replay", "run.safetensors", "--json", "--speed", "1000").stdout
    assert [json.loads(line)["event"] for line in events.splitlines()][-2:] == ["proof", "run_finished"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording of a toy run. Shared: copy it elsewhere."""
    out = tmp_path_factory.mktemp("recorded") / "run.safetensors"
    file = RecordingFile(out)
    for event in backend().run(RunRequest(experiment="count", model="toy")):
        file.write(event)
    file.pack()
    return out


@pytest.mark.parametrize("damage", ["truncated", "empty", "text", "model", "newer", "no end", "folder"])
def test_a_file_that_is_no_whole_recording_has_exit_code_2(
    lab: Lab, tmp_path: Path, recorded: Path, damage: str
) -> None:
    import numpy as np
    import safetensors.numpy

    path = tmp_path / "run.safetensors"
    whole = recorded.read_bytes()
    tensors = safetensors.numpy.load(whole)
    metadata = {"format": "inference-lab-recording", "version": "1"}
    if damage == "folder":
        path.mkdir()
    else:
        cut = tensors | {"events": tensors["events"][:-20]}
        path.write_bytes(
            {
                "truncated": whole[:-50],
                "empty": b"",
                "text": b"this is not a recording at all",
                "model": safetensors.numpy.save({"weight": np.zeros(4, np.float32)}),
                "newer": safetensors.numpy.save(tensors, metadata | {"version": "2"}),
                "no end": safetensors.numpy.save(cut, metadata),
            }[damage]
        )
    done = lab("replay", "run.safetensors")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    if damage == "newer":
        assert "'2'" in done.stderr
        assert "Update the lab." in done.stderr


def test_the_file_that_those_damages_were_done_to_is_whole(lab: Lab, recorded: Path) -> None:
    assert lab("replay", str(recorded)).returncode == 0


def _wait_for_spool(folder: Path, process: subprocess.Popen[str]) -> None:
    from backend.toys import until

    def begun() -> bool:
        assert process.poll() is None, process.communicate()
        return any(p.stat().st_size > 10_000 for p in folder.glob("*.spool"))

    until(begun, "the spool grows", 30)


def test_the_environment_of_these_tests_names_no_backend(tmp_path: Path) -> None:
    assert not {"LAB_BACKEND_URL", "LAB_BACKEND_TOKEN"} & environment(tmp_path).keys()


def test_parameters_from_what_has_no_end_are_refused(lab: Lab) -> None:
    done = lab("run", "count", "--params", "/dev/zero")
    assert done.returncode == 2
    assert "more than 1,048,576 bytes" in done.stderr


def test_a_parameter_of_any_length_gives_a_short_error(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"' + "k" * 900_000 + '": 1}')
    done = lab("run", "count", "--params", "p.json")
    assert done.returncode == 2
    assert "no parameter 'kkk" in done.stderr
    assert len(done.stderr) < 1000


@pytest.mark.parametrize(
    "args", [("run", "count"), ("replay", "run.safetensors"), ("replay", "run.safetensors", "--json")]
)
def test_output_to_a_full_disk_is_an_error_in_words(tmp_path: Path, recorded: Path, args: tuple[str, ...]) -> None:
    shutil.copyfile(recorded, tmp_path / "run.safetensors")
    with Path("/dev/full").open("w") as full:
        process = start(tmp_path, *args, stdout=full, cwd=tmp_path)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "The output cannot be written: No space left on device." in errors
    assert "Traceback" not in errors


def test_output_to_a_full_disk_does_not_cost_the_file(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        process = start(tmp_path, "run", "count", "--out", "run.safetensors", stdout=full, cwd=tmp_path)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "cannot be written" in errors
    assert isinstance(Recording.load(tmp_path / "run.safetensors").events[-1], RunFinished)


class _FullAfter(RecordingFile):
    """A disk that takes two events."""

    taken = 0

    def write(self, event: Event) -> None:
        self.taken += 1
        if self.taken > 2:
            raise RecordingError("Cannot write 'run.safetensors': No space left on device.", remedy="Free some space.")
        super().write(event)


def test_a_disk_that_fills_during_the_run_ends_it_with_a_final_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lab.backend.connect.connect", lambda _: backend())
    monkeypatch.setattr("lab.cli.run.RecordingFile", _FullAfter)
    request = RunRequest(experiment="count", model="toy", params={"hold": True})
    assert run(request, "local", tmp_path / "run.safetensors", progress=False) == 1
    printed = capfd.readouterr()
    assert decode_line(printed.out.splitlines()[-1]).event == "run_cancelled"
    assert "No space left" in printed.err


@contextlib.contextmanager
def _files_of_at_most(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond: the system then refuses to write on, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("when", ["while it runs", "when it is packed"])
def test_a_spool_that_a_full_disk_left_says_so_and_not_that_the_process_was_killed(tmp_path: Path, when: str) -> None:
    out = tmp_path / "run.safetensors"
    file, events = RecordingFile(out), list(backend().run(RunRequest(experiment="count", model="toy")))
    if when == "while it runs":

        def write_all() -> None:
            for event in events[:-1] * 100:
                file.write(event)

        with _files_of_at_most(4096), pytest.raises(RecordingError, match="Cannot write"):
            write_all()
        file.give_up()
        expected = "The run was stopped because its events could not be written on; recovered from run.safetensors."
    else:
        for event in events:
            file.write(event)
        with _files_of_at_most(100), pytest.raises(RecordingError, match="Cannot write"):
            file.pack()
        (spool,) = tmp_path.iterdir()
        spool.rename(out.with_name(f"{out.name}.{2**22 + 1}.spool"))  # of a process that is gone
        expected = "The run ended, but its recording was not written; recovered from run.safetensors."
    recording, remark = open_recording(out)
    assert remark.startswith(expected)
    assert "killed" not in remark + summary(recording)
    assert recording.started.card.experiment == "count"
    assert (recording.events[-1].event == "run_finished") == (when == "when it is packed")
    (spool,) = tmp_path.iterdir()
    assert open_recording(spool) == (recording, remark)
    again = RecordingFile(out)
    for event in events:
        again.write(event)
    again.pack()
    assert list(tmp_path.iterdir()) == [out], "a run that writes the file removes what was left"


def test_a_terminal_of_few_characters_gets_escapes(lab: Lab, tmp_path: Path) -> None:
    assert lab("run", "count", "--label", "日本", "--out", "run.safetensors").returncode == 0
    ascii_only = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    process = start(tmp_path, "replay", "run.safetensors", extra=ascii_only, cwd=tmp_path)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert r"\u65e5\u672c" in output


def test_paths_that_no_file_can_have(lab: Lab, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.safetensors")
    for path in ("n" * 300, "n" * 300 + ".spool", "pipe.safetensors"):
        done = lab("replay", path)
        assert done.returncode == 2, path
        assert done.stderr.startswith("error: ")
