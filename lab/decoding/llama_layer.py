"""One decoder layer of a Llama-like model for one token: fixed buffers, operations in place."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.models.llama import modeling_llama as llama
from transformers.models.llama.configuration_llama import LlamaConfig

from lab.decoding.attention import attend
from lab.decoding.matvec import matvecs
from lab.decoding.room import RoomyLayer


class Scratch:
    """The buffers that one token passes through; all layers use the same.

    Queries, values and keys lie side by side: values and keys go into the cache in one copy, and one rotary
    operation covers all three (values get the angle 0, queries the attention scale).
    """

    def __init__(self, config: LlamaConfig, like: Tensor) -> None:
        self.heads = config.num_attention_heads
        self.kv_heads = config.num_key_value_heads or self.heads
        dim = self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.hidden, self.inner = config.hidden_size, config.intermediate_size
        rows = self.heads + 2 * self.kv_heads
        # One element more than the hidden size: the norm's epsilon, so that one reduction gives the root.
        self.residual = like.new_zeros(self.hidden + 1)
        self.h = self.residual[: self.hidden]
        self.x = like.new_empty(self.hidden)
        self.qvk = like.new_empty(rows, dim)
        self.turned = like.new_empty(rows, dim)
        self.halves = self.qvk[:, dim // 2 :], self.qvk[:, : dim // 2]
        self.query = self.qvk[: self.heads].view(self.kv_heads, -1, dim)
        self.value_key = self.qvk[self.heads :].view(2, self.kv_heads, dim)
        self.read = like.new_empty(self.heads * dim)
        self.read_heads = self.read.view(self.kv_heads, -1, dim)
        self.gate_up = like.new_empty(2 * self.inner)
        self.gate, self.up = self.gate_up[: self.inner], self.gate_up[self.inner :]
        self.root = like.new_empty(())
        self.cos, self.sin = like.new_ones(rows, dim), like.new_zeros(rows, dim)
        self.scaling = float(dim**-0.5)
        self.residual[-1] = (self.hidden * config.rms_norm_eps) ** 0.5

    def start(self, embedding: Tensor, cos: Tensor, sin: Tensor) -> None:
        """Take in a token's (hidden,) embedding and its position's (head_dim,) rotary tables."""
        self.h.copy_(embedding)
        # rotate_half without its minus sign, which goes into the sine.
        half = self.head_dim // 2
        signed = torch.cat((-sin[:half], sin[half:]))
        for rows in (slice(0, self.heads), slice(self.heads + self.kv_heads, None)):
            self.cos[rows], self.sin[rows] = cos, signed
        self.cos[: self.heads] *= self.scaling
        self.sin[: self.heads] *= self.scaling


class Norm:
    """RMSNorm of the residual into `x`: x = w * h / sqrt(mean(h^2) + eps)."""

    def __init__(self, module: nn.Module, scratch: Scratch) -> None:
        assert isinstance(module, llama.LlamaRMSNorm)  # noqa: S101 - checked by `why_not`
        self._module, self._scratch = module, scratch
        size, self._epsilon = scratch.hidden, float(module.variance_epsilon)
        self._exact = module.weight.dtype == torch.float32
        self._scaled = module.weight.detach() * size**0.5

    def __call__(self) -> None:
        scratch = self._scratch
        if not self._exact:
            scratch.x.copy_(self._module(scratch.h))
            return
        # |(h, sqrt(size * eps))| = sqrt(size) * sqrt(mean(h^2) + eps), in one reduction.
        torch.linalg.vector_norm(scratch.residual, out=scratch.root)
        torch.mul(scratch.h, self._scaled, out=scratch.x)
        scratch.x.div_(scratch.root)


class TokenLayer:
    """One decoder layer for one token."""

    def __init__(self, layer: llama.LlamaDecoderLayer, scratch: Scratch) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self._scratch = scratch
        self._norms = Norm(layer.input_layernorm, scratch), Norm(layer.post_attention_layernorm, scratch)
        qvk = [attention.q_proj, attention.v_proj, attention.k_proj]
        self._qvk = matvecs(qvk, scratch.x, scratch.qvk.view(-1))
        self._out = matvecs([attention.o_proj], scratch.read, scratch.h, add=True)
        self._gate_up = matvecs([mlp.gate_proj, mlp.up_proj], scratch.x, scratch.gate_up)
        self._down = matvecs([mlp.down_proj], scratch.gate, scratch.h, add=True)
        self._seen: Tensor | None = None
        self._keys = self._values = scratch.qvk

    def __call__(self, cache: RoomyLayer) -> Tensor:
        """Send the scratch's token through; gives the (kv_head, group, position) attention weights, a fresh tensor."""
        scratch = self._scratch
        self._norms[0]()
        for product in self._qvk:
            product()
        torch.cat(scratch.halves, 1, out=scratch.turned)
        scratch.turned.mul_(scratch.sin)
        torch.addcmul(scratch.turned, scratch.qvk, scratch.cos, out=scratch.qvk)

        keys, values = self._store(cache)
        _, weights = attend(scratch.query, keys, values, out=scratch.read_heads)
        for product in self._out:
            product()

        self._norms[1]()
        for product in self._gate_up:
            product()
        functional.silu(scratch.gate, inplace=True).mul_(scratch.up)
        for product in self._down:
            product()
        return weights

    def _store(self, cache: RoomyLayer) -> tuple[Tensor, Tensor]:
        """Append the token; gives (kv_head, head_dim, position) keys and (kv_head, position, head_dim) values."""
        scratch, held = self._scratch, cache.length
        if not cache.is_initialized:
            like = scratch.value_key[:1].unsqueeze(2)
            cache.lazy_initialization(like, like)
        cache.reserve(held + 1)
        if cache.key_buffer is not self._seen:
            assert cache.key_buffer is not None and cache.value_buffer is not None  # noqa: S101, PT018
            self._seen = cache.key_buffer
            self._keys, self._values = cache.key_buffer[0].transpose(1, 2), cache.value_buffer[0]
        if cache.buffer is not None:
            cache.buffer.select(3, held).copy_(scratch.value_key.unsqueeze(1))
        else:
            self._values.select(1, held).copy_(scratch.value_key[0])
            self._keys.select(2, held).copy_(scratch.value_key[1])
        cache.length = held + 1
        return self._keys.narrow(2, 0, held + 1), self._values.narrow(1, 0, held + 1)
