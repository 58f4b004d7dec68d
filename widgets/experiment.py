"""The contract between the dashboard and the views of one experiment.

To add an experiment's views: a folder with a class like this, and one line in `VIEWS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

import ipywidgets as ipw

from lab.errors import NotFound
from lab.events import Event, ModelFacts
from lab.strings import Strings, strings
from widgets.run_state import RunState

Row = Sequence[Any]


@dataclass(frozen=True)
class Table:
    """The data behind a picture: what its CSV holds."""

    name: str
    head: Sequence[str]
    rows: Sequence[Row]


@dataclass
class Cursor:
    """Which step is looked at. Part of the link, never of the run card.

    Attributes:
        step: the newest step shown; None follows the run.
        hover: the step pointed at for the moment.
        locked: the step that a click holds.
    """

    step: int | None = None
    hover: int | None = None
    locked: int | None = None

    @property
    def pointed(self) -> int | None:
        """The step that the pictures mark, if it is not the newest."""
        return self.hover if self.hover is not None else self.locked


@dataclass
class Desk:
    """What the dashboard hands to the views.

    Attributes:
        ask: `ask(name, params, reply, of_run=...)`, see `widgets.asker`.
        touch: call after a change; the pump then renders.
        lock: hold it while changing state from a widget's callback.
        models: the models that the backend knows; None before it has answered.
        start: `start(params, model)`: run with these parameters, the others as they are, on the model of that id or,
            if it is "", on the chosen one. Call it without the lock. None where nothing can be started.
        renew: ask the backend again for models and choices: what was kept or written on its machine is among them then.
        words: the texts of the page's language.
    """

    ask: Callable[..., None]
    touch: Callable[[], None]
    lock: Any
    cursor: Cursor = field(default_factory=Cursor)
    models: Callable[[], Sequence[ModelFacts] | None] = lambda: None
    start: Callable[[Mapping[str, Any], str], None] | None = None
    renew: Callable[[], None] = lambda: None
    words: Strings = field(default_factory=strings)


class ExperimentViews(Protocol):
    """The pictures of one experiment. `fold` and `render` are called with the lock held."""

    widget: ipw.Widget

    @property
    def state(self) -> RunState:
        """The run on screen so far."""

    def reset(self) -> None:
        """Forget the run: a new one begins."""

    def fold(self, event: Event) -> None:
        """Take one event in; cheap, no drawing."""

    def render(self, *, live: bool) -> None:
        """Write what is true now to the widgets; `live` while a run goes. The pump alone calls it."""

    def settle(self) -> None:
        """The run ended or was loaded whole: ask what the pictures need beyond its events."""

    def steps(self) -> int:
        """How many steps the player can show."""

    def planned_steps(self) -> int:
        """How many steps a living run will have, as far as its parameters tell; 0 if they do not."""

    def note(self) -> str:
        """Where the living run is, in a few words; "" leaves it to the run's own progress."""

    def lesson(self, facts: ModelFacts | None) -> list[dict[str, Any]]:
        """The lesson's sections."""

    def tables(self) -> list[Table]:
        """The data behind the pictures."""

    def link(self) -> dict[str, Any]:
        """View settings for the link, JSON scalars."""

    def restore(self, settings: dict[str, Any]) -> None:
        """Take settings from a link; what does not fit is ignored."""


VIEWS = {
    "kv_cache": "widgets.kv_cache.views:KVCacheViews",
    "beam_search": "widgets.beam_search.views:BeamSearchViews",
    "speculative": "widgets.speculative.views:SpeculativeViews",
    "quantization": "widgets.quantization.views:QuantizationViews",
    "pruning": "widgets.pruning.views:PruningViews",
    "lora": "widgets.lora.views:LoraViews",
}


def build_views(experiment: str, desk: Desk) -> ExperimentViews:
    """The views of `experiment`.

    Raises:
        NotFound: it has none.
    """
    if experiment not in VIEWS:
        raise NotFound(
            f"There is no dashboard called {experiment!r}.", remedy=f"There are: {', '.join(sorted(VIEWS))}."
        )
    module, name = VIEWS[experiment].split(":")
    views: ExperimentViews = getattr(import_module(module), name)(desk)
    return views
