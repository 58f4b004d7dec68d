"""The whole model quantized one way, on a shell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

from torch import nn

from lab.experiments.compared.progress import Made, progress, shares
from lab.experiments.compared.targets import Target, put
from lab.experiments.quantization.build import build
from lab.experiments.quantization.checked import Sample
from lab.experiments.quantization.mistakes import broken
from lab.experiments.quantization.settings import Scheme
from lab.experiments.quantization.setup import Setup
from lab.experiments.quantization.study import Studied, samples_of
from lab.models.linear import decoder_layers, out_in
from lab.models.shell import make_shell
from lab.quantization.affine import AffineWeight
from lab.quantization.awq_search import ScaleSearch
from lab.quantization.llm_int8_module import hang_llm_int8
from lab.quantization.quantized import Storage
from lab.quantization.whole_model import ModuleResult, WholeModel, quantizing
from lab.steps import relay


@dataclass
class Whole:
    """A quantized model.

    Attributes:
        shell: runs as the quantized model would; all else is shared with the dense model.
        storage: of each quantized matrix, by its module's name.
        reasons: why the others were left dense, by name.
        notes: of all matrices, each once, with the first matrix it is of.
        searches: AWQ's.
        ms: of the method's own slices.
    """

    shell: nn.Module
    storage: dict[str, Storage] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    searches: tuple[ScaleSearch, ...] = ()
    ms: float = 0.0

    @property
    def bits_per_weight(self) -> float:
        """Of the quantized weights."""
        weights = sum(s.weights for s in self.storage.values())
        return sum(s.bits for s in self.storage.values()) / weights if weights else 0.0


OnMatrix = Callable[[Target, Scheme, ModuleResult], None]


def check_all(setup: Setup, scheme: Scheme) -> None:
    """Refuse groups that do not fit some matrix, before the work begins.

    Raises:
        BadInput: with the sizes that fit.
    """
    for columns in sorted({target.weight.shape[1] for target in setup.targets}):
        scheme.check(columns)


def quantizing_model(
    setup: Setup,
    scheme: Scheme,
    windows: list[list[int]],
    stage: str,
    *,
    seen: OnMatrix | None = None,
    base: float = 0.0,
    total: float = 1.0,
) -> Made[Whole]:
    """Quantize all matrices of the decoder layers, pausing as the method does.

    Args:
        windows: the calibration text, for methods that learn from it.
        seen: told of each matrix.
        base, total: of the progress bar: this is one of `total` steps, after `base` others.
    """
    check_all(setup, scheme)
    schemes = {target.name: scheme.at(target.layer) for target in setup.targets}
    methods = {name: build(here) for name, here in schemes.items() if here is not None}
    made = Whole(setup.model, reasons={n: "its layer was asked to stay dense" for n, s in schemes.items() if s is None})
    if not methods:
        return made
    targets = {target.name: target for target in setup.targets}
    learns = any(method.wants_inputs for method in methods.values())
    work = quantizing(setup.model, methods, windows=windows if learns else None, keep_codes=True, keep_inputs=128)
    notes: dict[str, str] = {}
    samples: dict[str, list[Sample]] = {}
    wrong: dict[str, AffineWeight] = {}
    mistake = setup.params.break_run
    took = 0.0
    while True:
        began = perf_counter()
        try:
            step = next(work)
        except StopIteration as end:
            whole: WholeModel = end.value
            break
        took += perf_counter() - began
        result = step.finished
        if result is not None and result.quantized is not None:
            target, here = targets[result.name], schemes[result.name] or scheme
            quantized = result.quantized
            if mistake != "nothing" and isinstance(quantized, AffineWeight):
                wrong[result.name] = quantized
                quantized, _ = broken(quantized, target.weight, mistake)
            made.storage[result.name] = result.storage
            for note in result.notes:
                notes.setdefault(note, f"{target.title}: {note}")
            studied = Studied(target, here, quantized, target.weight, 0.0)
            samples[result.name] = samples_of(setup.checked, studied)
            if seen is not None:
                seen(target, here, result)
        yield progress(stage, base + step.share * (0.5 if total > 1 else 1.0), total)
    made.shell, made.searches, made.ms, made.notes = whole.shell, whole.searches, took * 1e3, tuple(notes.values())
    for name, taken in samples.items():
        if name in wrong:
            put(made.shell, targets[name], broken(wrong.pop(name), targets[name].weight, mistake)[1])
        setup.checked.settle(taken, out_in(made.shell.get_submodule(name)))
        yield None
    if scheme.method == "llm_int8":
        made.shell = yield from mixed_products(setup, scheme, list(made.storage))
    return made


def mixed_products(setup: Setup, scheme: Scheme, names: list[str]) -> Made[nn.Module]:
    """The shell that runs LLM.int8() itself: inputs in 8 bits too, outlier features apart."""
    hanging = hang_llm_int8(setup.model, threshold=scheme.params.threshold, names=names)
    return (yield from relay(hanging, shares("replacing modules")))


def with_layer(setup: Setup, whole: Whole, layer: int) -> nn.Module:
    """The dense model with one layer of the quantized one, what was folded into its norms included."""
    prefix, _ = decoder_layers(setup.model)
    shell = make_shell(setup.model)
    name = f"{prefix}.{layer}"
    shell.set_submodule(name, whole.shell.get_submodule(name))
    return shell
