"""A shell shares all tensors with its model and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tiny_models import CONFIGS
from torch import nn

from lab.models.loading import LoadedModel
from lab.models.shell import make_shell


def logits(model: nn.Module) -> torch.Tensor:
    with torch.inference_mode():
        output = model(torch.arange(3, 12)[None]).logits
    assert isinstance(output, torch.Tensor)
    return output


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_every_tensor_is_shared(tiny: Callable[..., LoadedModel], kind: str) -> None:
    base = tiny(kind).model
    shell = make_shell(base)
    for mine, theirs in zip(shell.named_parameters(), base.named_parameters(), strict=True):
        assert mine[0] == theirs[0]
        assert mine[1] is theirs[1]
    assert {b.data_ptr() for b in shell.buffers()} == {b.data_ptr() for b in base.buffers()}
    assert not {id(m) for m in shell.modules()} & {id(m) for m in base.modules()}
    assert torch.equal(logits(shell), logits(base))


def test_ties_are_kept(tiny: Callable[..., LoadedModel]) -> None:
    shell = make_shell(tiny("llama").model)
    assert shell.get_output_embeddings().weight is shell.get_input_embeddings().weight


def test_hooks_and_replaced_modules_stay_on_the_shell(tiny: Callable[..., LoadedModel]) -> None:
    base = tiny("llama").model
    before = logits(base)
    shell = make_shell(base)
    calls = []
    for module in shell.modules():
        module.register_forward_hook(lambda *_: calls.append(1))
    shell.model.layers[0].mlp.up_proj = nn.Linear(32, 64, bias=False)
    assert torch.equal(logits(base), before)
    assert calls == []
    assert not torch.equal(logits(shell), before)
    assert calls


def test_hooks_of_the_model_are_not_taken_over(tiny: Callable[..., LoadedModel]) -> None:
    base = make_shell(tiny("llama").model)
    calls = []
    handle = base.register_forward_hook(lambda *_: calls.append(1))
    shell = make_shell(base)
    logits(shell)
    assert calls == []
    handle.remove()


@pytest.mark.model
def test_a_shell_of_the_real_model_takes_no_weights(packaged_model: LoadedModel) -> None:
    shell = make_shell(packaged_model.model)
    own = {p.data_ptr(): p.nbytes for p in (*shell.parameters(), *shell.buffers())}
    theirs = {p.data_ptr() for p in (*packaged_model.model.parameters(), *packaged_model.model.buffers())}
    assert sum(size for pointer, size in own.items() if pointer not in theirs) == 0
    assert sum(own.values()) > 500_000_000
