"""Run, Stop, a progress bar and one line of words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from widgets.view import View

PHASES = ("idle", "queued", "loading", "running", "stopping", "done", "failed", "stopped")


class RunnerBar(View):
    """Starts and stops a run and shows how far it is."""

    module: ClassVar[str] = "runner_bar"
    defaults: ClassVar[Mapping[str, Any]] = {"phase": "idle", "fraction": None, "note": "", "can_run": True}

    def __init__(self) -> None:
        super().__init__()

    def show(self, phase: str, fraction: float | None = None, note: str = "", *, can_run: bool = True) -> None:
        """Show a phase of `PHASES`.

        Args:
            fraction: of the work done, 0..1; None while unknown.
            note: "token 37 of 52 · 24.8 tokens/s"; "" takes a word for the phase.
            can_run: False locks Run, while a field is wrong for example.

        Raises:
            ValueError: no such phase.
        """
        if phase not in PHASES:
            raise ValueError(f"no phase {phase!r}; there are {', '.join(PHASES)}")
        self._put(phase=phase, fraction=fraction, note=note, can_run=can_run)

    def on_run(self, callback: Callable[[], object]) -> None:
        """Call `callback()` when Run is pressed."""
        self._listen_plain("run", callback)

    def on_stop(self, callback: Callable[[], object]) -> None:
        """Call `callback()` when Stop is pressed."""
        self._listen_plain("stop", callback)
