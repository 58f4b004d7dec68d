"""Activations in few bits: the inputs of a linear module rounded to a grid, at each call or on a calibrated range.

- dynamic per token: each position has a scale of its own, from its own largest magnitude.
- dynamic per tensor: one scale for all positions of a call.
- static: one scale fixed beforehand from calibration text; what lies beyond its range is clipped.

Nothing is saved here: inputs are rounded and multiplied as before, to see what the rounding does.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from lab.calibration.listen import layer_modules, listening
from lab.errors import BadInput, NotFound, shown
from lab.models.linear import linear_module
from lab.models.shell import make_shell
from lab.quantization.affine import Affine, affine_of, affine_of_range, decode_groups, encode_groups, grouped
from lab.quantization.grid import Grid
from lab.quantization.observers import Observer, Rule

Mode = Literal["token", "tensor", "static"]


@dataclass(frozen=True)
class ActivationScheme:
    """How inputs are rounded.

    Attributes:
        bits: 2 to 8.
        mode: "token" and "tensor" are dynamic.
        symmetric: levels -Q to Q around 0; else 2^bits levels over the range, with zero among them.

    Raises:
        BadInput: outside these limits.
    """

    bits: int = 8
    mode: Mode = "token"
    symmetric: bool = True

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise BadInput(
                f"Activations are not quantized by {shown(self.mode)}.", remedy=f"Choose {', '.join(get_args(Mode))}."
            )
        _ = self.grid

    @property
    def grid(self) -> Grid:
        """Its levels; scales stay in fp32."""
        kind: Literal["absmax", "asymmetric"] = "absmax" if self.symmetric else "asymmetric"
        return Grid(self.bits, kind, "row" if self.mode == "token" else "tensor", scale_format="float32")


def rounded(x: Tensor, scheme: ActivationScheme, span: tuple[float, float] | None = None) -> Tensor:
    """What quantized inputs count as.

    Args:
        x: (..., in); all but the last axis are positions of one call.
        span: the calibrated range of a static scheme; the others take none.

    Returns:
        (..., in), in the dtype of `x`. A position of zeros stays zeros.

    Raises:
        BadInput: a static scheme without a range.
    """
    if not x.numel():
        return x.clone()
    rows = x.reshape(-1, x.shape[-1])
    grid = scheme.grid
    affine = static_affine(scheme, span) if scheme.mode == "static" else affine_of(rows, grid)
    codes = encode_groups(grouped(rows, grid), affine, grid)
    return decode_groups(codes, affine, grid).reshape(x.shape).to(x.dtype)


def static_affine(scheme: ActivationScheme, span: tuple[float, float] | None) -> Affine:
    """(1, 1) scale and zero point of a calibrated range.

    Raises:
        BadInput: no range, or one that is not finite or ends before it begins.
    """
    if span is None:
        raise BadInput("A static scheme needs a calibrated range.", remedy="Calibrate first, or choose 'token'.")
    if not -torch.inf < span[0] <= span[1] < torch.inf:
        raise BadInput(f"{shown(span)} is no range of inputs.", remedy="Calibrate on text without NaN.")
    low, high = (torch.full((1, 1), end) for end in span)
    return affine_of_range(low, high, scheme.grid)


class RoundedInputs(nn.Module):
    """A linear module whose inputs are rounded first.

    Args:
        inner: the module (`nn.Linear`, Conv1D, or one that stands for it), shared and not changed.
        scheme: how.
        span: the calibrated range of a static scheme.
    """

    def __init__(self, inner: nn.Module, scheme: ActivationScheme, span: tuple[float, float] | None = None) -> None:
        super().__init__()
        self.inner, self.scheme, self.span = inner, scheme, span
        if scheme.mode == "static":
            static_affine(scheme, span)
        rows = getattr(inner, "out_features", None)
        self.out_features = int(inner.nf if rows is None else rows)  # type: ignore[arg-type]  # Conv1D says nf

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        y: Tensor = self.inner(rounded(x, self.scheme, self.span))
        return y


def hang_rounded_inputs(
    model: nn.Module,
    scheme: ActivationScheme,
    spans: Mapping[str, tuple[float, float]] | None = None,
    names: Collection[str] | None = None,
) -> nn.Module:
    """A shell of `model` whose linear modules round their inputs; `model` is not changed.

    Args:
        model: a model, or a shell with quantized weights.
        spans: calibrated ranges by name, for a static scheme; see `calibrate_ranges`.
        names: modules, also ones that stand for linear ones (`LlmInt8Linear`); None: those of `spans`, else all linear
            ones inside the decoder layers. The head stays as it is.

    Raises:
        BadInput: a static scheme without a range for a module, or no module at all.
        NotFound: a name that is no module.
        ModelError: no decoder layers.
    """
    spans = spans or {}
    shell = make_shell(model)
    modules = dict(shell.named_modules())
    chosen = tuple(names if names is not None else (spans or layer_modules(shell)))
    if not chosen:
        raise BadInput(
            f"0 modules of {type(model).__name__} would round their inputs; at least 1 is needed.",
            remedy="Name modules: only plain linear ones are found by themselves.",
        )
    for name in chosen:
        if name not in modules:
            raise NotFound(f"{shown(name)} is no module of {type(model).__name__}.", remedy="Name a linear module.")
        if scheme.mode == "static" and name not in spans:
            raise BadInput(f"No range was calibrated for {shown(name)}.", remedy="Calibrate it, or choose 'token'.")
        shell.set_submodule(name, RoundedInputs(modules[name], scheme, spans.get(name)))
    return shell


def calibrate_ranges(
    model: nn.Module, windows: Sequence[Sequence[int]], rule: Rule, names: Collection[str] | None = None
) -> Generator[float, None, dict[str, tuple[float, float]]]:
    """Ranges of the inputs of linear modules of the dense model, by one rule. Yields the share done.

    Arguments and errors as for `lab.calibration.listen.listening`.
    """
    observers: dict[str, Observer] = {
        name: rule.make() for name in (names if names is not None else layer_modules(model))
    }
    for name in observers:
        linear_module(model, name)
    yield from listening(model, windows, lambda name, x: observers[name].see(x), tuple(observers))
    return {name: observer.range() for name, observer in observers.items()}
