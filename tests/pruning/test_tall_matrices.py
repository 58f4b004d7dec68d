"""Tall matrices are worked on some rows at a time: many short pauses, and the very same result."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest
import torch
from pruning_layers import layer, windows
from torch import Tensor

from lab.calibration import layerwise
from lab.calibration.gather import calibrating
from lab.calibration.inputs import LayerInputs
from lab.calibration.layerwise import Ratio
from lab.models.linear import out_in
from lab.pruning import threshold
from lab.pruning.given import Given
from lab.pruning.magnitude import Magnitude
from lab.pruning.method import Method, Pruned
from lab.pruning.pattern import Pattern
from lab.pruning.random import Random
from lab.pruning.wanda import Wanda
from lab.pruning.whole_model import prune_model, pruning
from lab.steps import finished

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
ROWS, WIDTH = 96, 16
HALF, EACH_ROW, TWO_OF_FOUR = Pattern(0.5), Pattern(0.5, "row"), Pattern(n=2, m=4)
METHODS: tuple[Method, ...] = (
    *(Random(pattern, 3) for pattern in (HALF, EACH_ROW, TWO_OF_FOUR)),
    *(Magnitude(pattern) for pattern in (HALF, EACH_ROW, TWO_OF_FOUR)),
    Wanda(EACH_ROW),
    Wanda(TWO_OF_FOUR),
    Given(torch.rand(ROWS, WIDTH, generator=torch.Generator().manual_seed(5)) > 0.3),
)


def pauses(steps: Generator[float, None, Pruned]) -> tuple[list[float], Pruned]:
    """The shares that were told, and the result."""
    told: list[float] = []

    def through() -> Generator[float, None, Pruned]:
        while True:
            try:
                share = next(steps)
            except StopIteration as end:
                made: Pruned = end.value
                return made
            told.append(share)
            yield share

    return told, finished(through())


@pytest.mark.parametrize("method", METHODS, ids=lambda m: f"{m.name} {m.pattern.label} {m.pattern.scope}")
def test_pieces_of_rows_give_what_all_rows_give_at_once(monkeypatch: pytest.MonkeyPatch, method: Method) -> None:
    weight, inputs = layer(ROWS, WIDTH)
    _, whole = pauses(method.prune(weight, inputs))
    monkeypatch.setattr(threshold, "PIECE", 8 * WIDTH)
    told, made = pauses(method.prune(weight, inputs))
    assert len(told) >= ROWS // 8
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert torch.equal(made.mask, whole.mask)
    assert torch.equal(made.values, whole.values)
    # the mutation: pieces that are chosen each for itself
    if method.name != "given" and method.pattern == HALF:
        alone = [finished(method.prune(weight[low : low + 8], inputs)).mask for low in range(0, ROWS, 8)]
        assert not torch.equal(torch.cat(alone), whole.mask)


def errors(weight: Tensor, other: Tensor, inputs: LayerInputs) -> tuple[float, float]:
    """Both figures of a module, by their definition."""
    change = (other - weight).double()
    x = inputs.rows.double()
    return (
        float(change.norm() / weight.double().norm()),
        float((x @ change.t()).norm() / (x @ weight.double().t()).norm()),
    )


@pytest.mark.parametrize("rows", [1, 3, 10**6])
def test_errors_are_summed_over_pieces_of_rows(tiny: Tiny, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    model: Any = tiny("llama").model
    name = "model.layers.0.mlp.up_proj"
    inputs = finished(calibrating(model, windows(), [name]))[name]
    weight = out_in(model.get_submodule(name))
    assert len(inputs.rows) < layerwise.LEAST_POSITIONS
    monkeypatch.setattr(layerwise, "PRODUCTS", rows * weight.shape[1] * layerwise.LEAST_POSITIONS)
    work = pruning(model, {name: Magnitude(HALF)}, windows=windows(), calibration="one_shot")
    steps = 0
    while True:
        try:
            step = next(work)
        except StopIteration as end:
            made = end.value
            break
        steps += step.doing == "pruning"
    assert steps >= weight.shape[0] // rows
    (one,) = made.modules
    runs = out_in(made.shell.get_submodule(name))
    assert (one.weight_error, one.output_error) == pytest.approx(errors(weight, runs, inputs), rel=1e-5)
    # the mutation: all but the last row
    assert (one.weight_error, one.output_error) != pytest.approx(errors(weight[:-1], runs[:-1], inputs), rel=1e-5)


def test_a_ratio_of_nothing_is_nothing() -> None:
    found = Ratio()
    assert found.value == 0.0
    found.add(torch.zeros(2, 2), torch.zeros(2, 2))
    assert found.value == 0.0
    found.add(torch.tensor([3.0, 4.0]), torch.tensor([0.0, 10.0]))
    assert found.value == pytest.approx(0.5)


def test_matrices_of_one_shape_get_random_masks_of_their_own(tiny: Tiny) -> None:
    model = tiny("llama").model
    names = [f"model.layers.{layer}.mlp.{part}" for layer in (0, 1) for part in ("gate_proj", "up_proj")]
    masks = prune_model(model, Random(HALF, 7)).masks()
    again = prune_model(model, Random(HALF, 7)).masks()
    other = prune_model(model, Random(HALF, 8)).masks()
    alike = prune_model(model, {name: Random(HALF, 7) for name in names}).masks()  # the mutation: one seed for all
    for first in names:
        assert torch.equal(masks[first], again[first])
        assert not torch.equal(masks[first], other[first])
        for second in names[: names.index(first)]:
            assert not torch.equal(masks[first], masks[second])
            assert torch.equal(alike[first], alike[second])


def test_each_name_turns_seeds_into_others_one_by_one() -> None:
    seeds = [0, 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1]
    for name in ("model.layers.0.mlp.up_proj", "model.layers.1.mlp.up_proj"):
        made = {Random(seed=seed).of_matrix(name).seed for seed in seeds}
        assert len(made) == len(seeds)
        assert all(0 <= seed < 2**63 for seed in made)
    assert Random(seed=5).of_matrix("a").seed != Random(seed=5).of_matrix("b").seed
