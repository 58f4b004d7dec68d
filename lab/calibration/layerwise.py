"""A whole model changed on a shell, matrix after matrix, one decoder layer after another.

What quantizing and pruning share: which modules, which inputs they are shown, what may be done at once, errors beside
the dense model. One layer's Hessians are held at a time. In "sequential" calibration a layer is shown what the layers
before it give once they are changed; in "one_shot" what the dense ones give.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from lab.calibration.gather import CALIBRATIONS, Calibration, check_calibration, head_inputs
from lab.calibration.hessian import Watch
from lab.calibration.inputs import LayerInputs
from lab.calibration.walk import LayerWalk
from lab.errors import BadInput, shown
from lab.models.linear import linear_module, linear_names, out_in, output_head, say_untied, set_weight
from lab.models.shell import make_shell
from lab.steps import relay


class CalibratedMethod(Protocol):
    """What is asked of a method here."""

    name: ClassVar[str]
    label: ClassVar[str]

    @property
    def wants_inputs(self) -> bool: ...

    @property
    def wants_hessian(self) -> bool: ...


PRODUCTS = 2**29
"""Multiplications between two pauses where errors are measured: some tens of ms on two cores."""
LEAST_POSITIONS = 512
"""Measured as if of so many, so that reading the weights themselves is as short a step."""

M = TypeVar("M", bound=CalibratedMethod)
R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True)
class Progress(Generic[R]):
    """Where a whole-model run is.

    Attributes:
        share: done, 0 to 1.
        doing: "reading" calibration text, or what is done to a module.
        place: the layer's or module's name.
        finished: the module that was just finished, if one was.
    """

    share: float
    doing: str
    place: str
    finished: R | None = None


class Layerwise(Generic[M, R]):
    """The way through a model. A subclass says what is done to modules (`take`), and may work on a layer before.

    Args:
        model: not changed.
        methods: one for all linear modules of the decoder layers; or one for each module name, the others untouched.
        windows: calibration text as token ids; needed if any method needs inputs.
        calibration: see `lab.calibration.gather`.
        head: with one method for all, take the output head too.
        keep_inputs: inputs of each module on which output errors are measured.

    Attributes:
        shell: shares all that is not changed with the model.
        methods, modules: by name, of the shell.
        results: in the order in which they were done.

    Raises:
        BadInput: a method that does not fit a module (which is named), missing or too little calibration text, or an
            unknown way to calibrate.
        NotFound: a name that is no linear module.
        ModelError: a model that cannot be calibrated.
    """

    doing: ClassVar[str]
    done: ClassVar[str]

    def __init__(
        self,
        model: nn.Module,
        methods: M | Mapping[str, M],
        windows: Sequence[Sequence[int]] | None,
        calibration: Calibration,
        *,
        head: bool,
        keep_inputs: int,
    ) -> None:
        if calibration not in CALIBRATIONS:
            raise BadInput(
                f"There is no calibration {shown(calibration)}.", remedy=f"Choose {' or '.join(CALIBRATIONS)}."
            )
        self.model, self.shell = model, make_shell(model)
        if isinstance(methods, Mapping):
            self.methods: dict[str, M] = dict(methods)
        else:
            self.methods = dict.fromkeys(linear_names(self.shell, head=head), methods)
        if not self.methods:
            raise BadInput(f"No module was chosen to be {self.done}.", remedy="Choose at least one linear module.")
        self.modules = {name: linear_module(self.shell, name) for name in self.methods}
        for name, module in self.modules.items():
            try:
                self.check(self.methods[name], out_in(module).shape[1])
            except BadInput as error:
                raise named(name, error) from error
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
        self.sequential = calibration == "sequential"
        self.calibration = calibration if windows is not None else "none"
        self.tokens = self.walk.tokens if self.walk is not None else 0
        self.results: list[R] = []
        self._keep = keep_inputs
        self._hessians = frozenset(name for name, method in self.methods.items() if method.wants_hessian)
        self._total = sum(out_in(module).numel() for module in self.modules.values())
        self._taken = 0

    def check(self, method: M, columns: int) -> None:
        """Refuse a method that does not fit a module with so many inputs.

        Raises:
            BadInput: what does not fit.
        """

    def reworks(self, names: Sequence[str]) -> bool:
        """Whether `rework` has anything to do in a layer with these modules."""
        del names
        return False

    def rework(
        self, walk: LayerWalk, index: int, names: Sequence[str], inputs: Mapping[str, LayerInputs]
    ) -> Generator[Progress[R], None, None]:
        """Work on a layer as a whole, before its modules are taken and while the walk still stands before it."""
        raise NotImplementedError

    def together(self, first: M, second: M) -> bool:
        """Whether two modules with the very same inputs are taken at once."""
        del first, second
        return False

    def take(
        self, names: Sequence[str], weights: Sequence[Tensor], inputs: LayerInputs | None
    ) -> Generator[Progress[R], None, Sequence[Callable[[], Generator[float, None, R]]]]:
        """Do what is to be done to some modules, one or several that go together.

        Returns:
            For each what puts the result in place (`put`), in steps, and returns it.
        """
        raise NotImplementedError

    def walking(self) -> Generator[Progress[R], None, None]:
        """All modules in turn."""
        left = dict(self.modules)
        if self.walk is not None:
            yield from self.progress(self.walk.embed(), "reading", "the embedding")
            for index, layer in enumerate(self.walk.names):
                inside = [name for name in left if name.startswith(layer + ".")]
                for name in inside:
                    del left[name]
                yield from self._layer(self.walk, index, inside, last=not left)
                if not left:
                    break
            head = output_head(self.shell)
            for name in [name for name, module in left.items() if module is head]:
                del left[name]
                watch = self._watch([name], self.walk)
                yield from self.progress(head_inputs(self.walk, watch, self.modules[name]), "reading", name)
                yield from self._take([name], watch.results()[name])
            needy = next((name for name in left if self.methods[name].wants_inputs), None)
            if needy is not None:
                raise BadInput(
                    f"{needy} lies outside the decoder layers, so that nothing is known of its inputs.",
                    remedy=f"Choose a method without calibration for it, or leave it dense, not "
                    f"{self.methods[needy].label}.",
                )
        for name in left:
            yield from self._take([name], None)

    def _layer(
        self, walk: LayerWalk, index: int, inside: Sequence[str], *, last: bool
    ) -> Generator[Progress[R], None, None]:
        place = walk.names[index]
        if not inside:
            yield from self.progress(walk.through(index), "reading", place)
            return
        reworks = self.reworks(inside)
        at_once = not self.sequential and not reworks
        watch = self._watch(inside, walk)
        yield from self.progress(walk.through(index, watch=watch, advance=at_once), "reading", place)
        inputs = watch.results()
        if reworks:
            yield from self.rework(walk, index, inside, inputs)
        if not self.sequential and not at_once:
            yield from self.progress(walk.through(index), "reading", place)
        for names in self._groups(inside, inputs):
            yield from self._take(names, inputs[names[0]])
        if self.sequential and not last:
            yield from self.progress(walk.through(index), "reading", place)

    def _watch(self, names: Sequence[str], walk: LayerWalk) -> Watch:
        modules = {name: self.modules[name] for name in names}
        return Watch(modules, hessian=self._hessians, expected=walk.tokens, keep=self._keep)

    def _groups(self, inside: Sequence[str], inputs: Mapping[str, LayerInputs]) -> list[list[str]]:
        groups: list[list[str]] = []
        for name in inside:
            for group in groups:
                same = inputs[group[0]] is inputs[name]
                if same and self.together(self.methods[group[0]], self.methods[name]):
                    group.append(name)
                    break
            else:
                groups.append([name])
        return groups

    def _take(self, names: Sequence[str], inputs: LayerInputs | None) -> Generator[Progress[R], None, None]:
        try:
            ready = yield from self.take(names, [out_in(self.modules[name]) for name in names], inputs)
        except BadInput as error:
            raise named(names[0], error) from error
        for name, finish in zip(names, ready, strict=True):
            result = yield from self.progress(finish(), self.doing, name)
            self.results.append(result)
            self._taken += out_in(self.modules[name]).numel()
            yield Progress(self._taken / self._total, self.doing, name, result)

    def put(
        self, name: str, values: Tensor, inputs: LayerInputs | None, unfolded: Callable[[Tensor], Tensor] | None = None
    ) -> Generator[float, None, tuple[float, float | None]]:
        """Give the shell's module new weights, (out, in), and measure them against the dense model's.

        Args:
            unfolded: of the values, what they count as beside the dense weights, if not that themselves.

        Yields:
            The share of the rows that are measured, every few ms.

        Returns:
            |W - W'| / |W|, and |(W - W') x| / |W x| over kept inputs (None without any); Frobenius norms.
        """
        module = self.modules[name]
        with torch.no_grad():
            set_weight(module, values)
        if module is output_head(self.shell):
            say_untied(self.shell)
        yield 0.0
        dense = out_in(linear_module(self.model, name))
        new = values if unfolded is None else unfolded(values)
        read = inputs.rows if inputs is not None and len(inputs.rows) else None
        weights, outputs = Ratio(), Ratio()
        height, width = dense.shape
        for rows in measured_rows(height, width, 0 if read is None else len(read)):
            with torch.no_grad():
                before = dense[rows].float()
                change = new[rows] - before
                weights.add(change, before)
                if read is not None:
                    outputs.add(read @ change.t(), read @ before.t())
            yield rows.stop / height
        return weights.value, None if read is None else outputs.value

    def progress(self, steps: Generator[Any, None, T], doing: str, place: str) -> Generator[Progress[R], None, T]:
        """The steps of a part of the work, told as progress; what they return."""
        return relay(steps, lambda _: Progress(self._taken / self._total, doing, place))


def named(name: str, error: BadInput) -> BadInput:
    """The same error behind a module's name."""
    return BadInput(f"{name}: {error.message}", remedy=error.remedy)


def measured_rows(rows: int, columns: int, positions: int) -> Iterator[slice]:
    """Rows of a matrix that are measured between two pauses, with their outputs at so many positions."""
    step = max(1, PRODUCTS // (columns * max(positions, LEAST_POSITIONS)))
    return (slice(low, min(low + step, rows)) for low in range(0, rows, step))


@dataclass
class Ratio:
    """|change| / |whole| of what comes in parts, Frobenius norms; 0 of nothing. Sums are in fp64."""

    change: float = 0.0
    whole: float = 0.0

    def add(self, change: Tensor, whole: Tensor) -> None:
        """Take one part of both."""
        self.change += float(torch.linalg.vector_norm(change)) ** 2
        self.whole += float(torch.linalg.vector_norm(whole)) ** 2

    @property
    def value(self) -> float:
        """Of all parts so far."""
        return math.sqrt(self.change / self.whole) if self.whole > 0 else 0.0
