"""A whole model quantized, as a shell: simulated, with the dequantized weights in the model's own dtype.

The shared model is never changed. Modules are taken one decoder layer after another, so that one layer's Hessians are
held at a time. In "sequential" calibration a layer is shown what the layers before it give once they are quantized
(GPTQ's way); in "one_shot" what the dense ones give. Memory: the text's hidden states and one layer's Hessians.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from lab.calibration.gather import CALIBRATIONS, KEEP, Calibration, check_calibration, head_inputs
from lab.calibration.hessian import Watch
from lab.calibration.inputs import LayerInputs
from lab.calibration.walk import LayerWalk
from lab.errors import BadInput, shown
from lab.models.linear import linear_module, out_in, output_head, say_untied, set_weight
from lab.models.shell import make_shell
from lab.quantization.awq import UNCLIPPED, Awq, AwqWeight, quantize_scaled, scaled_inputs
from lab.quantization.awq_layer import Folded, folding
from lab.quantization.awq_search import ScaleSearch
from lab.quantization.coverage import Coverage, coverage_of, linear_names
from lab.quantization.gptq import Gptq
from lab.quantization.method import Method
from lab.quantization.quantized import Quantized, Storage
from lab.steps import finished


@dataclass(frozen=True)
class Progress:
    """Where a whole-model run is.

    Attributes:
        share: done, 0 to 1.
        doing: "reading" calibration text, "searching" scales or "quantizing".
        place: the layer's or module's name.
        finished: the module that was just finished, if one was.
    """

    share: float
    doing: str
    place: str
    finished: ModuleResult | None = None


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
    work = _Work(model, methods, windows, calibration, head, keep_codes, keep_inputs)
    return work.run()


def quantize_model(model: nn.Module, methods: Method | Mapping[str, Method], **options: Any) -> WholeModel:
    """`quantizing`, run to its end at once."""
    return finished(quantizing(model, methods, **options))


class _Work:
    def __init__(
        self,
        model: nn.Module,
        methods: Method | Mapping[str, Method],
        windows: Sequence[Sequence[int]] | None,
        calibration: Calibration,
        head: bool,
        keep_codes: bool,
        keep_inputs: int,
    ) -> None:
        if calibration not in CALIBRATIONS:
            raise BadInput(
                f"There is no calibration {shown(calibration)}.", remedy=f"Choose {' or '.join(CALIBRATIONS)}."
            )
        self.model, self.shell = model, make_shell(model)
        if isinstance(methods, Mapping):
            self.methods = dict(methods)
        else:
            self.methods = dict.fromkeys(linear_names(self.shell, head=head), methods)
        if not self.methods:
            raise BadInput("No module was chosen to be quantized.", remedy="Choose at least one linear module.")
        self.modules = {name: linear_module(self.shell, name) for name in self.methods}
        for name, module in self.modules.items():
            grid = getattr(self.methods[name], "grid", None)
            if grid is not None:
                _named(name, lambda grid=grid, module=module: grid.group_size(out_in(module).shape[1]))
        needy = [name for name, method in self.methods.items() if method.wants_inputs]
        if windows is None and needy:
            raise BadInput(
                f"{self.methods[needy[0]].label} needs calibration text, for {needy[0]} and {len(needy) - 1} others.",
                remedy="Give calibration text.",
            )
        self.walk: LayerWalk | None = None
        if windows is not None:
            check_calibration(windows)
            self.walk = LayerWalk(self.shell, windows)
        self.sequential, self.calibration = calibration == "sequential", calibration
        self.keep_codes, self.keep_inputs = keep_codes, keep_inputs
        self.hessians = frozenset(name for name, method in self.methods.items() if method.wants_hessian)
        self.results: list[ModuleResult] = []
        self.searches: list[ScaleSearch] = []
        self.total = sum(out_in(module).numel() for module in self.modules.values())
        self.done = 0

    def run(self) -> Quantizing:
        left = dict(self.modules)
        if self.walk is not None:
            yield from self._progress(self.walk.embed(), "reading", "the embedding")
            for index, layer in enumerate(self.walk.names):
                inside = {name: left.pop(name) for name in list(left) if name.startswith(layer + ".")}
                yield from self._layer(self.walk, index, inside, last=not left)
                if not left:
                    break
            head = output_head(self.shell)
            for name in [name for name, module in left.items() if module is head]:
                watch = self._watch({name: left.pop(name)}, self.walk)
                yield from self._progress(head_inputs(self.walk, watch, self.modules[name]), "reading", name)
                yield from self._quantize([name], watch.results())
            if any(self.methods[name].wants_inputs for name in left):
                name = next(name for name in left if self.methods[name].wants_inputs)
                label = self.methods[name].label
                raise BadInput(
                    f"{name} lies outside the decoder layers, so that nothing is known of its inputs.",
                    remedy=f"Choose a method without calibration for it, or leave it dense, not {label}.",
                )
        for name in left:
            yield from self._quantize([name], {})
        used = self.walk is not None
        return WholeModel(
            self.shell,
            tuple(self.results),
            coverage_of(self.model, self.shell, {result.name: result.storage for result in self.results}),
            tuple(self.searches),
            self.calibration if used else "none",
            self.walk.tokens if self.walk is not None else 0,
        )

    def _layer(
        self, walk: LayerWalk, index: int, inside: dict[str, nn.Module], *, last: bool
    ) -> Generator[Progress, None, None]:
        place = walk.names[index]
        if not inside:
            yield from self._progress(walk.through(index, advance=True), "reading", place)
            return
        grids = {n: m.grid for n in inside if isinstance(m := self.methods[n], Awq)}
        at_once = not self.sequential and not grids
        watch = self._watch(inside, walk)
        yield from self._progress(walk.through(index, watch=watch, advance=at_once), "reading", place)
        inputs = watch.results()
        folded = Folded()
        if grids:
            folded = yield from self._progress(folding(walk, index, grids, inputs), "searching", place)
            self.searches += folded.searches
        if not self.sequential and not at_once:
            yield from self._progress(walk.through(index), "reading", place)
        for names in self._together(inside, inputs):
            yield from self._quantize(names, inputs, folded)
        if self.sequential and not last:
            yield from self._progress(walk.through(index), "reading", place)

    def _watch(self, modules: Mapping[str, nn.Module], walk: LayerWalk) -> Watch:
        return Watch(modules, hessian=self.hessians, expected=walk.tokens, keep=self.keep_inputs)

    def _together(self, inside: Mapping[str, nn.Module], inputs: Mapping[str, LayerInputs]) -> list[list[str]]:
        """Modules that one GPTQ run can do: those with the same method and the very same inputs."""
        groups: list[list[str]] = []
        for name in inside:
            method = self.methods[name]
            fitting = (
                group
                for group in groups
                if isinstance(method, Gptq) and self.methods[group[0]] == method and inputs[group[0]] is inputs[name]
            )
            group = next(fitting, None)
            if group is None:
                groups.append([name])
            else:
                group.append(name)
        return groups

    def _quantize(
        self, names: Sequence[str], inputs: Mapping[str, LayerInputs], folded: Folded | None = None
    ) -> Generator[Progress, None, None]:
        method, given = self.methods[names[0]], inputs.get(names[0])
        weights = [out_in(self.modules[name]) for name in names]
        unclipped = names[0].endswith(UNCLIPPED)
        made: Sequence[Quantized]
        try:
            if isinstance(method, Gptq):
                made = yield from self._progress(method.quantize_together(weights, given), "quantizing", names[0])
            elif folded is not None and names[0] in folded.modules and isinstance(method, Awq) and given is not None:
                one = yield from self._progress(
                    self._folded(names[0], weights[0], method, given, folded), "quantizing", names[0]
                )
                made = [one]
            else:
                alone = replace(method, clip=False) if isinstance(method, Awq) and unclipped else method
                one = yield from self._progress(alone.quantize(weights[0], given), "quantizing", names[0])
                made = [one]
        except BadInput as error:
            raise BadInput(f"{names[0]}: {error.message}", remedy=error.remedy) from error
        for name, quantized in zip(names, made, strict=True):
            self._put(name, method, quantized, given, folded or Folded())
            yield Progress(self.done / self.total, "quantizing", name, self.results[-1])

    def _folded(
        self, name: str, weight: Tensor, method: Awq, inputs: LayerInputs, folded: Folded
    ) -> Generator[float, None, Quantized]:
        """AWQ where the scales are in the weights already."""
        scales = folded.columns.get(name)
        reads = inputs if scales is None else scaled_inputs(inputs, scales)
        clip = method.clip and not name.endswith(UNCLIPPED)
        ones = torch.ones(weight.shape[1], device=weight.device)
        made, clipped = yield from quantize_scaled(weight.float(), ones, reads, method.grid, clip=clip)
        search = next(one for one in folded.searches if name in one.modules)
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

    def _put(self, name: str, method: Method, quantized: Quantized, inputs: LayerInputs | None, folded: Folded) -> None:
        """Give the shell's module the dequantized weight, and measure it against the dense one."""
        module = self.modules[name]
        with torch.no_grad():
            values = quantized.dequantize()
            set_weight(module, values)
            dense = out_in(linear_module(self.model, name)).float()
            columns, rows = folded.columns.get(name), folded.rows.get(name)
            if columns is not None:
                values = values / columns
            if rows is not None:
                values = values * rows[:, None]
            change = values - dense
            weight_error = _ratio(change, dense)
            output_error = None
            if inputs is not None and len(inputs.rows):
                output_error = _ratio(inputs.rows @ change.t(), inputs.rows @ dense.t())
        if module is output_head(self.shell):
            say_untied(self.shell)
        kept = quantized if self.keep_codes else None
        self.results.append(
            ModuleResult(
                name, method.name, quantized.storage, quantized.notes, weight_error, output_error, kept, columns, rows
            )
        )
        self.done += dense.numel()

    def _progress(self, steps: Generator[Any, None, Any], doing: str, place: str) -> Generator[Progress, None, Any]:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value
            yield Progress(self.done / self.total, doing, place)


def _named(name: str, check: Any) -> None:
    try:
        check()
    except BadInput as error:
        raise BadInput(f"{name}: {error.message}", remedy=error.remedy) from error


def _ratio(change: Tensor, whole: Tensor) -> float:
    """|change| / |whole|, Frobenius norms; 0 of nothing."""
    size = float(whole.norm())
    return float(change.norm()) / size if size > 0 else 0.0
