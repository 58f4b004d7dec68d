"""The contract of a method: one weight matrix, with what is known of its inputs, to codes and scales.

A method is a small frozen dataclass that holds its settings. `quantize` is a generator that pauses at least every
100 ms of work on a matrix of the default model, yields the share done (0 to 1), and returns the result. It never
changes the weight it is given. Nothing here knows of models: who quantizes a model decides which matrices are taken
and turns a Conv1D's weight into (out, in) first.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from torch import Tensor

from lab.quantization.quantized import Quantized

T = TypeVar("T")
Quantizing = Generator[float, None, Quantized]


@dataclass(frozen=True)
class LayerInputs:
    """What calibration text sends into one linear layer.

    Attributes:
        tokens: positions seen, padding not among them.
        hessian: (in, in) fp32: the mean over positions of 2 x x^T. None where it was not asked for.
        mean_abs: (in,) fp32: the mean of |x_j|.
        rows: (kept, in) fp32: some of the inputs themselves, evenly taken, to measure output errors on.
    """

    tokens: int
    hessian: Tensor | None
    mean_abs: Tensor
    rows: Tensor


class Method(Protocol):
    """A quantization method with its settings.

    Attributes:
        name: in snake case, as on the command line.
        label: as on screen.
        wants_inputs: whether `quantize` needs `inputs`.
        wants_hessian: whether it needs their `hessian`.
    """

    name: ClassVar[str]
    label: ClassVar[str]

    @property
    def wants_inputs(self) -> bool: ...

    @property
    def wants_hessian(self) -> bool: ...

    def quantize(self, weight: Tensor, inputs: LayerInputs | None = None) -> Quantizing:
        """Quantize `weight`, (out, in), any floating dtype.

        Raises:
            BadInput: a weight that is not finite, a group size that does not fit, or inputs that are missing.
        """
        ...


def finished(steps: Generator[Any, None, T]) -> T:
    """What a method, or any other generator of steps, returns: run to its end at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
