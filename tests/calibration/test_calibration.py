"""Calibration against plain hooks on a plain forward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from lab.calibration.gather import calibrating
from lab.calibration.hessian import Accumulator
from lab.calibration.walk import LayerWalk, batches
from lab.errors import BadInput, ModelError, NotFound
from lab.models.linear import linear_names
from lab.models.shell import make_shell
from lab.steps import finished as end

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
KINDS = ("llama", "gpt2", "qwen2", "qwen3", "gemma2", "gemma3", "mistral", "mixtral")
LENGTHS = (24, 24, 24, 7, 24, 1, 40)


def windows(lengths: tuple[int, ...] = LENGTHS, seed: int = 1) -> list[list[int]]:
    g = torch.Generator().manual_seed(seed)
    return [torch.randint(3, 300, (n,), generator=g).tolist() for n in lengths]


def plain_inputs(model: nn.Module, names: tuple[str, ...], texts: list[list[int]]) -> dict[str, Tensor]:
    seen: dict[str, list[Tensor]] = {name: [] for name in names}
    shell = make_shell(model)

    def keep(name: str) -> Any:
        return lambda _, args: seen[name].append(args[0].detach().reshape(-1, args[0].shape[-1]))

    for name in names:
        shell.get_submodule(name).register_forward_pre_hook(keep(name))
    with torch.no_grad():
        for text in texts:
            shell(input_ids=torch.tensor([text]), use_cache=False)
    return {name: torch.cat(found) for name, found in seen.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_what_reaches_each_layer_is_what_a_plain_pass_sends(tiny: Tiny, kind: str) -> None:
    model = tiny(kind).model
    names, texts = linear_names(model, head=True), windows()
    made = end(calibrating(model, texts, names, keep=30))
    wanted = plain_inputs(model, names, texts)
    assert set(made) == set(names)
    for name, x in wanted.items():
        got = made[name]
        hessian = 2 * x.t() @ x / len(x)
        assert got.tokens == len(x) == sum(LENGTHS)
        assert got.hessian is not None
        assert float((got.hessian - hessian).abs().max() / hessian.abs().max()) < 1e-5
        assert torch.equal(got.hessian, got.hessian.t())
        assert torch.allclose(got.mean_abs, x.abs().mean(dim=0), rtol=1e-4)
        assert torch.allclose(got.mean_square, x.square().mean(dim=0), rtol=1e-4)
        assert not torch.allclose(got.mean_square, got.mean_abs.square(), rtol=1e-2)
        assert torch.allclose(got.rows, x[[i * len(x) // 30 for i in range(30)]], atol=1e-5)
        # the mutation: a mean over windows of their means
        shares = torch.cat([torch.full((n,), 1 / n) for n in LENGTHS]) / len(LENGTHS)
        by_window = 2 * (x * shares[:, None]).t() @ x
        assert float((got.hessian - by_window).abs().max() / hessian.abs().max()) > 1e-3


def test_modules_of_one_input_share_it(tiny: Tiny) -> None:
    model = tiny("llama").model
    at = "model.layers.1."
    names = [at + part for part in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.o_proj", "mlp.up_proj")]
    q, k, o, up = (
        made for _, made in sorted(end(calibrating(model, windows(), names)).items(), key=lambda i: names.index(i[0]))
    )
    assert q is k
    assert len({id(q), id(o), id(up)}) == 3


def test_padding_would_be_noticed(tiny: Tiny) -> None:
    """Windows of unlike lengths are never padded: the same text with a pad token after it gives another Hessian."""
    model = tiny("llama").model
    name = "model.layers.0.mlp.down_proj"
    a, b = (end(calibrating(model, [[5, 6, 7], [8, 9, *tail]], [name]))[name] for tail in ((), (0,)))
    assert (a.tokens, b.tokens) == (5, 6)
    assert a.hessian is not None
    assert b.hessian is not None
    assert not torch.allclose(a.hessian, b.hessian)


def test_batches_hold_windows_of_one_length() -> None:
    made = batches(windows(), 50)
    assert [[len(w) for w in batch] for batch in made] == [[24, 24], [24], [7], [24], [1], [40]]
    assert [len(b) for b in batches([[1] * 4] * 5, 8)] == [2, 2, 1]
    assert [len(b) for b in batches([[1] * 40] * 2, 8)] == [1, 1]


def test_the_model_is_left_alone_and_nothing_is_held_between_steps(tiny: Tiny) -> None:
    model = tiny("llama").model
    texts, ids = windows(), torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        before = model(input_ids=ids).logits
    steps = calibrating(model, texts, linear_names(model, head=True))
    shares = []
    for share in steps:
        shares.append(share)
        assert not torch.is_inference_mode_enabled()
        assert torch.is_grad_enabled()
        assert all(not m._forward_pre_hooks and "forward" not in vars(m) for m in model.modules())
    assert shares == sorted(shares)
    assert len(shares) >= 4 * len(batches(texts, 512))
    with torch.no_grad():
        assert torch.equal(model(input_ids=ids).logits, before)


def test_a_shell_has_no_hooks_between_steps(tiny: Tiny) -> None:
    shell = make_shell(tiny("llama").model)
    walk = LayerWalk(shell, windows(), step_tokens=24)
    for _ in walk.embed():
        assert all("forward" not in vars(m) for m in shell.modules())
    assert len(walk.hidden) == len(LENGTHS)


@pytest.mark.parametrize("keep", [1, 7, 100, 1000])
def test_kept_rows_are_spread_evenly_whatever_the_steps(keep: int) -> None:
    x = torch.arange(103.0)[:, None]
    for step in (1, 10, 103):
        sums = Accumulator(hessian=False, expected=103, keep=keep)
        for part in x.split(step):
            sums.add(part)
        rows = sums.result(1, x.device).rows[:, 0].tolist()
        count = min(keep, 103)
        assert rows == [i * 103 // count for i in range(count)]


def test_an_input_that_never_came_is_zeros() -> None:
    made = Accumulator(hessian=True, expected=10, keep=4).result(3, torch.device("cpu"))
    assert made.tokens == 0
    assert made.hessian is not None
    assert not made.hessian.any()


def test_bad_texts_and_names_are_refused(tiny: Tiny) -> None:
    model = tiny("llama").model
    name = "model.layers.0.mlp.down_proj"
    with pytest.raises(BadInput, match="Calibration on 1 token says nothing; at least 2"):
        end(calibrating(model, [[5]], [name]))
    with pytest.raises(BadInput, match="Calibration on 0 tokens"):
        end(calibrating(model, [], [name]))
    with pytest.raises(BadInput, match="1 of them empty"):
        end(calibrating(model, [[5, 6], []], [name]))
    with pytest.raises(BadInput, match="Token id 320 is outside the vocabulary of 320"):
        end(calibrating(model, [[5, 320]], [name]))
    with pytest.raises(NotFound, match=r"model\.layers\.9\.x' is no module"):
        end(calibrating(model, [[5, 6]], ["model.layers.9.x"]))
    with pytest.raises(NotFound, match="is a LlamaRMSNorm, no linear module"):
        end(calibrating(model, [[5, 6]], ["model.norm"]))
    with pytest.raises(ModelError, match="No list of"):
        LayerWalk(nn.Linear(3, 3), [[5, 6]])


def test_five_tokens_are_enough(tiny: Tiny) -> None:
    made = end(calibrating(tiny("llama").model, [[5, 6, 7, 8, 9]], ["model.layers.1.mlp.down_proj"]))
    assert made["model.layers.1.mlp.down_proj"].tokens == 5
    assert len(made["model.layers.1.mlp.down_proj"].rows) == 5
