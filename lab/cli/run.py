"""`lab run EXPERIMENT`: events on stdout, progress on stderr, a recording on request."""

from __future__ import annotations

import inspect
import json
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from lab.backend.protocol import DEFAULT_MODEL, RunRequest, RunStream
from lab.cli.console import NOT_WRITTEN, ProgressLine, in_words, not_written, printable, say, silence_stdout
from lab.cli.options import collected, options
from lab.cli.recording_file import RecordingFile
from lab.errors import BY_CODE, BadInput, LabError, RecordingError
from lab.events import Event, Proof, RunCancelled, RunFailed, RunFinished, encode_line
from lab.experiments.base import Experiment

app = typer.Typer(
    name="run",
    no_args_is_help=True,
    help="Run an experiment. Events go to stdout as newline-delimited JSON, progress to stderr. "
    "Exit codes: 0 finished, 1 the run failed, 2 bad input, 130 stopped by Ctrl-C.",
)

OUT_HELP = "Write the run to this file (.safetensors); `lab replay` shows it."
PARAMS_HELP = "Read parameters from a JSON file; options given here go before it."
BACKEND_HELP = "auto (a running `lab up`, else this process), local, or an address http://HOST:PORT."
MAX_PARAMS_BYTES = 1024 * 1024


def register(experiments: dict[str, Experiment]) -> typer.Typer:
    """The group with one command for each experiment."""
    for experiment in experiments.values():
        app.command(experiment.name, help=f"{experiment.title} {experiment.summary}")(_command(experiment))
    return app


def _command(experiment: Experiment) -> Callable[..., None]:
    schema = experiment.params.model_json_schema()

    def command(**given: Any) -> None:
        own = {
            name: given.pop(name)
            for name in ("out", "params", "model", "dtype", "device", "backend", "fresh", "progress")
        }
        values = {**_from_file(own["params"]), **collected(schema, given)}
        _check(experiment, values)
        request = RunRequest(
            experiment=experiment.name,
            params=values,
            model=own["model"],
            dtype=own["dtype"],
            device=own["device"],
            fresh=own["fresh"],
        )
        raise typer.Exit(run(request, own["backend"], own["out"], progress=own["progress"]))

    common = list(inspect.signature(_common, eval_str=True).parameters.values())
    signature = inspect.Signature([*options(schema), *common])
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
    command.__name__ = experiment.name
    wrapped = in_words(command)
    wrapped.__signature__ = signature  # type: ignore[attr-defined]
    return wrapped


def _common(
    *,
    out: Annotated[Path | None, typer.Option("--out", "-o", help=OUT_HELP, metavar="FILE")] = None,
    params: Annotated[Path | None, typer.Option("--params", help=PARAMS_HELP, metavar="FILE")] = None,
    model: Annotated[
        str, typer.Option("--model", help="A name from `lab models`, a folder, a GGUF file or a hub id.")
    ] = DEFAULT_MODEL,
    dtype: Annotated[str, typer.Option("--dtype", help="auto, float32 or bfloat16.")] = "auto",
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
    backend: Annotated[str, typer.Option("--backend", help=BACKEND_HELP)] = "auto",
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Run even if a recording of the same run card exists.")
    ] = False,
    progress: Annotated[bool, typer.Option("--progress/--no-progress", help="Show progress on stderr.")] = True,
) -> None:
    """The options that every experiment has; only its signature is used."""


def _from_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        with path.open("rb") as file:  # not by its size: a pipe or a device tells none
            body = file.read(MAX_PARAMS_BYTES + 1)
        if len(body) > MAX_PARAMS_BYTES:
            raise BadInput(f"{str(path)!r} has more than {MAX_PARAMS_BYTES:,} bytes.", remedy="Is it the right file?")
        values = json.loads(body.decode("utf-8"))
    except OSError as error:
        raise BadInput(f"{str(path)!r} cannot be read: {error.strerror or error}.", remedy="Check the path.") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{str(path)!r} is not JSON: {error}.", remedy="Write one JSON object.") from None
    if not isinstance(values, dict):
        raise BadInput(f"{str(path)!r} holds no JSON object.", remedy='Write {"NAME": VALUE, ...}.')
    return values


