"""`lab doctor`: what is missing or mismatched, and how to mend it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lab.cli.console import in_words, printable
from lab.settings import DEFAULT_PORT

if TYPE_CHECKING:
    from lab.doctor import Row

_MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "problem": ("PROBLEM", "bold red")}


@in_words
def doctor(
    port: Annotated[int, typer.Option(min=1, max=65535, help="The page's port.")] = DEFAULT_PORT,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Examine this machine. Exit code 0 if nothing stands in the way, else 1."""
    from lab.doctor import examine

    rows = examine(port)
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows], indent=2, ensure_ascii=False))
    else:
        _print(rows)
    if any(row.level == "problem" for row in rows):
        raise typer.Exit(1)


def _print(rows: list[Row]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        word, style = _MARKS[row.level]
        table.add_row(Text(word, style=style), Text(row.check), Text(printable(row.found)))
        if row.remedy and row.level != "ok":
            table.add_row("", "", Text(f"> {row.remedy}", style="italic"))
    console = Console()
    console.print(table)
    problems = sum(row.level == "problem" for row in rows)
    console.print("Nothing stands in the way." if not problems else f"Problems: {problems}.")
