"""What a page can hand out: the run's file, its data as JSON or CSV, itself as one HTML file."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.errors import BadInput, Unavailable
from lab.events import Recording, encode_event
from lab.exporting import read_html
from lab.strings import ENGLISH
from widgets.experiment import Table


def export_items(ended: bool) -> list[dict[str, Any]]:
    """The menu's items; the run's own file exists once the run has ended."""
    return [
        {"id": "png", "label": "Pictures as PNG"},
        {"id": "svg", "label": "Pictures as SVG"},
        {"id": "html", "label": "This page as one file", "note": "opens without the lab", "disabled": not ended},
        {"id": "csv", "label": "Data as CSV"},
        {"id": "json", "label": "Events as JSON", "disabled": not ended},
        {"id": "recording", "label": "The run, replays without the model", "disabled": not ended},
    ]


def make_export(
    what: str, experiment: str, recording: Recording | None, tables: Sequence[Table], language: str = ENGLISH
) -> tuple[str, bytes, str]:
    """A file's name, bytes and media type. The page ("html") takes seconds: call it in a thread.

    Args:
        language: of the page's title and lesson.

    Raises:
        Unavailable: the run has not ended.
        BadInput: no such export, or a page that would be too large.
    """
    if what == "csv":
        return f"{experiment}.csv", _csv(tables), "text/csv"
    if what not in ("html", "json", "recording"):
        raise BadInput(
            f"There is no export called {what!r}.", remedy="There are csv, html, json, png, svg and recording."
        )
    if recording is None:
        raise Unavailable("The run has not ended, so it has no file yet.", remedy="Stop it or wait for its end.")
    if what == "html":
        return f"{experiment}.html", read_html(recording, language), "text/html"
    if what == "json":
        events = [encode_event(event) for event in recording.events]
        return f"{experiment}.json", json.dumps(events, indent=1, allow_nan=False).encode(), "application/json"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.safetensors"
        recording.save(path)
        return f"{experiment}.safetensors", path.read_bytes(), "application/octet-stream"


def _csv(tables: Sequence[Table]) -> bytes:
    """All tables one below the other, each under its name."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for table in tables:
        writer.writerow([f"# {table.name}"])
        writer.writerow(table.head)
        writer.writerows([_safe(cell) for cell in row] for row in table.rows)
        writer.writerow([])
    return out.getvalue().encode("utf-8", "replace")


def _safe(cell: Any) -> Any:
    """A text that a spreadsheet would take for a formula is quoted."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell
