"""The contract of a method: one weight matrix, with what is known of its inputs, to codes and scales.

A method is a small frozen dataclass that holds its settings. `quantize` is a generator that pauses at least every
100 ms of work on a matrix of the default model, yields the share done (0 to 1), and returns the result. It never
changes the weight it is given. Nothing here knows of models: who quantizes a model decides which matrices are taken
and turns a Conv1D's weight into (out, in) first.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import ClassVar, Protocol

from torch import Tensor

from lab.calibration.inputs import LayerInputs
from lab.quantization.quantized import Quantized

Quantizing = Generator[float, None, Quantized]


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
