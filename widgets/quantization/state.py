"""What the events of a `quantization` run say so far. Live, replay and scrubbing read the same state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lab.events import Event, Progress, Proof, RunCancelled, RunFailed, RunFinished, RunStarted
from lab.events.decoding import PromptEncoded
from lab.events.evaluation import TextsChosen, TextUsed
from lab.events.quantization import (
    Coverage,
    ErrorHistogram,
    GridNote,
    LayerErrors,
    MapCell,
    MapCells,
    ModelErrors,
    ParetoPoint,
    RankingNote,
    Sensitivity,
    Setting,
    WorstWeights,
)
from lab.events.quantization_methods import (
    ActivationRanges,
    FormatsTable,
    GptqReplay,
    LevelsShown,
    OutlierFeatures,
    ScaleSearch,
)
from lab.events.quantization_words import PackedFigures, PackedToken, QuantizedCache
from lab.events.words import Variant, WordsCompared, WordToken

TASKS = ("layer", "map", "pareto", "words", "packed")
DENSE = "dense"
"""The name of the variant that is the model itself."""


class Matrix(NamedTuple):
    """A weight matrix of the model."""

    layer: int
    projection: str

    @property
    def title(self) -> str:
        """For a person: "layer 0 q_proj"."""
        return f"layer {self.layer} {self.projection}"


@dataclass
class QuantizationState:
    """The run, indexed for the pictures. Everything here comes from an event.

    Attributes:
        worst: by matrix, of the run's own setting.
        map_steps: cells of the map and layers tried alone, in the order in which they came.
        coverage: the newest.
        words, packed: tokens by variant, in order; `variants` has their labels.
    """

    started: RunStarted | None = None
    texts: TextsChosen | None = None
    grid: GridNote | None = None
    histograms: list[ErrorHistogram] = field(default_factory=list)
    worst: dict[Matrix, WorstWeights] = field(default_factory=dict)
    layer_errors: list[LayerErrors] = field(default_factory=list)
    model_errors: list[ModelErrors] = field(default_factory=list)
    rankings: list[RankingNote] = field(default_factory=list)
    map_steps: list[MapCells | Sensitivity] = field(default_factory=list)
    pareto: list[ParetoPoint] = field(default_factory=list)
    coverage: Coverage | None = None
    levels: list[LevelsShown] = field(default_factory=list)
    scale_searches: list[ScaleSearch] = field(default_factory=list)
    replays: list[GptqReplay] = field(default_factory=list)
    outliers: list[OutlierFeatures] = field(default_factory=list)
    activations: list[ActivationRanges] = field(default_factory=list)
    formats: list[FormatsTable] = field(default_factory=list)
    prompt: PromptEncoded | None = None
    variants: dict[str, Variant] = field(default_factory=dict)
    words: dict[str, list[WordToken]] = field(default_factory=dict)
    compared: dict[str, WordsCompared] = field(default_factory=dict)
    caches: dict[str, QuantizedCache] = field(default_factory=dict)
    packed: dict[str, list[PackedToken]] = field(default_factory=dict)
    packed_figures: dict[str, PackedFigures] = field(default_factory=dict)
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
            case GridNote():
                self.grid = event
            case Progress():
                self.progress = event
            case Proof():
                self.proof = event
            case RunFinished() | RunCancelled() | RunFailed():
                self.end = event
            case Coverage():
                self.coverage = event
            case MapCells() | Sensitivity():
                self.map_steps.append(event)
            case ParetoPoint():
                self.pareto.append(event)
            case _:
                self._fold_layer(event)
                self._fold_words(event)

    def _fold_layer(self, event: Event) -> None:
        match event:
            case ErrorHistogram():
                self.histograms.append(event)
            case WorstWeights():
                self.worst[Matrix(event.layer, event.projection)] = event
            case LayerErrors():
                self.layer_errors.append(event)
            case ModelErrors():
                self.model_errors.append(event)
            case RankingNote():
                self.rankings.append(event)
            case LevelsShown():
                self.levels.append(event)
            case ScaleSearch():
                self.scale_searches.append(event)
            case GptqReplay():
                self.replays.append(event)
            case OutlierFeatures():
                self.outliers.append(event)
            case ActivationRanges():
                self.activations.append(event)
            case FormatsTable():
                self.formats.append(event)
            case _:
                pass

    def _fold_words(self, event: Event) -> None:
        match event:
            case PromptEncoded():
                self.prompt = event
            case Variant():
                self.variants[event.name] = event
            case WordToken():
                self.words.setdefault(event.variant, []).append(event)
            case WordsCompared():
                self.compared[event.variant] = event
            case QuantizedCache():
                self.caches[event.variant] = event
            case PackedToken():
                self.packed.setdefault(event.variant, []).append(event)
            case PackedFigures():
                self.packed_figures[event.variant] = event
            case _:
                pass

    def param(self, name: str, default: Any) -> Any:
        """A parameter of the run on screen."""
        return self.started.card.params.get(name, default) if self.started else default

    @property
    def task(self) -> str:
        """What the run does: one of `TASKS`."""
        task = str(self.param("task", "layer"))
        return task if task in TASKS else "layer"

    @property
    def steps(self) -> int:
        """What the player counts: histograms, parts of the map, settings, or new tokens of the longest row."""
        match self.task:
            case "map":
                return len(self.map_steps)
            case "pareto":
                return len(self.pareto)
            case "words":
                return max((len(row) for row in self.words.values()), default=0)
            case "packed":
                return max((len(row) for row in self.packed.values()), default=0)
            case _:
                return len(self.histograms)

    @property
    def matrices(self) -> list[Matrix]:
        """Those studied so far, in the order in which they came."""
        return list(dict.fromkeys(Matrix(h.layer, h.projection) for h in self.histograms))

    def histograms_of(self, matrix: Matrix, upto: int | None = None) -> list[ErrorHistogram]:
        """Of one matrix, the coarsest groups first.

        Args:
            upto: the last of all the run's histograms to count.
        """
        counted = self.histograms[: None if upto is None else upto + 1]
        return [h for h in counted if (h.layer, h.projection) == matrix]

    @property
    def setting(self) -> Setting | None:
        """The setting that the run was asked for, as far as an event has told it."""
        chosen = next((h.setting for h in self.histograms if h.chosen), None)
        point = next((p.setting for p in self.pareto if p.chosen), None)
        first = next((c.setting for c in self.map_steps), None)
        return chosen or point or first or (self.coverage.setting if self.coverage else None)

    def cells(self, upto: int | None = None) -> dict[Matrix, MapCell]:
        """The map up to its step `upto`."""
        steps = self.map_steps[: None if upto is None else upto + 1]
        return {Matrix(c.layer, c.projection): c for s in steps if isinstance(s, MapCells) for c in s.cells}

    def sensitivities(self, upto: int | None = None) -> list[Sensitivity]:
        """The layers tried alone up to step `upto` of the map."""
        return [s for s in self.map_steps[: None if upto is None else upto + 1] if isinstance(s, Sensitivity)]

    def text(self, role: str) -> TextUsed | None:
        """The text of a role: "calibration" or "held-out"."""
        return next((t for t in self.texts.texts if t.role == role), None) if self.texts else None
