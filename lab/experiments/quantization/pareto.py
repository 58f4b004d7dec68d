"""The task "pareto": bits per weight with all overhead against what the whole model loses, setting by setting."""

from __future__ import annotations

from lab.errors import BadInput
from lab.events.quantization import ParetoPoint
from lab.experiments.base import Outcome, RunGenerator
from lab.experiments.compared.targets import Target
from lab.experiments.quantization.choices import CALIBRATED, MethodName, divides
from lab.experiments.quantization.coverage import covered
from lab.experiments.quantization.proof import proving
from lab.experiments.quantization.ranking import Ranked, disagreement
from lab.experiments.quantization.settings import Scheme
from lab.experiments.quantization.setup import Setup
from lab.experiments.quantization.whole import quantizing_model
from lab.quantization.whole_model import ModuleResult

_NEAREST: tuple[tuple[int, str], ...] = (
    (8, "row"),
    (6, "64"),
    (5, "64"),
    (4, "row"),
    (4, "64"),
    (4, "32"),
    (4, "16"),
    (3, "row"),
    (3, "64"),
    (3, "32"),
    (3, "16"),
    (2, "32"),
    (2, "16"),
)
"""Of round to nearest: bits, group size."""
_OTHERS: tuple[tuple[MethodName, int, str], ...] = (
    ("nf4", 4, "64"),
    ("fp8_e4m3", 8, ""),
    ("gptq", 4, "64"),
    ("gptq", 3, "64"),
    ("gptq", 3, "32"),
    ("awq", 4, "64"),
    ("awq", 3, "32"),
)
"""Each GPTQ or AWQ takes a minute or so on the default model: few, so that a run stays within a backend's deadline."""


def settings_to_try(setup: Setup) -> list[Scheme]:
    """The chosen setting first, then the others, the most bits first."""
    params = setup.params.model_copy(update={"layer_bits": "", "clip": "none"})
    found = [setup.scheme]
    columns = {target.weight.shape[1] for target in setup.targets}

    def fit(share: str) -> bool:
        return all(divides(share, width) for width in columns)

    plain = [Scheme("nearest", params, bits, setup.params.kind, share) for bits, share in _NEAREST if fit(share)]
    found += plain
    if setup.params.methods == "all":
        for method, bits, share in _OTHERS:
            if share == "" or method == "nf4" or fit(share):
                found.append(Scheme(method, params, bits, setup.params.kind, share or "64"))
    seen: dict[str, Scheme] = {}
    for scheme in found:
        seen.setdefault(scheme.setting.label, scheme)
    return list(seen.values())


def pareto(setup: Setup) -> RunGenerator:
    """Yield a point for each setting."""
    yield from setup.begin()
    schemes = settings_to_try(setup)
    learns = setup.params.needs_calibration or any(scheme.method in CALIBRATED for scheme in schemes)
    windows = yield from setup.texts.choose(calibration=learns)
    ranked: list[Ranked] = []
    total = len(schemes)
    for number, scheme in enumerate(schemes):
        label = scheme.setting.label
        errors: list[float] = []

        def seen(target: Target, here: Scheme, result: ModuleResult, errors: list[float] = errors) -> None:
            del target, here
            errors.append(result.weight_error)

        try:
            whole = yield from quantizing_model(setup, scheme, windows, label, seen=seen, base=number, total=total)
        except BadInput as error:
            if number == 0:
                raise
            yield ParetoPoint(
                index=number,
                total=total,
                setting=scheme.setting,
                bits_per_weight=float("nan"),
                model_bytes=0,
                divergence=None,
                skipped=error.message,
                chosen=False,
                ms=0.0,
            )
            continue
        divergence = yield from setup.texts.compare(whole.shell, label, number + 0.5, total, 0.5)
        coverage = covered(setup, scheme.setting, whole.storage, reasons=whole.reasons)
        yield ParetoPoint(
            index=number,
            total=total,
            setting=scheme.setting,
            bits_per_weight=whole.bits_per_weight,
            model_bytes=coverage.model_bytes,
            divergence=divergence,
            skipped="",
            chosen=number == 0,
            ms=whole.ms,
        )
        if number == 0:
            yield coverage
        ranked.append(Ranked(label, sum(errors) / len(errors) if errors else None, None, divergence))
        del whole
    yield disagreement(ranked)
    yield from proving(setup)
    return Outcome()
