"""The page's section that compares: one run is kept as A, the run on the page is B."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import ipywidgets as ipw

from lab.errors import BadInput, LabError, NotFound
from lab.events import Event, Recording, RunStarted
from widgets.action_row import Action, ActionRow
from widgets.comparison.core import Run, compare, module_of, run_of_state, same_run
from widgets.comparison.reading import read_run, read_upload, too_large, upload_limit
from widgets.comparison.view import ComparisonView
from widgets.error_panel import ErrorPanel
from widgets.file_choice import FileChoice
from widgets.opening import RECORDINGS
from widgets.run_state import RunState
from widgets.section import choose_children, heading, section
from widgets.shown import show_if
from widgets.text import Words

log = logging.getLogger(__name__)

TITLE = "Compare two runs"
KEEP, PACKAGED, SWAP, CLEAR = "keep", "packaged", "swap", "clear"


class OnPage(Protocol):
    """What is asked of the page's session."""

    @property
    def started(self) -> RunStarted | None: ...

    @property
    def events(self) -> list[Event]: ...

    @property
    def replaying(self) -> bool: ...


@dataclass
class Kept:
    """A run that was set aside: the list in which the session has its events, not a copy of it.

    Attributes:
        filed: it came from a recording's file.
        run: what it tells; made when it is first compared.
    """

    events: Sequence[Event]
    name: str
    filed: bool = True
    run: Run | None = None

    def told(self) -> Run:
        """The run. It does not change any more once another one is on the page."""
        if self.run is None:
            self.run = read_run(self.events, self.name, filed=self.filed)
        return self.run


class CompareSection:
    """Empty but for its buttons until a run is kept. Plots are built when there is something to compare.

    Args:
        experiment: whose page this is.

    Attributes:
        widget: all of it, for the foot of the pictures.
    """

    def __init__(self, experiment: str) -> None:
        self._experiment = experiment
        self._kept: Kept | None = None
        self._swapped = False
        self._lock: threading.RLock = threading.RLock()
        self._touch: Callable[[], None] = lambda: None
        self._session: OnPage | None = None
        self._trouble: LabError | None = None
        self._heading = heading(TITLE)
        self._actions = ActionRow(label=TITLE)
        self._file = FileChoice(
            label="Open a recording as A",
            accept=".safetensors",
            limit=upload_limit(),
            title="A file that the Export menu or `lab run --out` wrote. It is read, never run.",
        )
        self._error = ErrorPanel()
        self._waiting = Words(css_class="lab-caption")
        self._view: ComparisonView | None = None
        self._slot = ipw.VBox([])
        row = ipw.Box([self._actions, self._file])
        row.add_class("lab-row")
        self.widget = section(self._heading, row, self._error, self._waiting, self._slot)
        self.widget.add_class("lab-compare")
        show_if(comparable(experiment), self.widget)

    def attach(self, session: OnPage, lock: threading.RLock, touch: Callable[[], None]) -> None:
        """Tie it to a living page: its run, the lock that guards it, and what draws it again."""
        self._session, self._lock, self._touch = session, lock, touch
        self._actions.on_action(self._pressed)
        self._file.on_file(self._opened)
        self._file.on_refused(self._refused)
        self._error.on_dismiss(self._dismissed)

    def _pressed(self, action: str) -> None:
        with self._lock:
            self._trouble = None
            if action == KEEP and self._session is not None and self._session.started is not None:
                self._keep(Kept(self._session.events, "the run on the page", self._session.replaying))
            elif action == PACKAGED:
                self._load("the recorded run", lambda: Recording.load(RECORDINGS / f"{self._experiment}.safetensors"))
            elif action == SWAP:
                self._swapped = not self._swapped
            elif action == CLEAR:
                self._kept, self._swapped = None, False
        self._touch()

    def _keep(self, kept: Kept) -> None:
        self._kept, self._swapped = kept, False

    def _opened(self, name: str, data: bytes) -> None:
        """Read a file in the background: the kernel goes on answering."""
        threading.Thread(
            target=self._load, args=(name, lambda: read_upload(name, data)), name="lab-compare", daemon=True
        ).start()

    def _load(self, name: str, read: Callable[[], Recording]) -> None:
        try:
            recording = read()
            of = recording.started.card.experiment
            if of != self._experiment:
                raise BadInput(
                    f"{name!r} is a run of {of}; this page is of {self._experiment}.",
                    remedy=f"Open it on the page of {of}.",
                )
            kept = Kept(recording.events, name, run=read_run(recording.events, name))
        except LabError as error:
            with self._lock:
                self._trouble = error
        except Exception:
            log.exception("a recording could not be opened")
            with self._lock:
                self._trouble = BadInput(f"{name!r} could not be opened.", remedy="The server's log says why.")
        else:
            with self._lock:
                self._trouble = None
                self._keep(kept)
        self._touch()

    def _refused(self, name: str, size: int) -> None:
        with self._lock:
            self._trouble = too_large(name, size, upload_limit())
        self._touch()

    def _dismissed(self) -> None:
        with self._lock:
            self._trouble = None
        self._touch()

    def render(self, state: RunState, *, live: bool) -> None:
        """Draw it beside the run on the page, whose state this is; `live` while that goes."""
        on_page = state.started
        kept = self._kept
        first = kept.events[0] if kept else None
        waits = isinstance(first, RunStarted) and (on_page is None or same_run(first, on_page))
        self._say(kept, waits=waits)
        self._actions.show(actions(kept, on_page, waits=waits))
        show_if(kept is None, self._file)
        show_if(kept is not None and not waits, self._slot)
        if kept is not None and not waits:
            self._compare(kept, state, live=live)
        if self._trouble is None:
            self._error.hide()
        else:
            self._error.show(self._trouble.message, self._trouble.remedy, self._trouble.code)

    def _say(self, kept: Kept | None, *, waits: bool) -> None:
        words = "Keep a run as A; the next one, with other settings, is B, on the same axes."
        self._heading.say(("h2", TITLE), *((("p", words),) if kept is None else ()))
        told = "A is the run on the page. Change a setting and press Run: the new run is B."
        self._waiting.say(*((("p", told),) if waits else ()))

    def _compare(self, kept: Kept, state: RunState, *, live: bool) -> None:
        try:
            filed = self._session is not None and self._session.replaying
            a, b = kept.told(), run_of_state(state, filed=filed)
            if b is None:
                return
            if self._view is None:
                self._view = ComparisonView()
                choose_children(self._slot, [self._view.widget])
            pair = (b, a) if self._swapped else (a, b)
            self._view.show(compare(*pair), live=live)
        except LabError as error:
            self._trouble = self._trouble or error


def comparable(experiment: str) -> bool:
    """Whether two of its runs can be compared."""
    try:
        module_of(experiment)
    except NotFound:
        return False
    return True


def actions(kept: Kept | None, on_page: RunStarted | None, *, waits: bool) -> list[Action]:
    """The buttons that do something now."""
    if kept is None:
        keep = [Action(KEEP, "Keep this run as A")] if on_page else []
        return [*keep, Action(PACKAGED, "Take the packaged recording as A", "The run that this page shows at first.")]
    if waits:
        return [Action(CLEAR, "Clear")]
    return [
        Action(SWAP, "Swap A and B"),
        Action(KEEP, "Keep this run as A instead", "The run on the page takes the other's place."),
        Action(CLEAR, "Clear"),
    ]
