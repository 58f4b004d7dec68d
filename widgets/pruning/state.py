"""What the events of a `pruning` run say so far. Live, replay and scrubbing read the same state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from lab.events import Event
from lab.events.pruning import (
    CurvePoint,
    LayersPruned,
    MaskMade,
    PrunedCoverage,
    PruneErrors,
    PruneSetting,
    Recovered,
    RecoveryStep,
    SparseGptReplay,
    SparsityCell,
    StoredBytes,
    TimedFigures,
    TimedToken,
    VariantLoss,
)
from widgets.words.naming import Naming
from widgets.words.state import WordsState

DENSE = "dense"
"""The name of the variant that is the model itself."""
NAMING = Naming(
    base=DENSE,
    changed="pruned",
    truths={
        "simulated": "SIMULATED: zeros stand in dense tensors, no memory is saved.",
        "dense, smaller": "A smaller dense model: rows and columns are gone.",
    },
)


class Matrix(NamedTuple):
    """A weight matrix of the model."""

    layer: int
    projection: str

    @property
    def title(self) -> str:
        """For a person: "layer 0 q_proj"."""
        return f"layer {self.layer} {self.projection}"


def magnitude_of(errors: Iterable[PruneErrors]) -> PruneErrors | None:
    """What magnitude loses, among the errors of one matrix."""
    return next((e for e in errors if e.setting.method == "magnitude"), None)


@dataclass
class PruningState(WordsState):
    """The run, indexed for the pictures. Everything here comes from an event.

    Attributes:
        pruned: matrices of the whole model, as they were done.
        coverage: the newest.
        stored: by scope, the newest of each.
        timed: tokens by variant, in order; timed_figures, losses: by variant.
    """

    TASKS: ClassVar[tuple[str, ...]] = ("masks", "curve", "words", "savings", "recover")
    naming: ClassVar[Naming] = NAMING

    masks: list[MaskMade] = field(default_factory=list)
    errors: list[PruneErrors] = field(default_factory=list)
    replays: list[SparseGptReplay] = field(default_factory=list)
    pruned: list[LayersPruned] = field(default_factory=list)
    coverage: PrunedCoverage | None = None
    curve: list[CurvePoint] = field(default_factory=list)
    stored: dict[tuple[str, str], StoredBytes] = field(default_factory=dict)
    timed: dict[str, list[TimedToken]] = field(default_factory=dict)
    timed_figures: dict[str, TimedFigures] = field(default_factory=dict)
    losses: dict[str, VariantLoss] = field(default_factory=dict)
    recovery: list[RecoveryStep] = field(default_factory=list)
    recovered: Recovered | None = None

    def take(self, event: Event) -> None:
        """Take in an event of this experiment."""
        match event:
            case MaskMade():
                self.masks.append(event)
            case PruneErrors():
                self.errors.append(event)
            case SparseGptReplay():
                self.replays.append(event)
            case LayersPruned():
                self.pruned.append(event)
            case PrunedCoverage():
                self.coverage = event
            case CurvePoint():
                self.curve.append(event)
            case StoredBytes():
                self.stored[event.scope, event.setting.label] = event
            case _:
                self._fold_runs(event)

    def _fold_runs(self, event: Event) -> None:
        match event:
            case TimedToken():
                self.timed.setdefault(event.variant, []).append(event)
            case TimedFigures():
                self.timed_figures[event.variant] = event
            case VariantLoss():
                self.losses[event.variant] = event
            case RecoveryStep():
                self.recovery.append(event)
            case Recovered():
                self.recovered = event
            case _:
                super().take(event)

    @property
    def steps(self) -> int:
        """What the player counts: masks, points of the curve, new tokens, or steps of the fine-tune."""
        match self.task:
            case "curve":
                return len(self.curve)
            case "words":
                return self.word_steps
            case "savings":
                return max((len(row) for row in self.timed.values()), default=0)
            case "recover":
                return len(self.recovery)
            case _:
                return len(self.masks)

    def shown_masks(self, upto: int) -> list[MaskMade]:
        """The masks up to step `upto` where steps are masks, else all."""
        return self.masks[: upto + 1] if self.task == "masks" else self.masks

    @property
    def setting(self) -> PruneSetting | None:
        """The setting that the run was asked for, as far as an event has told it."""
        chosen = next((m.setting for m in self.masks if m.chosen), None)
        point = next((p.setting for p in self.curve if p.chosen), None)
        whole = self.coverage.setting if self.coverage else None
        return chosen or point or whole or (self.pruned[0].setting if self.pruned else None)

    @property
    def map_settings(self) -> list[PruneSetting]:
        """Settings that the whole model was pruned by, in the order in which they came."""
        return list(dict.fromkeys(p.setting for p in self.pruned))

    def cells(self, setting: PruneSetting) -> dict[Matrix, SparsityCell]:
        """The matrices of the whole model by one setting."""
        return {Matrix(c.layer, c.projection): c for p in self.pruned if p.setting == setting for c in p.cells}


def matrices(masks: list[MaskMade]) -> list[Matrix]:
    """Those with masks, in the order in which they came."""
    return list(dict.fromkeys(Matrix(m.layer, m.projection) for m in masks))


def layer_count(state: PruningState) -> int:
    """How many layers the model has."""
    facts = state.started.facts if state.started else None
    seen = max((c.layer + 1 for p in state.pruned for c in p.cells), default=1)
    return max(len(facts.layers) if facts else 0, seen)
