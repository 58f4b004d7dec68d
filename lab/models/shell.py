"""A shell: the modules of a model copied, its tensors shared. Hooks and replaced modules stay on the shell."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import nn

M = TypeVar("M", bound=nn.Module)


def make_shell(model: M) -> M:
    """A deep copy of `model`'s modules that shares every parameter and buffer with it.

    It takes about 1 MB and some tens of milliseconds for 135M parameters. Ties are kept. Hooks that are
    on `model` are not copied. What is replaced, packed or hooked on the shell never touches `model`; what
    is written *into* a shared tensor does, so nobody may.
    """
    memo: dict[int, object] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        memo[id(tensor)] = tensor
    for module in model.modules():
        # A plain attribute may hold a tensor too (a rotary embedding keeps its original frequencies so).
        for value in vars(module).values():
            if isinstance(value, torch.Tensor):
                memo[id(value)] = value
    shell = copy.deepcopy(model, memo)
    for module in shell.modules():
        for hooks in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            getattr(module, hooks).clear()
    return shell
