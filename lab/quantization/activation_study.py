"""What a module's inputs look like, and what rounding them costs, for drawing. Bounded, whatever the text."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lab.calibration.listen import listening
from lab.quantization.activations import ActivationScheme, rounded, static_affine
from lab.quantization.llm_int8 import relative_error
from lab.quantization.observers import RULES, MaxObserver, PercentileObserver

PERCENTS = (0.1, 1.0, 50.0, 99.0, 99.9)
MOST_CHANNELS = 16
CALLS_OF_ROWS = 8
"""Into so many calls a study's calibration rows are split, so that a moving average has something to average."""


@dataclass(frozen=True)
class InputRange:
    """The inputs of one module on some text.

    Attributes:
        module: its name.
        positions, channels: how many of each.
        low, high: the smallest and the largest input.
        percentiles: at `PERCENTS` per cent, from all inputs or a random sample of them.
        rms: root of the mean square.
        far: share of the inputs with |x| > 6 rms, 0 to 1.
        largest: (channel, its largest |x|), largest first, at most 16.
        typical_channel: the median over the channels of their largest |x|.
    """

    module: str
    positions: int
    channels: int
    low: float
    high: float
    percentiles: tuple[float, ...]
    rms: float
    far: float
    largest: tuple[tuple[int, float], ...]
    typical_channel: float


class RangeGatherer:
    """Gathers an `InputRange`, call after call."""

    def __init__(self) -> None:
        self._ends, self._sample = MaxObserver(), PercentileObserver()
        self._maxima: Tensor | None = None
        self._squares, self._positions = 0.0, 0

    def see(self, x: Tensor) -> None:
        """Take the (..., in) inputs of one call."""
        rows = x.detach().reshape(-1, x.shape[-1]).float()
        if not rows.numel():
            return
        self._ends.see(rows)
        self._sample.see(rows)
        largest = rows.abs().amax(dim=0)
        self._maxima = largest if self._maxima is None else torch.maximum(self._maxima, largest)
        self._squares += float(rows.double().square().sum())
        self._positions += rows.shape[0]

    def result(self, module: str) -> InputRange:
        """What was seen.

        Raises:
            BadInput: nothing was.
        """
        low, high = self._ends.range()
        maxima = self._maxima if self._maxima is not None else torch.zeros(0)
        sample = self._sample.values().sort().values
        rms = (self._squares / (self._positions * maxima.numel())) ** 0.5
        places = [min(sample.numel() - 1, int(sample.numel() * percent / 100)) for percent in PERCENTS]
        first = maxima.argsort(descending=True)[:MOST_CHANNELS]
        return InputRange(
            module=module,
            positions=self._positions,
            channels=maxima.numel(),
            low=low,
            high=high,
            percentiles=tuple(float(sample[place]) for place in places),
            rms=rms,
            far=float((sample.abs() > 6 * rms).double().mean()),
            largest=tuple((int(channel), float(maxima[channel])) for channel in first),
            typical_channel=float(maxima.median()),
        )


def gather_ranges(
    model: nn.Module, windows: Sequence[Sequence[int]], names: Collection[str] | None = None
) -> Generator[float, None, tuple[InputRange, ...]]:
    """The inputs of linear modules of the dense model on some text. Yields the share done.

    Arguments and errors as for `lab.calibration.listen.listening`.
    """
    gatherers: dict[str, RangeGatherer] = {}

    def hear(name: str, x: Tensor) -> None:
        gatherers.setdefault(name, RangeGatherer()).see(x)

    yield from listening(model, windows, hear, names)
    return tuple(gatherer.result(name) for name, gatherer in gatherers.items())


@dataclass(frozen=True)
class ActivationError:
    """One way to round inputs, and its errors on held-out inputs.

    Attributes:
        name: "token", "tensor", "static_max", "static_percentile", "static_moving_average".
        span: the calibrated range of a static one, else None.
        scale: its scale; NaN where it differs from call to call.
        clipped: share of the held-out inputs beyond the range, 0 to 1; 0 for a dynamic one.
        input_error: relative error of the inputs.
        output_error: of the output, with dense weights.
        both_error: of the output, with quantized weights; NaN without them.
    """

    name: str
    span: tuple[float, float] | None
    scale: float
    clipped: float
    input_error: float
    output_error: float
    both_error: float


@dataclass(frozen=True)
class ActivationStudy:
    """What rounding the inputs of one matrix costs beside what rounding its weights costs.

    Attributes:
        choices: each way, in a fixed order.
        weights_only_error: of the output with quantized weights and dense inputs; NaN without them.
        token_max: (position,) fp32: the largest |x| of each held-out position.
    """

    choices: tuple[ActivationError, ...]
    weights_only_error: float
    token_max: Tensor


def study_activations(
    calibration: Tensor,
    held_out: Tensor,
    weight: Tensor,
    quantized: Tensor | None = None,
    *,
    bits: int = 8,
    symmetric: bool = True,
) -> ActivationStudy:
    """Compare all ways to round inputs on one matrix.

    Args:
        calibration: (rows, in) inputs from which static ranges are taken, in a few calls of equal size.
        held_out: (rows, in) inputs on which errors are measured.
        weight: (out, in).
        quantized: (out, in), the same weights dequantized.

    Raises:
        BadInput: bits outside 2 to 8, no calibration inputs, or some that are not finite.
    """
    x, w = held_out.float(), weight.detach().float()
    exact = x @ w.t()
    coded = None if quantized is None else quantized.float().t()
    nan = float("nan")

    def tried(name: str, scheme: ActivationScheme, span: tuple[float, float] | None = None) -> ActivationError:
        inputs = rounded(x, scheme, span)
        return ActivationError(
            name=name,
            span=span,
            scale=float(static_affine(scheme, span).scale) if span else nan,
            clipped=_beyond(x, scheme, span) if span else 0.0,
            input_error=relative_error(inputs, x),
            output_error=relative_error(inputs @ w.t(), exact),
            both_error=nan if coded is None else relative_error(inputs @ coded, exact),
        )

    choices = [
        tried("token", ActivationScheme(bits, "token", symmetric)),
        tried("tensor", ActivationScheme(bits, "tensor", symmetric)),
    ]
    for rule in RULES:
        observer = rule.make()
        for call in calibration.float().tensor_split(min(CALLS_OF_ROWS, max(1, calibration.shape[0]))):
            observer.see(call)
        choices.append(tried(f"static_{rule.name}", ActivationScheme(bits, "static", symmetric), observer.range()))
    return ActivationStudy(
        choices=tuple(choices),
        weights_only_error=nan if coded is None else relative_error(x @ coded, exact),
        token_max=x.abs().amax(dim=1),
    )


def _beyond(x: Tensor, scheme: ActivationScheme, span: tuple[float, float]) -> float:
    low, high = span
    if scheme.symmetric:
        high = max(abs(low), abs(high))
        low = -high
    else:
        low, high = min(low, 0.0), max(high, 0.0)
    return float(((x < low) | (x > high)).double().mean())
