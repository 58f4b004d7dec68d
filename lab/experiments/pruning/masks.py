"""The task "masks": one projection of a few layers by several methods: masks, errors, what SparseGPT passes on."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from lab.calibration.inputs import LayerInputs
from lab.events import ArrayData
from lab.events.pruning import SparseGptReplay
from lab.experiments.base import Outcome, RunGenerator
from lab.experiments.compared.progress import Made, Part, progress, shares
from lab.experiments.compared.targets import Target, pick
from lab.experiments.pruning.choices import MethodName
from lab.experiments.pruning.settings import Scheme
from lab.experiments.pruning.setup import Setup
from lab.experiments.pruning.stored import KeptCounts, stored_bytes
from lab.experiments.pruning.study import Studied, mask_made, prune_errors, studying
from lab.pruning.global_magnitude import global_magnitude
from lab.pruning.mask_bits import kept_per_row, pack_mask
from lab.pruning.sparsegpt import SparseGpt
from lab.pruning.sparsegpt_replay import Replay, replaying
from lab.steps import relay

BESIDE: tuple[MethodName, ...] = ("random", "magnitude", "wanda", "sparsegpt")
"""What the chosen method is compared with, in this order."""
REPLAYED_ROWS = (0, 1, 2, 3, 4, 5)
REPLAYED_COLUMNS = 64


def schemes_beside(chosen: Scheme) -> list[Scheme]:
    """The chosen one first, then those that it is compared with."""
    return [chosen, *(chosen.by(name) for name in BESIDE if name != chosen.method)]


@dataclass
class MaskStudy:
    """One run of the task."""

    setup: Setup
    calibration: dict[str, LayerInputs] = field(default_factory=dict)
    held_out: dict[str, LayerInputs] = field(default_factory=dict)
    everywhere: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        p = self.setup.params
        self.targets = [pick(self.setup.loaded, self.setup.targets, layer, p.projection) for layer in p.layers]
        for target in self.targets:
            self.setup.scheme.spec.check(target.weight.shape[1])

    def events(self) -> RunGenerator:
        """All events of the run."""
        yield from self.setup.begin()
        # Magnitude reads no text, so that there is something to see at once.
        first = yield from self._magnitude(self.targets[0])
        names = [target.name for target in self.targets]
        self.calibration, self.held_out = yield from self.setup.texts.inputs(names)
        if self.setup.scheme.method == "global_magnitude":
            yield from self._threshold_of_all()
        for target in self.targets:
            magnitude = first if target is self.targets[0] else (yield from self._magnitude(target))
            yield from self._matrix(target, magnitude)
        yield from self.setup.proving()
        return Outcome()

    def schemes(self) -> list[Scheme]:
        """The chosen one first."""
        return schemes_beside(self.setup.scheme)

    def _threshold_of_all(self) -> Part:
        weights = {target.name: target.weight for target in self.setup.targets}
        found = yield from relay(
            global_magnitude(weights, self.setup.scheme.sparsity), shares("comparing the weights of all layers")
        )
        self.everywhere = {target.name: found.masks[target.name] for target in self.targets}

    def _magnitude(self, target: Target) -> Made[Studied]:
        """Magnitude's mask, which the others are measured against."""
        scheme = self.setup.scheme.by("magnitude")
        studied = yield from self._studied(target, scheme, None)
        yield mask_made(studied, chosen=scheme == self.setup.scheme)
        return studied

    def _matrix(self, target: Target, magnitude: Studied) -> Part:
        inputs, held_out = self.calibration[target.name], self.held_out[target.name]
        kept: dict[str, Tensor] = {}
        base = prune_errors(magnitude, inputs, held_out, None)
        yield base
        for scheme in self.schemes():
            chosen = scheme == self.setup.scheme
            if scheme.method == "magnitude":
                studied = magnitude
            else:
                studied = yield from self._studied(target, scheme, inputs)
                yield mask_made(studied, chosen=chosen)
                yield prune_errors(studied, inputs, held_out, base.calibration_error)
            yield from self._checked(studied, inputs)
            kept[scheme.method] = pack_mask(studied.mask)
            if chosen:
                rows, columns = studied.mask.shape
                full = int((kept_per_row(kept[scheme.method]) > 0).sum())
                counts = KeptCounts(target.name, rows, columns, int(studied.mask.sum()), full)
                yield stored_bytes(scheme, target.title, [counts], target.weight.element_size())
                yield (yield from self._replay(target, scheme, inputs)) if scheme.method == "sparsegpt" else None
        masks = self.setup.context.kept.setdefault("masks", {})
        for method, bits in kept.items():
            masks[target.layer, target.projection, method] = bits

    def _studied(self, target: Target, scheme: Scheme, inputs: LayerInputs | None) -> Made[Studied]:
        mistake = self.setup.params.break_run if scheme == self.setup.scheme else "nothing"
        stage = f"{target.title}: {scheme.setting.label}"
        if scheme.method == "global_magnitude":
            mask = self.everywhere[target.name]
            return Studied.of_mask(target, scheme, mask, mistake)
        return (yield from studying(target, scheme, scheme.make(target.name), inputs, mistake, stage))

    def _checked(self, studied: Studied, inputs: LayerInputs) -> Part:
        checked, dtype = self.setup.checked, self.setup.loaded.dtype
        squares = inputs.mean_square if studied.scheme.method == "wanda" else None
        sample = checked.take(
            studied.target.title, studied.scheme, studied.target.weight, studied.mask, studied.made.values, squares
        )
        yield None
        checked.settle(sample, studied.runs.to(dtype))

    def _replay(self, target: Target, scheme: Scheme, inputs: LayerInputs) -> Made[SparseGptReplay]:
        method = scheme.make(target.name)
        if not isinstance(method, SparseGpt):
            raise TypeError(scheme.method)
        rows = [row for row in REPLAYED_ROWS if row < target.weight.shape[0]]
        count = min(REPLAYED_COLUMNS, target.weight.shape[1])
        found = yield from relay(
            replaying(target.weight, inputs, method, rows, count=count), lambda s: progress("replaying", s, 1)
        )
        return replay_event(target, found, method)


def replay_event(target: Target, found: Replay, method: SparseGpt) -> SparseGptReplay:
    """As it travels."""

    def sent(tensor: Tensor) -> ArrayData:
        return ArrayData.of(tensor.numpy(), "float32")

    return SparseGptReplay(
        layer=target.layer,
        projection=target.projection,
        rows=found.rows,
        start=found.start,
        width=target.weight.shape[1],
        original=sent(found.original),
        at_turn=sent(found.at_turn),
        score=sent(found.score),
        mask=ArrayData.of(found.mask.numpy(), "uint8"),
        values=sent(found.values),
        error=sent(found.error),
        spread=sent(found.spread),
        magnitude_loss=sent(found.magnitude_loss),
        final_loss=sent(found.final_loss),
        damping=found.damping,
        block=method.block,
    )


def study_masks(setup: Setup) -> RunGenerator:
    """Yield the events of the task."""
    return (yield from MaskStudy(setup).events())
