"""`python -m widgets.exported RECORDING FILE`: write the page of a recording. `lab export` and the page's menu call it.

It runs in a process of its own: in a notebook's kernel each of the widgets that it makes would travel to the browser.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lab.errors import LabError
from lab.events import Recording
from lab.events.recording import atomic_write
from lab.strings import default_language
from lab.view_process import tell
from widgets.exported.html import export_html


def main() -> int:
    """0 when the file is written; else stderr ends with the error as a line of JSON."""
    source, target = map(Path, sys.argv[1:3])
    try:
        atomic_write(target, export_html(Recording.load(source), language=default_language()))
    except LabError as error:
        return tell(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
