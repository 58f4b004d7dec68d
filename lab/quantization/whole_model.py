"""A whole model quantized, as a shell: simulated, with the dequantized weights in the model's own dtype.

The shared model is never changed. Modules are taken one decoder layer after another, so that one layer's Hessians are
held at a time. In "sequential" calibration a layer is shown what the layers before it give once they are quantized
(GPTQ's way); in "one_shot" what the dense ones give. Memory: the text's hidden states and one layer's Hessians.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from lab.calibration import layerwise
from lab.calibration.gather import KEEP, Calibration
from lab.calibration.inputs import LayerInputs
from lab.calibration.layerwise import Layerwise
from lab.calibration.walk import LayerWalk
from lab.quantization.awq import UNCLIPPED, Awq, AwqWeight, quantize_scaled, scaled_inputs
from lab.quantization.awq_layer import Folded, folding
from lab.quantization.awq_search import ScaleSearch
from lab.quantization.coverage import Coverage, coverage_of
from lab.quantization.gptq import Gptq
from lab.quantization.method import Method
from lab.quantization.quantized import Quantized, Storage
from lab.steps import finished


@dataclass(frozen=True)
class ModuleResult:
    """One quantized matrix.

    Attributes:
        name: of the module.
        method: its method's name.
        storage: bits, everything counted.
        notes: see `Quantized`.
        weight_error: |W - W'| / |W|, Frobenius norms.
        output_error: |(W - W') x| / |W x| over kept calibration inputs; None without calibration.
        quantized: the codes, if they were asked for; else None.
        columns, rows: (in,) and (out,) where AWQ multiplied the weights and folded the opposite into what stands
            before and after, before codes were made; None where it did not. See `unfolded`.
    """

    name: str
    method: str
    storage: Storage
    notes: tuple[str, ...]
    weight_error: float
    output_error: float | None
    quantized: Quantized | None
    columns: Tensor | None = None
    rows: Tensor | None = None

    def unfolded(self, values: Tensor) -> Tensor:
        """(out, in) values of the codes as they count beside the dense weights: without what was folded away."""
        if self.columns is not None:
            values = values / self.columns
        return values if self.rows is None else values * self.rows[:, None]


Progress = layerwise.Progress[ModuleResult]
"""`doing` is "reading", "searching" scales or "quantizing"."""


@dataclass(frozen=True)
class WholeModel:
    """A quantized model.

    Attributes:
        shell: runs as the quantized model would; shares all else with the model it was made from.
        modules: in the order in which they were done.
        coverage: what was quantized, what was not and why.
        searches: AWQ's, by block.
        calibration: "one_shot", "sequential" or "none".
        calibration_tokens: positions read.
    """

    shell: nn.Module
    modules: tuple[ModuleResult, ...]
    coverage: Coverage
    searches: tuple[ScaleSearch, ...]
    calibration: str
    calibration_tokens: int

    @property
    def bits_per_weight(self) -> float:
        """Of the quantized matrices, with all overhead."""
        return sum(m.storage.bits for m in self.modules) / sum(m.storage.weights for m in self.modules)


Quantizing = Generator[Progress, None, WholeModel]


def quantizing(
    model: nn.Module,
    methods: Method | Mapping[str, Method],
    *,
    windows: Sequence[Sequence[int]] | None = None,
    calibration: Calibration = "sequential",
    head: bool = False,
    keep_codes: bool = False,
    keep_inputs: int = KEEP,
) -> Quantizing:
    """Quantize a model's linear modules.

    Args:
        model: not changed.
        methods: one method for all linear modules of the decoder layers; or a method for each module name, the others
            staying dense (mixed precision).
        windows: calibration text as token ids, without padding. Needed if any method needs inputs; otherwise it is
            only used to measure output errors.
        calibration: see `lab.calibration.gather`.
        head: with one method for all, take the output head too. A head that is tied to the embedding is untied on the
            shell: the embedding stays dense, the quantized head is stored beside it.
        keep_codes: keep each module's codes in the result.
        keep_inputs: inputs of each module on which output errors are measured.

    Raises:
        BadInput: a group size that does not fit a module (which is named), missing or too little calibration text, or
            an unknown way to calibrate.
        NotFound: a name that is no linear module.
        ModelError: a model that cannot be calibrated.
    """
    return _Work(model, methods, windows, calibration, head=head, keep_inputs=keep_inputs, keep_codes=keep_codes).run()


def quantize_model(model: nn.Module, methods: Method | Mapping[str, Method], **options: Any) -> WholeModel:
    """`quantizing`, run to its end at once."""
    return finished(quantizing(model, methods, **options))


class _Work(Layerwise[Method, ModuleResult]):
    doing: ClassVar[str] = "quantizing"
    done: ClassVar[str] = "quantized"

    def __init__(
        self,
        model: nn.Module,
        methods: Method | Mapping[str, Method],
        windows: Sequence[Sequence[int]] | None,
        calibration: Calibration,
        *,
        head: bool,
        keep_inputs: int,
        keep_codes: bool,
    ) -> None:
        super().__init__(model, methods, windows, calibration, head=head, keep_inputs=keep_inputs)
        self.keep_codes = keep_codes
        self.searches: list[ScaleSearch] = []
        self.folded = Folded()

    def run(self) -> Quantizing:
        yield from self.walking()
        return WholeModel(
            self.shell,
            tuple(self.results),
            coverage_of(self.model, self.shell, {result.name: result.storage for result in self.results}),
            tuple(self.searches),
            self.calibration,
            self.tokens,
        )

    def check(self, method: Method, columns: int) -> None:
        grid = getattr(method, "grid", None)
        if grid is not None:
            grid.group_size(columns)

    def reworks(self, names: Sequence[str]) -> bool:
        self.folded = Folded()
        return any(isinstance(self.methods[name], Awq) for name in names)

    def rework(
        self, walk: LayerWalk, index: int, names: Sequence[str], inputs: Mapping[str, LayerInputs]
    ) -> Generator[Progress, None, None]:
        """AWQ's scales, folded into the layer."""
        grids = {name: method.grid for name in names if isinstance(method := self.methods[name], Awq)}
        self.folded = yield from self.progress(folding(walk, index, grids, inputs), "searching", walk.names[index])
        self.searches += self.folded.searches

    def together(self, first: Method, second: Method) -> bool:
        return isinstance(first, Gptq) and first == second

    def take(
        self, names: Sequence[str], weights: Sequence[Tensor], inputs: LayerInputs | None
    ) -> Generator[Progress, None, Sequence[Callable[[], Generator[float, None, ModuleResult]]]]:
        method, name = self.methods[names[0]], names[0]
        made: Sequence[Quantized]
        if isinstance(method, Gptq):
            made = yield from self.progress(method.quantize_together(weights, inputs), self.doing, name)
        else:
            steps: Generator[float, None, Quantized]
            if isinstance(method, Awq) and name in self.folded.modules and inputs is not None:
                steps = self._folded(name, weights[0], method, inputs)
            elif isinstance(method, Awq) and name.endswith(UNCLIPPED):
                steps = replace(method, clip=False).quantize(weights[0], inputs)
            else:
                steps = method.quantize(weights[0], inputs)
            one = yield from self.progress(steps, self.doing, name)
            made = [one]
        return [partial(self._finish, name, one, inputs) for name, one in zip(names, made, strict=True)]

    def _folded(self, name: str, weight: Tensor, method: Awq, inputs: LayerInputs) -> Generator[float, None, Quantized]:
        """AWQ where the scales are in the weights already."""
        scales = self.folded.columns.get(name)
        reads = inputs if scales is None else scaled_inputs(inputs, scales)
        clip = method.clip and not name.endswith(UNCLIPPED)
        ones = torch.ones(weight.shape[1], device=weight.device)
        made, clipped = yield from quantize_scaled(weight.float(), ones, reads, method.grid, clip=clip)
        search = next(one for one in self.folded.searches if name in one.modules)
        notes = (*made.notes, *((search.reason,) if search.reason else ()))
        best = search.ratios[search.best] if search.ratios else 0.0
        return AwqWeight(
            made.grid,
            made.shape,
            made.codes,
            made.affine,
            notes=notes,
            ratios=search.ratios,
            errors=search.errors,
            ratio=best,
            protected=search.protected,
            clipped=clipped,
        )

    def _finish(
        self, name: str, quantized: Quantized, inputs: LayerInputs | None
    ) -> Generator[float, None, ModuleResult]:
        """Give the shell's module the dequantized weight, and measure it against the dense one."""
        result = ModuleResult(
            name=name,
            method=self.methods[name].name,
            storage=quantized.storage,
            notes=quantized.notes,
            weight_error=0.0,
            output_error=None,
            quantized=quantized if self.keep_codes else None,
            columns=self.folded.columns.get(name),
            rows=self.folded.rows.get(name),
        )
        weight_error, output_error = yield from self.put(name, quantized.dequantize(), inputs, result.unfolded)
        return replace(result, weight_error=weight_error, output_error=output_error)
