"""What the events of a `quantization` run say so far. Live, replay and scrubbing read the same state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from lab.events import Event
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
from widgets.words.naming import Naming
from widgets.words.state import WordsState

DENSE = "dense"
"""The name of the variant that is the model itself."""
NAMING = Naming(
    base=DENSE,
    changed="quantized",
    truths={
        "packed": "Packed kernels run.",
        "simulated": "SIMULATED: dequantized numbers run, no memory is saved.",
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


@dataclass
class QuantizationState(WordsState):
    """The run, indexed for the pictures. Everything here comes from an event.

    Attributes:
        worst: by matrix, of the run's own setting.
        map_steps: cells of the map and layers tried alone, in the order in which they came.
        coverage: the newest.
        packed: tokens by variant, in order; `variants` has their labels.
    """

    TASKS: ClassVar[tuple[str, ...]] = ("layer", "map", "pareto", "words", "packed")
    naming: ClassVar[Naming] = NAMING

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
    caches: dict[str, QuantizedCache] = field(default_factory=dict)
    packed: dict[str, list[PackedToken]] = field(default_factory=dict)
    packed_figures: dict[str, PackedFigures] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        """Take in an event of this experiment."""
        match event:
            case GridNote():
                self.grid = event
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
            case QuantizedCache():
                self.caches[event.variant] = event
            case PackedToken():
                self.packed.setdefault(event.variant, []).append(event)
            case PackedFigures():
                self.packed_figures[event.variant] = event
            case _:
                super().take(event)

    @property
    def steps(self) -> int:
        """What the player counts: histograms, parts of the map, settings, or new tokens of the longest row."""
        match self.task:
            case "map":
                return len(self.map_steps)
            case "pareto":
                return len(self.pareto)
            case "words":
                return self.word_steps
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
