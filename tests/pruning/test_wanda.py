"""Wanda against the paper's code, against magnitude where both must agree, and on inputs that say nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pydoc_data.topics import topics
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lab.calibration.gather import calibrating
from lab.calibration.inputs import LayerInputs
from lab.errors import BadInput
from lab.models.linear import in_features, linear_module, out_in
from lab.pruning.magnitude import Magnitude
from lab.pruning.method import Pruned
from lab.pruning.nm import check_nm
from lab.pruning.pattern import N_OF_M, Pattern
from lab.pruning.wanda import Wanda
from lab.steps import finished

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

ROW = Pattern(0.5, "row")
NAMES = [f"model.layers.{i}.{p}" for i in (0, 14, 29) for p in ("self_attn.q_proj", "mlp.up_proj", "mlp.down_proj")]
PATTERNS = (ROW, *(Pattern(n=n, m=m) for n, m in N_OF_M))


def inputs_of(x: Tensor) -> LayerInputs:
    return LayerInputs(len(x), None, x.abs().mean(dim=0), x.square().mean(dim=0), x)


def layer(rows: int = 48, width: int = 64, *, tokens: int = 300, seed: int = 0) -> tuple[Tensor, LayerInputs]:
    """A random matrix, and inputs of very different sizes that depend on one another."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, width // 4, generator=g) @ torch.randn(width // 4, width, generator=g)
    x = (x + torch.randn(tokens, width, generator=g)) * torch.rand(width, generator=g).mul(3).exp()
    return torch.randn(rows, width, generator=g), inputs_of(x)


def made(weight: Tensor, inputs: LayerInputs | None, pattern: Pattern = ROW) -> Pruned:
    return finished(Wanda(pattern).prune(weight, inputs))


def papers(weight: Tensor, x: Tensor, pattern: Pattern) -> Tensor:
    """The paper's code, `lib/prune.py` and `lib/layerwrapper.py`, in its own words; the weights that are kept."""
    scaler_row = torch.norm(x.t(), p=2, dim=1) ** 2 / len(x)
    metric = weight.abs() * scaler_row.reshape(1, -1).sqrt()
    mask = torch.zeros_like(metric) == 1
    if pattern.m:
        for at in range(0, metric.shape[1], pattern.m):
            group = metric[:, at : at + pattern.m].float()
            mask.scatter_(1, at + group.topk(pattern.m - pattern.n, dim=1, largest=False)[1], True)
    else:
        order = metric.sort(dim=-1, stable=True)[1]
        mask.scatter_(1, order[:, : int(metric.shape[1] * pattern.sparsity)], True)
    return ~mask


def output_error(change: Tensor, inputs: LayerInputs) -> float:
    return float((inputs.rows @ change.t()).square().sum())


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.label)
@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_papers(pattern: Pattern, seed: int) -> None:
    weight, inputs = layer(seed=seed)
    before = weight.clone()
    found = made(weight, inputs, pattern)
    wanted = papers(weight, inputs.rows, pattern)
    assert torch.equal(found.mask, wanted)
    assert torch.equal(found.values, weight * wanted)
    assert torch.equal(weight, before)
    assert found.notes == ()
    # the mutations: norms that are squared, and none at all
    squared = replace(inputs, mean_square=inputs.mean_square.square())
    assert not torch.equal(made(weight, squared, pattern).mask, wanted)
    assert not torch.equal(finished(Magnitude(pattern).prune(weight)).mask, wanted)


