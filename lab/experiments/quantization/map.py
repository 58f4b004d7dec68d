"""The task "map": layers by projections coloured by error, and the model with each layer alone quantized."""

from __future__ import annotations

from collections.abc import Sequence

from lab.calibration.gather import calibrating
from lab.calibration.inputs import LayerInputs
from lab.events.quantization import MapCell, MapCells, ModelErrors, Sensitivity
from lab.experiments.base import Outcome, RunGenerator
from lab.experiments.compared.progress import Made, Part, shares
from lab.experiments.compared.targets import Target
from lab.experiments.compared.texts import cut
from lab.experiments.quantization.build import build
from lab.experiments.quantization.coverage import covered
from lab.experiments.quantization.extras import scale_search
from lab.experiments.quantization.proof import proving
from lab.experiments.quantization.settings import Scheme
from lab.experiments.quantization.setup import Setup
from lab.experiments.quantization.study import output_error
from lab.experiments.quantization.whole import Whole, quantizing_model, with_layer
from lab.quantization.whole_model import ModuleResult
from lab.steps import relay

KEEP = 128
"""Held-out inputs of each matrix: 50 MB for the default model."""


def map_model(setup: Setup) -> RunGenerator:
    """Yield the events of the task."""
    yield from setup.begin()
    windows = yield from setup.texts.choose(calibration=build(setup.scheme).wants_inputs)
    held_out = yield from _held_out(setup)
    whole, cells = yield from _cells(setup, windows, held_out)
    for search in whole.searches:
        yield scale_search(search)
    divergence = yield from setup.texts.compare(whole.shell, "the whole model")
    yield ModelErrors(
        setting=setup.scheme.setting,
        scope="all layers",
        whole=True,
        divergence=divergence,
        mean_weight_error=_mean([cell.weight_error for cell in cells]),
        mean_output_error=_mean([cell.output_error for cell in cells]),
        bits_per_weight=whole.bits_per_weight,
    )
    yield covered(setup, setup.scheme.setting, whole.storage, reasons=whole.reasons)
    yield from _sensitivity(setup, whole)
    yield from proving(setup)
    return Outcome()


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _held_out(setup: Setup) -> Made[dict[str, LayerInputs]]:
    reading = calibrating(
        setup.model, cut(setup.texts.held_out), [t.name for t in setup.targets], hessian=False, keep=KEEP
    )
    return (yield from relay(reading, shares("reading the held-out text")))


def _cells(
    setup: Setup, windows: list[list[int]], held_out: dict[str, LayerInputs]
) -> Made[tuple[Whole, list[MapCell]]]:
    """Quantize all matrices and tell each layer's cells when it is done."""
    cells: list[MapCell] = []

    def seen(target: Target, scheme: Scheme, result: ModuleResult) -> None:
        made = result.quantized
        if made is None:
            return
        weight = target.weight.float()
        change = result.unfolded(made.dequantize()) - weight
        cells.append(
            MapCell(
                layer=target.layer,
                projection=target.projection,
                bits=scheme.bits,
                weight_error=result.weight_error,
                output_error=output_error(scheme, change, weight, held_out[target.name]),
                max_error=float(change.abs().max()),
                bits_per_weight=result.storage.bits_per_weight,
                weights=weight.numel(),
            )
        )

    quantizing = quantizing_model(setup, setup.scheme, windows, "quantizing", seen=seen)
    told = 0
    while True:
        try:
            event = next(quantizing)
        except StopIteration as end:
            whole: Whole = end.value
            break
        yield event
        if told < len(cells) and cells[told].layer != cells[-1].layer:
            done = [cell for cell in cells[told:] if cell.layer == cells[told].layer]
            told += len(done)
            yield MapCells(setting=setup.scheme.setting, cells=tuple(done))
    if told < len(cells):
        yield MapCells(setting=setup.scheme.setting, cells=tuple(cells[told:]))
    return whole, cells


def _sensitivity(setup: Setup, whole: Whole) -> Part:
    """The model with one layer quantized, for each layer that is."""
    by_layer: dict[int, list[Target]] = {}
    for target in setup.targets:
        if target.name in whole.storage:
            by_layer.setdefault(target.layer, []).append(target)
    for number, (layer, targets) in enumerate(by_layer.items()):
        shell = with_layer(setup, whole, layer)
        yield None
        divergence = yield from setup.texts.compare(shell, f"layer {layer} alone", number, len(by_layer))
        storage = [whole.storage[target.name] for target in targets]
        yield Sensitivity(
            layer=layer,
            setting=(setup.scheme.at(layer) or setup.scheme).setting,
            divergence=divergence,
            bits_per_weight=sum(s.bits for s in storage) / sum(s.weights for s in storage),
            index=number,
            total=len(by_layer),
        )
