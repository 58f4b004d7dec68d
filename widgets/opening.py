"""How a page opens: the recording that it shows first, and whether a live run follows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl

from lab.errors import LabError
from lab.events import Recording
from lab.settings import REPLAY
from widgets.session import Trouble

RECORDINGS = Path(__file__).parent / "recordings"


@dataclass(frozen=True)
class Opening:
    """What a page does first.

    Attributes:
        recording: shown; None where it could not be read.
        trouble: why not.
        autorun: start a live run as soon as the backend answers.
        replay: a recording was chosen, by the caller or by `lab replay`; its answers go before the backend's.
    """

    recording: Recording | None
    trouble: Trouble | None
    autorun: bool
    replay: bool


def open_page(experiment: str, recording: Path | None, *, autorun: bool) -> Opening:
    """Read the recording of a page, and the address's query: "?autorun=0" starts nothing.

    Args:
        recording: chosen by the caller; None takes that of `lab replay`, else the packaged one.
        autorun: what the caller wishes.
    """
    chosen = recording or (Path(os.environ[REPLAY]) if os.environ.get(REPLAY) else None)
    query = dict(parse_qsl(os.environ.get("QUERY_STRING", "")))
    runs = autorun and chosen is None and query.get("autorun") != "0"
    packaged = RECORDINGS / f"{experiment}.safetensors"
    try:
        shown = Recording.load(chosen or packaged)
        if chosen is not None and recording is None and shown.started.card.experiment != experiment:
            # The lab was started with another experiment's recording; this page shows its own.
            shown = Recording.load(packaged)
    except LabError as error:
        return Opening(None, Trouble.of(error), runs, chosen is not None)
    return Opening(shown, None, runs, chosen is not None)
