"""`lab replay FILE`: what a recorded run was, without its model."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from lab.cli.console import in_words, printable, say, silence_stdout
from lab.cli.recording_file import open_recording
from lab.errors import BadInput
from lab.events import Event, Proof, Recording, RunCancelled, RunFailed, RunFinished, encode_line

FILE_HELP = "A recording (.safetensors), or the spool of a run that was killed."


@in_words
def replay(
    file: Annotated[Path, typer.Argument(help=FILE_HELP, show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print the events as newline-delimited JSON.")] = False,
    speed: Annotated[
        float, typer.Option("--speed", help="With --json: 1 at the pace of the run, 10 ten times faster; 0 at once.")
    ] = 0.0,
    show: Annotated[bool, typer.Option("--open", help="Show it in the page, as `lab up` does.")] = False,
) -> None:
    """Show a recorded run: its card, its text and its proof."""
    if not 0.0 <= speed < float("inf"):
        raise BadInput(f"--speed is {speed}; it is a number from 0.", remedy="Use 1 for the pace of the run.")
    recording, remark = open_recording(file)
    if remark:
        say(printable(remark))
    if show:
        from lab.cli.up import up_with_recording

        raise typer.Exit(up_with_recording(file))
    try:
        if as_json:
            _print_events(recording, speed)
        else:
            print(printable(summary(recording)))
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()


def _print_events(recording: Recording, speed: float) -> None:
    for event in recording.events:
        if speed > 0.0:
            time.sleep(_ms(event) / 1000.0 / speed)
        sys.stdout.write(encode_line(event))
        if speed > 0.0:
            sys.stdout.flush()


def _ms(event: Event) -> float:
    value = getattr(event, "ms", 0.0)
    return float(value) if isinstance(value, int | float) and 0.0 <= value < 60_000.0 else 0.0


def summary(recording: Recording) -> str:
    """The run in words: card, text, proof, end."""
    from lab.cli.run import proof_line

    started, card, end = recording.started, recording.started.card, recording.events[-1]
    rows = [
        ("experiment", card.experiment),
        ("model", f"{card.model} (weights {card.weight_hash[:12]})"),
        ("runs as", f"{card.dtype} on {card.device}, attention {card.attention}, {card.threads} threads"),
        ("versions", ", ".join(f"{name} {version}" for name, version in card.versions.items())),
        ("recorded", started.recorded or "live"),
        *((f"  {name}", _short(value)) for name, value in card.params.items()),
        ("events", f"{len(recording.events):,}"),
        ("inspections", f"{len(recording.inspections):,}"),
    ]
    rows += [("proof", proof_line(event)) for event in recording.events if isinstance(event, Proof)]
    if isinstance(end, RunFinished):
        rows.append(("text", repr(end.text)))
        rows.append(("tokens", f"{len(end.token_ids):,}"))
        beside = "alone" if end.ran_beside == 0 else f"beside {end.ran_beside} other runs"
        slices = f"{end.slices:,} slices, the longest {end.longest_slice_ms:,.0f} ms"
        rows.append(("computed", f"{end.compute_ms:,.0f} ms in {slices}, {beside}"))
        rows.append(("end", "finished"))
    elif isinstance(end, RunCancelled):
        rows.append(("end", f"cancelled: {end.reason}"))
    elif isinstance(end, RunFailed):
        rows.append(("end", f"failed: {end.message} {end.remedy}".rstrip()))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:120]}… ({len(text):,} characters)"
