"""Record the run that a page shows first: `python -m widgets.make_recording kv_cache`.

Runs the experiment's defaults on the packaged model, asks what the page asks, and writes the recording
and its poster into `widgets/recordings`.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lab.backend.connect import connect
from lab.backend.protocol import InspectRequest, RunRequest
from lab.events import Recording, RunFinished, RunStarted
from lab.events.recording import Inspection, atomic_write
from widgets.poster import poster_html

FOLDER = Path(__file__).parent / "recordings"
QUESTIONS: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "kv_cache": (("worked_example", {}), ("what_if", {"window": 1024, "batch": 1})),
    "beam_search": (("worked_example", {}),),
    "speculative": (("worked_example", {}),),
}


def main() -> int:
    """0 when the recording and its poster are written."""
    experiment = sys.argv[1] if len(sys.argv) > 1 else "kv_cache"
    backend = connect()
    events = list(backend.run(RunRequest(experiment=experiment, fresh=True)))
    if not isinstance(events[-1], RunFinished) or not isinstance(events[0], RunStarted):
        sys.stderr.write(f"the run did not finish: {events[-1]}\n")
        return 1
    events[0] = replace(events[0], recorded=datetime.now(UTC).isoformat(timespec="seconds"))
    asked = tuple(
        Inspection(
            name=name,
            params=params,
            answer=backend.inspect(InspectRequest(experiment=experiment, name=name, params=params)),
        )
        for name, params in QUESTIONS[experiment]
    )
    recording = Recording(tuple(events), asked)
    recording.save(FOLDER / f"{experiment}.safetensors")
    atomic_write(FOLDER / f"{experiment}.html", poster_html(experiment, recording).encode("utf-8", "replace"))
    backend.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