def _check(experiment: Experiment, values: dict[str, Any]) -> None:
    from lab.backend.validation import validated

    validated(experiment.params, values)


def run(request: RunRequest, where: str, out: Path | None, *, progress: bool = True) -> int:
    """Run and print. The exit code: 0 finished, 1 failed, 2 bad input, 128 + signal when stopped.

    Raises:
        LabError: the run did not start, or its recording cannot be written.
    """
    from lab.backend.connect import connect

    file = RecordingFile(out) if out is not None else None
    try:
        backend = connect(where)
        stream = backend.run(request)
    except BaseException:
        if file is not None:
            file.discard()
        raise
    with _Stopper(stream) as stopper:
        final, trouble = _follow(stream, file, progress=progress)
        if file is not None and not isinstance(trouble, RecordingError):
            trouble = _pack(file) or trouble
        backend.close()
    if trouble is not None:
        say(printable(f"error: {trouble}"))
        return 1  # the input was fine: what was asked for could not be kept
    return _exit_code(final, stopper.signal)


def _follow(stream: RunStream, file: RecordingFile | None, *, progress: bool) -> tuple[Event | None, LabError | None]:
    """The run's last event, and what went wrong with stdout or the file. What cannot be kept is given up."""
    final: Event | None = None
    trouble: LabError | None = None
    printing = True
    with ProgressLine(shown=progress) as line:
        for event in stream:
            final = event
            if file is not None:
                try:
                    file.write(event)
                except RecordingError as error:
                    file.give_up()
                    file, trouble = None, error
                    stream.close()
            line.show(event)
            if printing:
                printing, unwritten = _print(encode_line(event))
                trouble = trouble or unwritten
                if not printing and file is None:
                    stream.close()  # nobody reads and nothing is kept
    _tell_end(final)
    return final, trouble


def _pack(file: RecordingFile) -> LabError | None:
    try:
        size = file.pack()
    except LabError as error:
        return error
    if size is not None:
        say(f"wrote {file.out} ({size / 1024:,.0f} KiB)")
    return None


def _print(line: str) -> tuple[bool, LabError | None]:
    """Whether the line reached stdout, and the error if not. A closed pipe is none: the reader has had enough."""
    try:
        sys.stdout.write(line)
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()
        return False, None
    except OSError as error:
        if error.errno not in NOT_WRITTEN:
            raise
        silence_stdout()
        return False, not_written(error)
    return True, None


def _tell_end(final: Event | None) -> None:
    if isinstance(final, RunFailed):
        say(printable(f"error: {final.message} {final.remedy}".rstrip()))
    elif isinstance(final, RunCancelled):
        say(f"run cancelled: {printable(final.reason)}")


def _exit_code(final: Event | None, signal_number: int) -> int:
    if isinstance(final, RunFinished):
        return 0
    if isinstance(final, RunFailed):
        return BY_CODE.get(final.code, LabError).exit_code
    return 128 + signal_number if signal_number else 0 if isinstance(final, RunCancelled) else 1


class _Stopper:
    """Turns the first Ctrl-C (or SIGTERM) into a clean stop; the second one ends the process as usual."""

    def __init__(self, stream: RunStream) -> None:
        self._stream = stream
        self._before: dict[int, Any] = {}
        self.signal = 0

    def __enter__(self) -> _Stopper:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.signal = number
        for each, handler in self._before.items():
            signal.signal(each, handler)
        # Not here: the interrupted code may hold the very locks that closing takes.
        threading.Thread(target=self._stream.close, name="lab-stop", daemon=True).start()


def proof_line(proof: Proof) -> str:
    """A proof in one line."""
    words = f"{proof.verdict}: {proof.claim}, {proof.matched:,} of {proof.compared:,} {proof.unit}"
    return f"{words}. {proof.explanation}" if proof.explanation else words
