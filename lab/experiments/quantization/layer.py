"""The task "layer": one projection of a few layers, every group size, and the three errors."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lab.calibration.inputs import LayerInputs
from lab.events.quantization import LayerErrors, ModelErrors
from lab.experiments.base import Outcome, RunGenerator
from lab.experiments.compared.progress import Part
from lab.experiments.compared.targets import Target, pick, put
from lab.experiments.quantization.build import build
from lab.experiments.quantization.coverage import covered
from lab.experiments.quantization.extras import extras
from lab.experiments.quantization.proof import proving
from lab.experiments.quantization.ranking import Ranked, disagreement
from lab.experiments.quantization.settings import Scheme
from lab.experiments.quantization.setup import Setup
from lab.experiments.quantization.study import (
    Studied,
    histogram,
    layer_errors,
    samples_of,
    shares_to_compare,
    studying,
    worst_weights,
)
from lab.experiments.quantization.whole import mixed_products
from lab.models.shell import make_shell
from lab.quantization.rounding_errors import power_above

MOST_RANKED = 4
"""Settings whose effect on the whole model is measured: each reads the held-out text once."""


@dataclass
class LayerStudy:
    """One run of the task."""

    setup: Setup
    calibration: dict[str, LayerInputs] = field(default_factory=dict)
    held_out: dict[str, LayerInputs] = field(default_factory=dict)
    studied: dict[tuple[str, str], Studied] = field(default_factory=dict)
    errors: dict[tuple[str, str], LayerErrors] = field(default_factory=dict)

    def __post_init__(self) -> None:
        p = self.setup.params
        self.targets = [pick(self.setup.loaded, self.setup.targets, layer, p.projection) for layer in p.layers]
        self.scheme = self.setup.scheme
        for target in self.targets:
            self.scheme.check(target.weight.shape[1])

    def events(self) -> RunGenerator:
        """All events of the run."""
        early = not build(self.scheme).wants_inputs
        yield from self.setup.begin()
        if early:
            for target in self.targets:
                yield from self._histograms(target)
        names = [target.name for target in self.targets]
        self.calibration, self.held_out = yield from self.setup.texts.inputs(names)
        for target in self.targets:
            if not early:
                yield from self._histograms(target)
            yield from self._errors(target)
            chosen = self.studied[target.name, self.scheme.setting.label]
            yield from extras(self.setup, chosen, self.calibration[target.name], self.held_out[target.name])
        yield from self._whole()
        chosen_ones = [self.studied[t.name, self.scheme.setting.label] for t in self.targets]
        yield covered(self.setup, self.scheme.setting, {s.target.name: s.made.storage for s in chosen_ones})
        yield from proving(self.setup)
        return Outcome()

    def schemes(self, target: Target) -> list[Scheme]:
        """The chosen one, and what it is compared with: the coarsest first."""
        scheme = self.scheme
        if scheme.gridded:
            return [replace(scheme, share=share) for share in shares_to_compare(target, scheme.share)]
        beside = replace(scheme.nearest, bits=min(scheme.bits, 8), kind="absmax")
        return [scheme, *(replace(beside, share=share) for share in shares_to_compare(target, "row"))][:6]

    def _histograms(self, target: Target) -> Part:
        schemes, largest = self.schemes(target), 0.0
        for scheme in schemes:
            mistake = self.setup.params.break_run if scheme == self.scheme else "nothing"
            inputs, method = self.calibration.get(target.name), build(scheme, target.projection)
            studied = yield from studying(target, scheme, method, inputs, mistake, "quantizing")
            self.studied[target.name, scheme.setting.label] = studied
            largest = max(largest, float((studied.runs - studied.weight).abs().max()))
            yield None
        # One axis for all: it must hold the largest error of any of them.
        limit = power_above(largest)
        for scheme in schemes:
            chosen = scheme == self.scheme
            studied = self.studied[target.name, scheme.setting.label]
            yield histogram(studied, limit, chosen=chosen)
            checked = self.setup.checked
            checked.settle(samples_of(checked, studied), studied.runs.to(self.setup.loaded.dtype))
            yield worst_weights(studied) if chosen else None

    def _errors(self, target: Target) -> Part:
        inputs, held_out = self.calibration[target.name], self.held_out[target.name]
        for scheme in self.schemes(target):
            studied = self.studied[target.name, scheme.setting.label]
            nearest: float | None = None
            if scheme.gridded and scheme != scheme.nearest:
                plain = scheme.nearest
                other = yield from studying(target, plain, build(plain, target.projection), inputs, "nothing", "")
                beside = layer_errors(other, inputs, held_out, None)
                self.studied.setdefault((target.name, plain.setting.label), other)
                self.errors[target.name, plain.setting.label] = beside
                nearest = beside.calibration_error
                yield beside
            found = layer_errors(studied, inputs, held_out, nearest)
            self.errors[target.name, scheme.setting.label] = found
            yield found

    def _whole(self) -> Part:
        """The model with these matrices alone quantized, some settings one after another."""
        labels = self._labels_to_rank()
        where = ", ".join(t.title for t in self.targets) + " alone"
        ranked: list[Ranked] = []
        for number, label in enumerate(labels):
            ones = [self.studied[t.name, label] for t in self.targets]
            if ones[0].scheme.method == "llm_int8":
                shell = yield from mixed_products(self.setup, ones[0].scheme, [t.name for t in self.targets])
            else:
                shell = make_shell(self.setup.model)
                for one in ones:
                    put(shell, one.target, one.runs)
            yield None
            divergence = yield from self.setup.texts.compare(shell, "the whole model", number, len(labels))
            errors = [self.errors[t.name, label] for t in self.targets]
            weight = sum(e.weight_error for e in errors) / len(errors)
            output = sum(e.heldout_error or 0.0 for e in errors) / len(errors)
            setting = ones[0].scheme.setting
            yield ModelErrors(
                setting=setting,
                scope=where,
                whole=False,
                divergence=divergence,
                mean_weight_error=weight,
                mean_output_error=output,
                bits_per_weight=sum(o.made.storage.bits for o in ones) / sum(o.made.storage.weights for o in ones),
            )
            ranked.append(Ranked(setting.label, weight, output, divergence))
        yield disagreement(ranked)

    def _labels_to_rank(self) -> list[str]:
        own = self.scheme.setting.label
        schemes = [
            s
            for s in self.schemes(self.targets[0])
            if all((t.name, s.setting.label) in self.studied for t in self.targets)
        ]
        labels = [own]
        if self.scheme.gridded:
            labels.append(self.scheme.nearest.setting.label)
        labels += [schemes[-1].setting.label, schemes[0].setting.label, *(s.setting.label for s in schemes)]
        return list(dict.fromkeys(labels))[:MOST_RANKED]


def study_layer(setup: Setup) -> RunGenerator:
    """Yield the events of the task."""
    return (yield from LayerStudy(setup).events())
