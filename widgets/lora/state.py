"""What the events of a `lora` run say so far. Live, replay and scrubbing read the same state."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from lab.events import Event, RunCancelled
from lab.events.lora import (
    AdapterFacts,
    MergedModel,
    MergeFigures,
    OtherText,
    SwapRow,
    Trained,
    TrainingData,
    TrainStep,
    UpdateMap,
    UpdateSpectrum,
)
from lab.events.words import Variant, WordToken
from widgets.bar_table import Series
from widgets.words.naming import Naming
from widgets.words.state import WordsState

BASE, ADAPTER, MERGED = "base", "adapter", "merged"
"""Rows of words. Events call the base "dense", as in every experiment that compares a model with itself."""
_DENSE = "dense"
SERIES: dict[str, Series] = {BASE: 1, ADAPTER: 2, MERGED: 3}
"""The colour of each in every table of bars, as in the rows of words."""
NAMING = Naming(
    base=BASE,
    changed="adapted",
    truths={_DENSE: "Dense products in the run's own number format: nothing is simulated."},
)


@dataclass
class LoraState(WordsState):
    """The run, indexed for the pictures. Everything here comes from an event.

    Attributes:
        training: steps in order; the first, step 0, has the losses before training.
        adapters, maps, spectra: by the adapter's name, in the order in which they came.
        written: the merged model, if the run wrote it.
    """

    TASKS: ClassVar[tuple[str, ...]] = ("compare", "train", "swap", "merge")
    naming: ClassVar[Naming] = NAMING

    data: TrainingData | None = None
    training: list[TrainStep] = field(default_factory=list)
    trained: Trained | None = None
    adapters: dict[str, AdapterFacts] = field(default_factory=dict)
    maps: dict[str, UpdateMap] = field(default_factory=dict)
    spectra: dict[str, UpdateSpectrum] = field(default_factory=dict)
    merges: list[MergeFigures] = field(default_factory=list)
    written: MergedModel | None = None
    other_text: OtherText | None = None
    swaps: list[SwapRow] = field(default_factory=list)

    def take(self, event: Event) -> None:
        """Take in an event of this experiment."""
        match event:
            case TrainingData():
                self.data = event
            case TrainStep():
                self.training.append(event)
            case Trained():
                self.trained = event
            case MergeFigures():
                self.merges.append(event)
            case MergedModel():
                self.written = event
            case OtherText():
                self.other_text = event
            case SwapRow():
                self.swaps.append(event)
            case _:
                self._take_pictures(event)

    def _take_pictures(self, event: Event) -> None:
        match event:
            case AdapterFacts():
                self.adapters[event.name] = event
            case UpdateMap():
                self.maps[event.adapter] = event
            case UpdateSpectrum():
                self.spectra[event.adapter] = event
            case Variant(name="dense"):
                super().take(replace(event, name=BASE, label=BASE, truth=BASE))
            case WordToken(variant="dense"):
                super().take(replace(event, variant=BASE))
            case _:
                super().take(event)

    @property
    def steps(self) -> int:
        """What the player counts: new tokens, optimizer steps, rows of the swap, or kinds of base."""
        match self.task:
            case "train":
                return len(self.training)
            case "swap":
                return len(self.swaps)
            case "merge":
                return len(self.merges)
            case _:
                return self.word_steps

    @property
    def own(self) -> AdapterFacts | None:
        """The adapter that the run is about: the first that it told."""
        return next(iter(self.adapters.values()), None)

    @property
    def factor(self) -> float:
        """The scale that the run's adapted rows have: 1 after training."""
        wanted = 1.0 if self.task == "train" else self.param("factor", 1.0)
        fits = isinstance(wanted, int | float) and not isinstance(wanted, bool) and 0 <= wanted <= 2
        return float(wanted) if fits else 1.0


def stopped_while_training(state: LoraState) -> bool:
    """Whether the run was stopped after a step of its training: the best adapter so far is in memory then."""
    return isinstance(state.end, RunCancelled) and state.trained is None and any(s.step > 0 for s in state.training)


def layer_count(state: LoraState) -> int:
    """How many layers the model has."""
    facts = state.started.facts if state.started else None
    seen = max((m.norms.shape[0] for m in state.maps.values() if m.norms.shape), default=1)
    return max(len(facts.layers) if facts else 0, seen)
