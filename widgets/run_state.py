"""What the events of every run say: the base of each experiment's state. Live, replay and scrubbing read the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from lab.events import Event, Progress, Proof, RunCancelled, RunFailed, RunFinished, RunStarted
from lab.events.decoding import PromptEncoded
from lab.events.evaluation import TextsChosen


@dataclass
class RunState:
    """The part of a run that all experiments have. A state below it is a dataclass that indexes its own events.

    Attributes:
        texts: calibration and held-out text, where the run uses any.
        end: how it ended; None while it goes.
    """

    started: RunStarted | None = None
    texts: TextsChosen | None = None
    prompt: PromptEncoded | None = None
    progress: Progress | None = None
    proof: Proof | None = None
    end: RunFinished | RunCancelled | RunFailed | None = None

    def fold(self, event: Event) -> None:
        """Take one event in. Events of other kinds change nothing here."""
        match event:
            case RunStarted():
                self.started = event
            case TextsChosen():
                self.texts = event
            case PromptEncoded():
                self.prompt = event
            case Progress():
                self.progress = event
            case Proof():
                self.proof = event
            case RunFinished() | RunCancelled() | RunFailed():
                self.end = event
            case _:
                self.take(event)

    def take(self, event: Event) -> None:
        """Take in an event of the experiment itself; a state below calls `super().take` with what it does not know."""

    def param(self, name: str, default: Any) -> Any:
        """A parameter of the run on screen."""
        return self.started.card.params.get(name, default) if self.started else default

    @property
    def finished(self) -> RunFinished | None:
        """The end of a run that came to its end; None for a living, a stopped and a failed one."""
        return self.end if isinstance(self.end, RunFinished) else None

    @property
    def prompt_length(self) -> int:
        """Tokens of the prompt, 0 before it is known."""
        return len(self.prompt.token_ids) if self.prompt else 0


@dataclass
class TaskState(RunState):
    """The state of an experiment that does one of several tasks, each with sections of its own.

    Attributes:
        TASKS: their names; the first stands for one that is not known.
    """

    TASKS: ClassVar[tuple[str, ...]] = ("",)

    @property
    def task(self) -> str:
        """What the run does: one of `TASKS`."""
        task = str(self.param("task", self.TASKS[0]))
        return task if task in self.TASKS else self.TASKS[0]

    @property
    def steps(self) -> int:
        """What the player counts, for the task of the run."""
        raise NotImplementedError
