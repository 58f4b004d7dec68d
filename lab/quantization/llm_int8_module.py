"""LLM.int8() in a model: modules for a shell, a trace of the outlier features, and a count of them on real text."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from lab.calibration.listen import layer_modules, listening
from lab.models.linear import out_in
from lab.models.shell import make_shell
from lab.quantization.llm_int8 import THRESHOLD, Int8Matrix, check_threshold

MOST_FEATURES = 64


@dataclass(frozen=True)
class OutlierCall:
    """One call of one module.

    Attributes:
        module: its name.
        call: 0 for the first call of this module.
        rows: positions in it.
        features: its outlier columns, ascending, at most 64.
        count: all of them.
        largest: the largest |x| of the call.
    """

    module: str
    call: int
    rows: int
    features: tuple[int, ...]
    count: int
    largest: float


@dataclass
class OutlierTrace:
    """What modules wrote down of their calls.

    Attributes:
        most: calls to keep, all modules together; later ones are counted only.
        calls: in order.
        left_out: calls beyond `most`.
    """

    most: int = 10_000
    calls: list[OutlierCall] = field(default_factory=list)
    left_out: int = 0
    _made: dict[str, int] = field(default_factory=dict)

    def note(self, module: str, x: Tensor, outliers: Tensor) -> None:
        """Write down a call with (rows, in) inputs."""
        number = self._made.get(module, 0)
        self._made[module] = number + 1
        if len(self.calls) >= self.most:
            self.left_out += 1
            return
        features = tuple(int(i) for i in outliers[:MOST_FEATURES].tolist())
        largest = float(x.abs().amax()) if x.numel() else 0.0
        self.calls.append(OutlierCall(module, number, x.shape[0], features, outliers.numel(), largest))

    def of(self, module: str) -> list[OutlierCall]:
        """The calls of one module."""
        return [call for call in self.calls if call.module == module]


class LlmInt8Linear(nn.Module):
    """y = W x + b by LLM.int8(), computed in integers and fp32; takes and gives the model's dtype.

    The outlier features are those of all rows of a call, so that a prompt in one pass and the same prompt in two may
    have different ones.

    Args:
        matrix: the codes.
        bias: (out,) or None.
        threshold: see `outlier_features`; may be changed between calls.
        name: for the trace.
        trace: where calls are written down; None: nowhere.
    """

    def __init__(
        self,
        matrix: Int8Matrix,
        bias: Tensor | None = None,
        *,
        threshold: float = THRESHOLD,
        name: str = "",
        trace: OutlierTrace | None = None,
    ) -> None:
        super().__init__()
        check_threshold(threshold)
        self.matrix, self.threshold, self.name, self.trace = matrix, threshold, name, trace
        self.bias_values = None if bias is None else bias.detach()
        self.out_features, self.in_features = matrix.shape

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        rows = x.reshape(-1, self.in_features)
        product = self.matrix.multiply(rows, self.threshold)
        if self.trace is not None:
            self.trace.note(self.name, rows, product.outliers)
        output = product.output
        if self.bias_values is not None:
            output = output + self.bias_values
        return output.to(x.dtype).view(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"in_features={self.in_features}, out_features={self.out_features}, threshold={self.threshold:g}"


def hang_llm_int8(
    model: nn.Module,
    *,
    threshold: float = THRESHOLD,
    keep_dense: bool = True,
    trace: OutlierTrace | None = None,
    names: Collection[str] | None = None,
) -> Generator[float, None, nn.Module]:
    """A shell of `model` whose linear modules work by LLM.int8(); yields the share done after each module.

    Args:
        model: not changed. The head stays dense, as in bitsandbytes.
        keep_dense: see `Int8Matrix`.
        names: modules inside the decoder layers; None: all of them.

    Raises:
        BadInput: NaN or a negative threshold, weights that are not finite.
        ModelError: no decoder layers.
    """
    check_threshold(threshold)
    shell = make_shell(model)
    wanted = layer_modules(shell) if names is None else tuple(names)
    for number, name in enumerate(wanted):
        module = shell.get_submodule(name)
        bias = getattr(module, "bias", None)
        made = LlmInt8Linear(
            Int8Matrix.of(out_in(module), keep_dense=keep_dense, name=name),
            bias if isinstance(bias, Tensor) else None,
            threshold=threshold,
            name=name,
            trace=trace,
        )
        shell.set_submodule(name, made)
        yield (number + 1) / len(wanted)
    return shell


@dataclass(frozen=True)
class FeatureCount:
    """The inputs of one module on some text.

    Attributes:
        module: its name.
        positions: of the text.
        maxima: (channel,) fp32, the largest |x| of each.
        above: (channel,) int64, positions at which |x| reached the threshold.
    """

    module: str
    positions: int
    maxima: Tensor
    above: Tensor

    @property
    def features(self) -> int:
        """Columns that reached the threshold anywhere."""
        return int((self.above > 0).sum())

    @property
    def values(self) -> int:
        """Single inputs that reached it."""
        return int(self.above.sum())


def count_outliers(
    model: nn.Module,
    windows: Sequence[Sequence[int]],
    threshold: float = THRESHOLD,
    names: Collection[str] | None = None,
) -> Generator[float, None, tuple[FeatureCount, ...]]:
    """How many outlier features the dense model has on some text, module by module. Yields the share done.

    Arguments and errors as for `lab.calibration.listen.listening`.

    Raises:
        BadInput: NaN or a negative threshold.
    """
    check_threshold(threshold)
    counts: dict[str, FeatureCount] = {}

    def hear(name: str, x: Tensor) -> None:
        sizes = x.reshape(-1, x.shape[-1]).float().abs()
        above = (sizes >= threshold).sum(dim=0) if threshold else torch.zeros(sizes.shape[1], dtype=torch.int64)
        found = FeatureCount(name, sizes.shape[0], sizes.amax(dim=0), above.to(sizes.device))
        old = counts.get(name)
        if old is not None:
            found = FeatureCount(
                name,
                old.positions + found.positions,
                torch.maximum(old.maxima, found.maxima),
                old.above + found.above,
            )
        counts[name] = found

    yield from listening(model, windows, hear, names)
    return tuple(counts.values())
