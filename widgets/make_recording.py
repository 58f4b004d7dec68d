"""Record the run that a page shows first: `python -m widgets.make_recording kv_cache`.

Runs the experiment's defaults on the packaged model, asks what the page asks when the run has ended and what
`QUESTIONS` names besides, and writes the recording and its poster into `widgets/recordings`, and the index page from
all recordings there. `python -m widgets.make_recording stills` draws all posters and the index again, without a model.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lab.backend.connect import connect
from lab.backend.protocol import Backend, InspectRequest, RunRequest
from lab.events import Event, Recording, RunFinished, RunStarted
from lab.events.recording import Inspection, atomic_write
from lab.experiments.registry import EXPERIMENTS
from lab.strings import languages, strings
from widgets.experiment import Desk, build_views
from widgets.front.page import front_html
from widgets.page_links import INDEX
from widgets.poster import poster_html
from widgets.stills import FOLDER, still_name

STILLS = "stills"
_HISTOGRAM: dict[str, Any] = {
    "layer": 0,
    "projection": "q_proj",
    "method": "nearest",
    "bits": 4,
    "kind": "absmax",
    "scale_format": "float16",
    "group_sizes": ["row", "288", "192", "64", "32", "16"],
}
_MOVED: tuple[dict[str, Any], ...] = (
    *({"bits": bits} for bits in (2, 3, 5, 6, 7, 8)),
    {"kind": "float_minimum"},
    *({"layer": layer} for layer in (1, 14, 29)),
)
QUESTIONS: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "kv_cache": (("worked_example", {}), ("what_if", {"window": 1024, "batch": 1})),
    "beam_search": (("worked_example", {}),),
    "speculative": (("worked_example", {}),),
    "pruning": (("worked_example", {}),),
    "lora": (("worked_example", {}), ("tasks", {}), ("count", {})),
    "quantization": tuple(("histogram", {**_HISTOGRAM, **changes}) for changes in _MOVED),
}
"""What a visitor is likely to ask of the page before a kernel is there: its sliders."""


def main() -> int:
    """0 when the recording and its stills are written."""
    experiment = sys.argv[1] if len(sys.argv) > 1 else "kv_cache"
    if experiment == STILLS:
        draw_stills(FOLDER)
        return 0
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
        for name, params in [*QUESTIONS.get(experiment, ()), *_of_the_page(backend, experiment, events)]
    )
    recording = Recording(tuple(events), asked)
    recording.save(FOLDER / f"{experiment}.safetensors")
    draw_stills(FOLDER)
    backend.close()
    return 0


def draw_stills(folder: Path) -> None:
    """Draw the poster of each recording in `folder`, and the index page from all of them, in every language."""
    files = {name: folder / f"{name}.safetensors" for name in EXPERIMENTS}
    recordings = {name: Recording.load(path) for name, path in files.items() if path.is_file()}
    for language in languages():
        words = strings(language)
        stills = {name: poster_html(name, recording, words) for name, recording in recordings.items()}
        for name, html in {**stills, INDEX: front_html(recordings, words)}.items():
            atomic_write(folder / still_name(name, language), html.encode("utf-8", "replace"))


def _of_the_page(backend: Backend, experiment: str, events: list[Event]) -> list[tuple[str, dict[str, Any]]]:
    """What the page itself asks of the model when the run has ended, beside `QUESTIONS`."""
    wanted: list[tuple[str, dict[str, Any]]] = []

    def ask(name: str, params: dict[str, Any], reply: Callable[..., None], *, of_run: bool) -> None:
        if of_run:  # such answers are recorded where a visitor's run is
            reply(None, "")
            return
        if (name, params) not in [*wanted, *QUESTIONS.get(experiment, ())]:
            wanted.append((name, params))
        reply(backend.inspect(InspectRequest(experiment=experiment, name=name, params=params)), "")

    views = build_views(experiment, Desk(ask=ask, touch=lambda: None, lock=threading.RLock()))
    for event in events:
        views.fold(event)
    for _ in range(2):  # an answer may lead to another question
        views.settle()
        views.render(live=False)
    return wanted


if __name__ == "__main__":
    sys.exit(main())
