"""`lab compare A B`: two recorded runs of one experiment, what differs between them, and their figures."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from lab.cli.console import in_words, printable, say
from lab.cli.recording_file import open_recording
from lab.cli.replay import FILE_HELP
from lab.errors import BadInput


@in_words
def compare(
    a: Annotated[Path, typer.Argument(help=FILE_HELP, show_default=False)],
    b: Annotated[Path, typer.Argument(help="The run that is set against the first.", show_default=False)],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all of it as JSON, pictures and texts among it.")
    ] = False,
) -> None:
    """Compare two recorded runs of one experiment: settings that differ, figures of both, B against A."""
    found = compared(a, b)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        _print(found)


def compared(a: Path, b: Path) -> dict[str, Any]:
    """Two recordings set against each other, as `widgets.comparison.core.Comparison` in JSON data.

    Raises:
        LabError: a file cannot be read, both are the same run, or they are of different experiments.
    """
    from lab.view_process import run_views

    if a.exists() and b.exists() and a.samefile(b):
        raise BadInput(f"{str(a)!r} is compared with itself.", remedy="Name another recording as B.")
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / f"{side}.safetensors") for side in "ab"]
        for path, source in zip(paths, (a, b), strict=True):
            recording, remark = open_recording(source)
            if remark:
                say(printable(remark))
            recording.save(Path(path))
        text = run_views("widgets.comparison", *paths, a.name, b.name, what="The comparison")
    found: dict[str, Any] = json.loads(text)
    return found


def _print(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()

    def table(title: str, heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
        shown = Table(title=title, title_justify="left")
        for i, head in enumerate(heads):
            shown.add_column(head, overflow="fold", justify="left" if i == 0 or len(heads) == 3 else "right")
        for row in rows:
            # Parameters and names come from files that anybody may have written: they are text, not markup.
            shown.add_row(*(Text(printable(cell)) for cell in row))
        console.print(shown)

    for side in ("a", "b"):
        told = found[side]
        when = "live" if told["live"] else f"recorded {told['recorded'][:16].replace('T', ' ')}".rstrip()
        console.print(Text(printable(f"{side.upper()}: {found['experiment']}, {told['model']}, {when}, {told['end']}")))
    if found["differences"]:
        table(
            "Settings that differ", ("setting", "A", "B"), [(d["name"], d["a"], d["b"]) for d in found["differences"]]
        )
    else:
        console.print("The same settings.")
    if found["figures"]:
        table(
            "Figures",
            ("figure", "A", "B", "B against A", "from"),
            [(f["name"], f["a_text"], f["b_text"], f["against_text"], _from(f)) for f in found["figures"]],
        )
    for text in found["texts"]:
        console.print(Text(printable(f"{text['title']}: {text['said']}.")))
    for note in (*found["cannot"], *found["notes"], *_figure_notes(found["figures"])):
        console.print(Text(printable(note)))


def _figure_notes(figures: list[dict[str, Any]]) -> list[str]:
    """What must be known of some figures, each note once, after the figures that it is of."""
    of: dict[str, list[str]] = {}
    for figure in figures:
        if figure["note"]:
            of.setdefault(figure["note"], []).append(figure["name"])
    return [f"{', '.join(names)}: {note}" for note, names in of.items()]


def _from(figure: dict[str, Any]) -> str:
    return " / ".join(dict.fromkeys(badge for badge in (figure["a_badge"], figure["b_badge"]) if badge))
