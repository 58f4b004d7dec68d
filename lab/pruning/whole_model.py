"""A whole model pruned, as a shell: zeros in dense matrices of the model's own dtype. Nothing gets smaller by it.

The shared model is never changed. See `lab.calibration.layerwise` for the order of the work and the two ways to
calibrate; memory: the text's hidden states, one layer's Hessians, and a bit for each weight if masks are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from torch import Tensor, nn

from lab.calibration import layerwise
from lab.calibration.gather import KEEP, Calibration
from lab.calibration.inputs import LayerInputs
from lab.calibration.layerwise import Layerwise
from lab.models.linear import linear_module, linear_names, out_in
from lab.models.untouched import Skipped, untouched
from lab.pruning.given import Given
from lab.pruning.global_magnitude import NAME as GLOBAL
from lab.pruning.global_magnitude import global_magnitude
from lab.pruning.mask_bits import pack_mask, unpack_mask
from lab.pruning.method import Method, Pruned
from lab.pruning.pattern import Pattern
from lab.pruning.random import Random
from lab.pruning.sparsegpt import SparseGpt
from lab.steps import finished, relay


@dataclass(frozen=True)
class GlobalMagnitude:
    """One threshold for all chosen matrices of a model: `lab.pruning.global_magnitude`.

    Attributes:
        sparsity: of all of them together, 0 to 1.

    Raises:
        BadInput: a sparsity outside 0 to 1.
    """

    sparsity: float = 0.5

    def __post_init__(self) -> None:
        Pattern(self.sparsity)


@dataclass(frozen=True)
class ModuleResult:
    """One pruned matrix.

    Attributes:
        name: of the module.
        method: its method's name.
        shape: (out, in).
        kept: weights that the mask keeps.
        notes: see `Pruned`.
        weight_error: |W - W'| / |W|, Frobenius norms.
        output_error: |(W - W') x| / |W x| over kept calibration inputs; None without calibration.
        bits: the mask, packed (`lab.pruning.mask_bits`), if masks were asked for; else None.
    """

    name: str
    method: str
    shape: tuple[int, int]
    kept: int
    notes: tuple[str, ...]
    weight_error: float
    output_error: float | None
    bits: Tensor | None

    @property
    def weights(self) -> int:
        """All of them, kept or not."""
        return self.shape[0] * self.shape[1]

    @property
    def sparsity(self) -> float:
        """Share that is pruned, as counted."""
        return 1 - self.kept / self.weights

    @property
    def mask(self) -> Tensor | None:
        """(out, in) bool, True where a weight is kept; None if masks were not kept."""
        return None if self.bits is None else unpack_mask(self.bits, self.shape[1])


@dataclass(frozen=True)
class Coverage:
    """Every parameter of a pruned model, once.

    Attributes:
        parameters: of the pruned model, zeros among them; a head that was untied counts beside the embedding.
        chosen: of them in the pruned matrices.
        kept: of those.
        untied: whether a head was untied for it.
        skipped: what stayed dense, with reasons.
    """

    parameters: int
    chosen: int
    kept: int
    untied: bool
    skipped: tuple[Skipped, ...]

    @property
    def sparsity(self) -> float:
        """Of the chosen matrices together."""
        return 1 - self.kept / self.chosen

    @property
    def model_sparsity(self) -> float:
        """Of the whole model."""
        return (self.chosen - self.kept) / self.parameters


@dataclass(frozen=True)
class WholeModel:
    """A pruned model.

    Attributes:
        shell: runs as the pruned model; shares all that was not pruned with the model it was made from.
        modules: in the order in which they were done.
        coverage: what was pruned, what was not and why.
        calibration: "one_shot", "sequential" or "none".
        calibration_tokens: positions read.
        notes: on the model as a whole.
    """

    shell: nn.Module
    modules: tuple[ModuleResult, ...]
    coverage: Coverage
    calibration: str
    calibration_tokens: int
    notes: tuple[str, ...] = ()

    def masks(self) -> dict[str, Tensor]:
        """(out, in) bool by module name, of those whose masks were kept."""
        return {one.name: mask for one in self.modules if (mask := one.mask) is not None}


Progress = layerwise.Progress[ModuleResult]
"""`doing` is "reading", "comparing" all weights, or "pruning"."""

Pruning = Generator[Progress, None, WholeModel]


def pruning(
    model: nn.Module,
    methods: Method | GlobalMagnitude | Mapping[str, Method],
    *,
    windows: Sequence[Sequence[int]] | None = None,
    calibration: Calibration = "sequential",
    names: Sequence[str] | None = None,
    head: bool = False,
    keep_masks: bool = True,
    keep_inputs: int = KEEP,
) -> Pruning:
    """Prune a model's linear modules.

    Args:
        model: not changed.
        methods: one for all linear modules of the decoder layers, each with a seed of its own where it draws; or a
            method for each module name, the others staying dense.
        windows: calibration text as token ids, without padding. Needed if any method needs inputs; otherwise it is
            only used to measure output errors.
        calibration: see `lab.calibration.gather`.
        names: with one method, the modules to prune; None: all inside the decoder layers.
        head: with one method and no names, take the output head too. A head that is tied to the embedding is untied
            on the shell: the embedding stays dense, the pruned head is stored beside it.
        keep_masks: keep each module's mask, packed, in the result.
        keep_inputs: inputs of each module on which output errors are measured.

    Raises:
        BadInput: a pattern that does not fit a module (which is named), missing or too little calibration text, or
            an unknown way to calibrate.
        NotFound: a name that is no linear module.
        ModelError: a model that cannot be calibrated.
    """
    chosen = linear_names(model, head=head) if names is None else tuple(names)
    if isinstance(methods, GlobalMagnitude):
        return _globally(model, methods, chosen, windows, calibration, keep_masks, keep_inputs)
    each: Mapping[str, Method]
    if isinstance(methods, Mapping):
        each = methods
    elif isinstance(methods, Random):
        each = {name: methods.of_matrix(name) for name in chosen}
    else:
        each = dict.fromkeys(chosen, methods)
    return _Work(model, each, windows, calibration, keep_masks, keep_inputs).run()


def prune_model(
    model: nn.Module, methods: Method | GlobalMagnitude | Mapping[str, Method], **options: Any
) -> WholeModel:
    """`pruning`, run to its end at once."""
    return finished(pruning(model, methods, **options))


def _globally(
    model: nn.Module,
    method: GlobalMagnitude,
    names: Sequence[str],
    windows: Sequence[Sequence[int]] | None,
    calibration: Calibration,
    keep_masks: bool,
    keep_inputs: int,
) -> Pruning:
    weights = {name: out_in(linear_module(model, name)) for name in names}
    found = yield from relay(
        global_magnitude(weights, method.sparsity), lambda _: Progress(0.0, "comparing", "all weights")
    )
    each = {name: Given(mask) for name, mask in found.masks.items()}
    work = _Work(model, {name: each[name] for name in names}, windows, calibration, keep_masks, keep_inputs)
    return (yield from work.run(GLOBAL, found.notes))


class _Work(Layerwise[Method, ModuleResult]):
    doing: ClassVar[str] = "pruning"
    done: ClassVar[str] = "pruned"

    def __init__(
        self,
        model: nn.Module,
        methods: Mapping[str, Method],
        windows: Sequence[Sequence[int]] | None,
        calibration: Calibration,
        keep_masks: bool,
        keep_inputs: int,
    ) -> None:
        super().__init__(model, methods, windows, calibration, head=False, keep_inputs=keep_inputs)
        self._keep_masks = keep_masks
        self._name = ""

    def run(self, name: str = "", notes: tuple[str, ...] = ()) -> Pruning:
        """All of it. `name`: of the method, where it is not each module's."""
        self._name = name
        yield from self.walking()
        rest = untouched(self.model, self.shell, self.modules)
        kept, weights = sum(one.kept for one in self.results), sum(one.weights for one in self.results)
        return WholeModel(
            self.shell,
            tuple(self.results),
            Coverage(rest.parameters, weights, kept, rest.untied, rest.skipped),
            self.calibration,
            self.tokens,
            notes,
        )

    def check(self, method: Method, columns: int) -> None:
        method.pattern.check(columns)

    def together(self, first: Method, second: Method) -> bool:
        return isinstance(first, SparseGpt) and first == second

    def take(
        self, names: Sequence[str], weights: Sequence[Tensor], inputs: LayerInputs | None
    ) -> Generator[Progress, None, Sequence[Callable[[], Generator[float, None, ModuleResult]]]]:
        method = self.methods[names[0]]
        made: Sequence[Pruned]
        if isinstance(method, SparseGpt):
            made = yield from self.progress(method.prune_together(weights, inputs), self.doing, names[0])
        else:
            one = yield from self.progress(method.prune(weights[0], inputs), self.doing, names[0])
            made = [one]
        return [partial(self._finish, name, one, inputs) for name, one in zip(names, made, strict=True)]

    def _finish(self, name: str, made: Pruned, inputs: LayerInputs | None) -> Generator[float, None, ModuleResult]:
        weight_error, output_error = yield from self.put(name, made.values, inputs)
        return ModuleResult(
            name=name,
            method=self._name or self.methods[name].name,
            shape=(made.mask.shape[0], made.mask.shape[1]),
            kept=made.kept,
            notes=made.notes,
            weight_error=weight_error,
            output_error=output_error,
            bits=pack_mask(made.mask) if self._keep_masks else None,
        )