def test_outputs_are_compared_each_for_itself() -> None:
    weight, inputs = layer()
    weight = weight * torch.logspace(-2, 2, 48)[:, None]
    found = made(weight, inputs).mask
    assert (found.sum(dim=1) == 32).all()
    scores = weight.abs() * inputs.mean_square.sqrt()
    within = scores > scores.flatten().kthvalue(scores.numel() // 2).values  # the mutation: within the matrix
    assert not (within.sum(dim=1) == 32).all()


@given(st.integers(0, 10_000), st.sampled_from(PATTERNS), st.sampled_from([1e-3, 1.0, 7.3]))
@settings(max_examples=60, deadline=None)
def test_with_the_identity_as_inputs_it_is_magnitude_within_rows(seed: int, pattern: Pattern, size: float) -> None:
    weight = torch.randn(6, 32, generator=torch.Generator().manual_seed(seed))
    weight[1] = weight[1].abs().mean() * (1 + torch.arange(32) % 3 * 2.0**-23)  # neighbours in fp32, and ties
    wanted = finished(Magnitude(pattern).prune(weight)).mask
    assert torch.equal(made(weight, inputs_of(size * torch.eye(32)), pattern).mask, wanted)
    uneven = inputs_of(torch.diag(torch.logspace(-3, 3, 32)))  # the mutation
    assert not torch.equal(made(weight, uneven, pattern).mask, wanted)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.label)
@pytest.mark.parametrize("seed", range(4))
def test_outputs_change_less_than_by_magnitude(pattern: Pattern, seed: int) -> None:
    weight, inputs = layer(seed=seed)
    ours, plain = made(weight, inputs, pattern), finished(Magnitude(pattern).prune(weight))
    error = output_error(plain.values - weight, inputs)
    assert output_error(ours.values - weight, inputs) < error
    mistaken = replace(inputs, mean_square=1 / inputs.mean_square)  # the mutation
    assert output_error(made(weight, mistaken, pattern).values - weight, inputs) > error


def test_the_mean_square_is_the_norm_that_the_paper_has() -> None:
    """||X_j||^2 = tokens x mean square = tokens x H_jj / 2, of the H that SparseGPT has."""
    _, inputs = layer()
    x = inputs.rows.double()
    norms = x.norm(dim=0)
    assert torch.allclose((inputs.mean_square * inputs.tokens).sqrt().double(), norms, rtol=1e-5)
    assert torch.allclose((2 * x.t() @ x / len(x)).diagonal() / 2, inputs.mean_square.double(), rtol=1e-5)
    assert not torch.allclose((inputs.mean_abs * inputs.tokens).double(), norms, rtol=1e-1)


def test_inputs_that_are_always_0_lose_their_weights_first() -> None:
    weight, inputs = layer()
    weight[:, 5:15] = 100.0
    x = inputs.rows.clone()
    x[:, 5:15] = 0
    found = made(weight, inputs_of(x))
    assert not found.mask[:, 5:15].any()
    assert found.notes == ("10 of 64 inputs were always 0; their weights are pruned first.",)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.label)
def test_without_inputs_that_count_it_is_magnitude_and_says_so(pattern: Pattern) -> None:
    weight, _ = layer()
    wanted = finished(Magnitude(pattern).prune(weight)).mask
    nothing = torch.zeros(64)
    for inputs, why in (
        (LayerInputs(0, None, nothing, nothing, torch.zeros(0, 64)), "no calibration token reached"),
        (inputs_of(torch.zeros(9, 64)), "all inputs were always 0"),
    ):
        found = made(weight, inputs, pattern)
        assert torch.equal(found.mask, wanted)
        assert why in found.notes[0]


def test_extreme_sizes_stay_in_order() -> None:
    weight = torch.tensor([[3e38, 1e38, -2e38, 1e-30]])
    x = torch.tensor([[1e18, 4e18, 1e18, 1.0]])
    assert made(weight, inputs_of(x)).mask.tolist() == [[True, True, False, False]]
    assert torch.isinf(weight.abs() * x.norm(dim=0))[0, :3].all()  # as it would be without a common scale


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_odd_shapes_and_dtypes(dtype: torch.dtype) -> None:
    for rows, width in ((1, 8), (8, 1), (1, 1)):
        weight = torch.randn(rows, width, generator=torch.Generator().manual_seed(0)).to(dtype)
        for sparsity in (0.0, 0.5, 1.0):
            pattern = Pattern(sparsity, "row")
            found = made(weight, inputs_of(torch.ones(3, width)), pattern)
            assert ((~found.mask).sum(dim=1) == pattern.pruned_of(width)).all()
    assert not made(torch.zeros(4, 8), inputs_of(torch.ones(3, 8))).mask[:, :4].any()


