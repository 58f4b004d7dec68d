"""`lab export RECORDING --html FILE`: a recorded run as one page that opens from disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lab.cli.console import in_words, printable, say
from lab.cli.recording_file import check_folder, open_recording
from lab.cli.replay import FILE_HELP
from lab.strings import ENGLISH, languages

HTML_HELP = "Write the page to this file; it opens in any browser, without server or network."
LANGUAGE_HELP = f"Language of its title and lesson: {', '.join(languages())}."


@in_words
def export(
    file: Annotated[Path, typer.Argument(help=FILE_HELP, show_default=False)],
    html: Annotated[Path, typer.Option("--html", help=HTML_HELP, show_default=False)],
    language: Annotated[str, typer.Option("--language", help=LANGUAGE_HELP)] = ENGLISH,
) -> None:
    """Write a recorded run as one HTML file, its pictures interactive."""
    from lab.exporting import write_html

    check_folder(html)
    recording, remark = open_recording(file)
    if remark:
        say(printable(remark))
    size = write_html(recording, html, language=language)
    say(printable(f"{str(html)!r}: {size / 2**20:.1f} MiB"))
