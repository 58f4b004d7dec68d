"""Making a draft ready in a run, told as progress."""

from __future__ import annotations

from collections.abc import Generator

from lab.decoding.drafts.choose import Source, make_ready
from lab.events import Event, Progress
from lab.experiments.speculative.params import DraftName
from lab.experiments.speculative.setup import Setup, check_gamma
from lab.steps import relay


def draft_ready(setup: Setup, name: DraftName | None = None) -> Generator[Event | None, None, Source]:
    """The source of the draft that is wished for.

    Raises:
        BadInput: it cannot work with this model.
        ModelError: its files are missing or do not fit.
    """
    making = make_ready(setup.loaded, setup.wish(name))
    source = yield from relay(
        making, lambda stage: Progress(stage=stage.words, done=round(100 * (stage.fraction or 0.0)), total=100)
    )
    check_gamma(setup.params, source.most, f"The draft ({source.title})")
    return source