def test_bad_input_is_refused_in_words() -> None:
    weight, inputs = layer()
    with pytest.raises(BadInput, match="needs a layer's calibration inputs"):
        made(weight, None)
    with pytest.raises(BadInput, match="64 channels do not fit a weight with 60"):
        made(weight[:, :60], inputs)
    for bad in (float("nan"), float("inf"), -1.0):
        square = inputs.mean_square.clone()
        square[7] = bad
        with pytest.raises(BadInput, match="mean square of input 7"):
            made(weight, replace(inputs, mean_square=square))
    weight[2, 3] = float("nan")
    with pytest.raises(BadInput, match="row 2, column 3"):
        made(weight, inputs)
    with pytest.raises(BadInput, match="within a row, not within the matrix"):
        Wanda(Pattern(0.5, "matrix"))
    with pytest.raises(BadInput, match="6 is no multiple of 4"):
        made(torch.ones(4, 6), inputs_of(torch.ones(3, 6)), Pattern(n=2, m=4))


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.label)
def test_a_conv1d_is_a_linear_layer_turned(tiny: Callable[..., LoadedModel], pattern: Pattern) -> None:
    """On GPT-2's c_fc, (in, out): norms of its inputs, groups along them; all as of an `nn.Linear`."""
    model, name = tiny("gpt2").model, "transformer.h.1.mlp.c_fc"
    conv = linear_module(model, name)
    given: Tensor = conv.weight.detach()  # type: ignore[operator, assignment, union-attr]
    inputs = finished(calibrating(model, [list(range(5, 45))], [name]))[name]
    linear = nn.Linear(given.shape[0], given.shape[1], bias=False)
    linear.weight = nn.Parameter(given.t().contiguous())
    assert in_features(conv) == in_features(linear) == given.shape[0] == len(inputs.mean_square)
    found = made(out_in(conv), inputs, pattern)
    assert torch.equal(found.mask, made(out_in(linear), inputs, pattern).mask)
    if pattern.m:
        assert check_nm(found.mask, pattern.n, pattern.m).valid
        assert not check_nm(found.mask.t(), pattern.n, pattern.m).valid
    with pytest.raises(BadInput, match="do not fit"):  # the mutation: the weight as it lies
        made(given, inputs, pattern)


@pytest.fixture(scope="module")
def texts(packaged_model: LoadedModel) -> dict[str, dict[str, LayerInputs]]:
    """What texts of different lengths send into some layers."""
    ids = packaged_model.tokenizer("\n\n".join(topics[key] for key in sorted(topics))[:40_000])["input_ids"]
    windows = {"short": [ids[:128]], "long": [ids[2000:2512], ids[3000:3512]], "other": [ids[6000:6256]]}  # type: ignore[index]
    return {
        name: finished(calibrating(packaged_model.model, window, NAMES, hessian=False, keep=1024))
        for name, window in windows.items()
    }


@pytest.mark.model
@pytest.mark.parametrize(
    ("seen", "unseen", "bar"),
    [("short", "short", 0.8), ("long", "other", 0.9)],
    ids=["one short text, on itself", "1,024 tokens, on another text"],
)
@pytest.mark.parametrize("pattern", [ROW, Pattern(n=2, m=4)], ids=lambda p: p.label)
def test_on_the_packaged_model_it_beats_magnitude(
    packaged_model: LoadedModel, texts: Any, seen: str, unseen: str, bar: float, pattern: Pattern
) -> None:
    """128 tokens are too few for the 1536 inputs of layer 0's down_proj: on another text they gain nothing there."""
    for name in NAMES:
        weight = out_in(linear_module(packaged_model.model, name))
        ours = made(weight, texts[seen][name], pattern)
        plain = finished(Magnitude(Pattern() if pattern is ROW else pattern).prune(weight))
        error, most = (output_error(p.values - weight, texts[unseen][name]) for p in (ours, plain))
        assert error < bar * most, (name, error / most)
