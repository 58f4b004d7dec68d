"""`python -m widgets.comparison A B NAME NAME`: two recordings set against each other, as JSON. `lab compare` calls it.

The names are those of the files for messages.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lab.errors import LabError
from lab.events import Recording
from lab.view_process import tell
from widgets.comparison.reading import compare_recordings


def main() -> int:
    """0 when the comparison is printed; else stderr ends with the error as a line of JSON."""
    a, b = map(Path, sys.argv[1:3])
    first, second = sys.argv[3:5]
    try:
        found = compare_recordings(Recording.load(a), Recording.load(b), (first, second))
    except LabError as error:
        return tell(error)
    sys.stdout.write(f"{json.dumps(found.as_json(), allow_nan=False)}\n")  # ASCII, whatever a text holds
    return 0


if __name__ == "__main__":
    sys.exit(main())
