"""One token through packed modules that read the same: fused where a kernel was made for it, else one by one.

Two kernels make the product of an int8 matrix and a token. FBGEMM's (`halves`) reads codes at full speed but needs
nine small operations around it; torch's own (`joined`) needs two, and shares its work better between threads. Measured
on an AMD EPYC (AVX2), us a product, halves against joined: 3072 x 576, one thread 240 and 397, two 239 and 204; the
head, 49152 x 576, 3057 and 6567, 1947 and 3539; smaller ones 10 to 200 % slower. So the first is for large matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

import torch
from torch import Tensor, nn

from lab.quantization.packed.halves import HalvesKernel, has_kernel, making_halves
from lab.quantization.packed.int8 import Int8Weight
from lab.quantization.packed.joined import JoinedKernel
from lab.quantization.packed.modules import PackedLinear, PackedWeight

TOGETHER = (("q_proj", "v_proj", "k_proj"), ("gate_proj", "up_proj"))
"""Modules of one parent that read the same input, in the order in which the fast path wants their results."""

LARGE = 1_700_000
"""Weights for each thread from which on FBGEMM's kernel is the faster."""


def making_kernels(shell: nn.Module) -> Generator[None, None, int]:
    """Make the token kernels of a shell's int8 modules, a step each or several; gives the bytes they take."""
    taken, large = 0, LARGE * torch.get_num_threads()
    for parent in list(shell.modules()):
        children = dict(parent.named_children())
        groups = [names for names in TOGETHER if all(name in children for name in names)]
        grouped = {name for names in groups for name in names}
        for names in (*groups, *((name,) for name in children if name not in grouped)):
            modules = [m for name in names if isinstance(m := children[name], PackedLinear)]
            weights = [
                w for m in modules if isinstance(w := m.weight_codes, Int8Weight) and w.codes.device.type == "cpu"
            ]
            if len(weights) < len(names):
                continue
            kernel: HalvesKernel | JoinedKernel
            if has_kernel() and sum(w.codes.numel() for w in weights) >= large:
                kernel = yield from making_halves(weights)
            else:
                kernel = JoinedKernel(weights)
            for module, weight in zip(modules, kernel.weights, strict=True):
                module.weight_codes, module.token_kernel = weight, kernel
            taken += kernel.resident_bytes
            yield
    return taken


def token_products(modules: Sequence[PackedLinear], x: Tensor, y: Tensor, *, add: bool) -> list[Callable[[], None]]:
    """Products of packed modules without bias, on the CPU, on the same token; their results side by side in `y`.

    Args:
        x: (in,) contiguous, read at each call.
        y: (out,) contiguous, written at each call.
        add: add to `y` instead of overwriting it.
    """
    weights = [module.weight_codes for module in modules]
    kernel = modules[0].token_kernel
    if isinstance(kernel, HalvesKernel | JoinedKernel) and list(map(id, kernel.weights)) == list(map(id, weights)):
        return [kernel.product(x, y, add=add)]
    across = x.view(1, -1)
    rounded = torch.empty(across.shape, dtype=torch.bfloat16)

    parts = torch.split(y.view(1, -1), [weight.shape[0] for weight in weights], dim=1)
    products = [_product(w, rounded, part, add=add) for w, part in zip(weights, parts, strict=True)]
    first = products[0]

    def take_and_multiply() -> None:
        rounded.copy_(across)
        first()

    return [take_and_multiply, *products[1:]]


def _product(weight: PackedWeight, rounded: Tensor, row: Tensor, *, add: bool) -> Callable[[], None]:
    def write() -> None:
        row.copy_(weight.multiply(rounded))

    def added() -> None:
        row.add_(weight.multiply(rounded))

    return added if add else write
