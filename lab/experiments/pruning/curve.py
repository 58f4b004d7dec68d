"""The task "curve": what the whole model loses as more and more weights go, a line for each method."""

from __future__ import annotations

from dataclasses import replace

from lab.errors import BadInput
from lab.events.evaluation import Divergence
from lab.events.pruning import CurvePoint
from lab.experiments.base import Outcome, RunGenerator
from lab.experiments.pruning.choices import MethodName
from lab.experiments.pruning.settings import Scheme
from lab.experiments.pruning.setup import Setup
from lab.experiments.pruning.whole import covered, pruning_model

QUICK: tuple[MethodName, ...] = ("magnitude", "wanda")
ALL: tuple[MethodName, ...] = ("random", "magnitude", "global_magnitude", "wanda", "sparsegpt", "rows")
COARSE = (0.5, 0.3, 0.7)
FINE = (0.1, 0.2, 0.4, 0.6)
SLOW: tuple[MethodName, ...] = ("sparsegpt",)
"""A minute or so a point on the default model: only the coarse sparsities, so that a run stays within a deadline."""


def schemes_to_try(chosen: Scheme, methods: tuple[MethodName, ...]) -> list[Scheme]:
    """The run's own first, then the shape of each line, then what lies between. N:M is a point of its own."""
    plain = replace(chosen, pattern="none")
    found = [chosen]
    for sparsities in (COARSE, FINE):
        for sparsity in sparsities:
            for method in methods:
                if method in SLOW and sparsities is FINE:
                    continue
                found.append(replace(plain, method=method, sparsity=sparsity))
    unique: dict[tuple[str, float, str], Scheme] = {}
    for scheme in found:
        unique.setdefault((scheme.method, scheme.spec.sparsity, scheme.pattern), scheme)
    return list(unique.values())


def schemes_of(setup: Setup) -> list[Scheme]:
    """The same for what a run was asked for."""
    return schemes_to_try(setup.scheme, ALL if setup.params.compare == "all" else QUICK)


def draw_curve(setup: Setup) -> RunGenerator:
    """Yield a point for each setting; the dense model is the point at 0."""
    yield from setup.begin()
    schemes = schemes_of(setup)
    windows = yield from setup.texts.choose(calibration=any(scheme.calibrated for scheme in schemes))
    total = len(schemes)
    for number, scheme in enumerate(schemes):
        label = scheme.setting.label
        try:
            tell = number == 0
            whole = yield from pruning_model(setup, scheme, windows, label, part=0.7, tell=tell)
        except BadInput as error:
            if number == 0:
                raise
            yield _point(number, total, scheme, None, error.message, scheme.sparsity, 0.0)
            continue
        found = yield from setup.texts.compare(whole.shell, label, 0.7, 1, 0.3)
        yield _point(number, total, scheme, found, "", whole.sparsity, whole.ms)
        if number == 0:
            yield covered(setup, whole)
        del whole
    yield from setup.proving()
    return Outcome()


def _point(
    number: int, total: int, scheme: Scheme, found: Divergence | None, skipped: str, sparsity: float, ms: float
) -> CurvePoint:
    return CurvePoint(
        index=number,
        total=total,
        setting=scheme.setting,
        sparsity=sparsity,
        divergence=found,
        skipped=skipped,
        chosen=number == 0,
        ms=ms,
    )
