"""The fast path for Llama-like models: the same sums as transformers' modules, with less between them.

One token a step: fixed buffers and operations in place, matrices read in row blocks (`matvec`), neighbouring
matrices as one, rotary tables made once, grouped queries by reshape instead of repeated keys, attention as
matmul, softmax, matmul (its weights come for free), logits of the last position only. A chunk of the prompt
goes through the modules themselves.

The weights are read from the given model at the start of each run, so a shell with replaced or changed modules is
followed: a linear module that is not plain is called as it stands, and `why_not` sends everything else
that differs the generic way.

Sources: Llama (Touvron et al. 2023), RMSNorm (Zhang & Sennrich 2019), rotary positions (Su et al. 2021), grouped
queries (Ainslie et al. 2023); the arithmetic is that of transformers' `models/llama/modeling_llama.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.activations import SiLUActivation
from transformers.models.llama import modeling_llama as llama

from lab.decoding import cache_layout
from lab.decoding.attention import attend
from lab.decoding.cache_layout import RoomyLayer
from lab.decoding.matvec import has_hooks, is_plain, matvecs, out_features
from lab.errors import ModelError

STATIC_ROPE = ("default", "linear", "llama3", "yarn")
"""Rotary kinds whose angles depend on the position alone."""

LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head")


def why_not(model: nn.Module) -> str:
    """Empty if the fast path computes what `model` computes, else the first reason why not."""
    if type(model) is not llama.LlamaForCausalLM:
        return f"{type(model).__name__} is not LlamaForCausalLM"
    if model.training:
        return "the model is in training mode"
    rope = model.model.rotary_emb
    if type(rope) is not llama.LlamaRotaryEmbedding or rope.rope_type not in STATIC_ROPE:
        return "its rotary positions change with the length"
    expected = {
        llama.LlamaForCausalLM,
        llama.LlamaModel,
        llama.LlamaDecoderLayer,
        llama.LlamaAttention,
        llama.LlamaMLP,
        llama.LlamaRMSNorm,
        llama.LlamaRotaryEmbedding,
        nn.ModuleList,
        nn.Embedding,
        nn.SiLU,
        SiLUActivation,
    }
    linear: set[int] = set()
    for name, module in model.named_modules():
        if name.rsplit(".", 1)[-1] in LINEAR:
            linear.update(id(part) for part in module.modules())
            if not hasattr(module, "out_features"):
                return f"{name} ({type(module).__name__}) does not say how many rows it has"
        elif id(module) not in linear and (type(module) not in expected or has_hooks(module)):
            return f"{name or 'the model'} ({type(module).__name__}) is changed"
    return _shapes(model)


def _shapes(model: llama.LlamaForCausalLM) -> str:
    for index, layer in enumerate(model.model.layers[: model.config.num_hidden_layers]):
        attention = layer.self_attn
        heads = model.config.num_attention_heads, model.config.num_key_value_heads, model.config.num_key_value_heads
        for module, count in zip((attention.q_proj, attention.k_proj, attention.v_proj), heads, strict=True):
            if out_features(module) != count * attention.head_dim:
                return f"layer {index} has another number of heads"
        if attention.scaling != attention.head_dim**-0.5:
            return f"layer {index} scales its attention differently"
    norms = [m for m in model.modules() if isinstance(m, llama.LlamaRMSNorm)]
    if any(norm.variance_epsilon != model.config.rms_norm_eps for norm in norms):
        return "a norm has another epsilon"
    tensors = [*model.parameters(), *model.buffers()]
    if len({t.device for t in tensors}) > 1:
        return "its weights are on more than one device"
    embedding = model.model.embed_tokens
    if embedding.max_norm is not None or not embedding.weight.dtype.is_floating_point:
        return "its embedding is changed"
    return ""


class LlamaPass:
    """A `Pass` for models that `why_not` has nothing against.

    Args:
        model: read, not changed.
        capacity: positions to make room for.
        layers: layers whose attention weights are wanted.

    Raises:
        ModelError: the model does not fit; the reason is named.
    """

    name = "llama"

    def __init__(self, model: nn.Module, capacity: int, *, layers: tuple[int, ...] = ()) -> None:
        reason = why_not(model)
        if reason or not isinstance(model, llama.LlamaForCausalLM):
            raise ModelError(f"The fast path does not fit: {reason}.", remedy="Use the generic path.")
        self._model = model
        self._traced = layers
        self._weights: dict[int, Tensor] = {}
        self.cache = cache_layout.new_cache(model, capacity)
        with torch.inference_mode():
            self._prepare(model, capacity)

    def _prepare(self, model: llama.LlamaForCausalLM, capacity: int) -> None:
        config = model.config
        table = model.model.embed_tokens.weight
        self._table = table.detach()
        # One position more than there is room for: a run may be asked to shift its positions by one.
        positions = torch.arange(capacity + 1, device=table.device)[None]
        cos, sin = model.model.rotary_emb(table[:1], position_ids=positions)
        self._cos, self._sin = cos[0], sin[0]
        self._step = _Scratch(config, table)
        kept = model.model.layers[: config.num_hidden_layers]
        self._layers = [_Layer(layer, self._step) for layer in kept]
        self._norm = _Norm(model.model.norm, self._step)
        self._logits = table.new_empty(out_features(model.lm_head))
        self._head = matvecs([model.lm_head], self._step.x, self._logits)

    def __call__(self, ids: Sequence[int], start: int, *, last: bool, attention: bool) -> Tensor | None:
        self._weights.clear()
        if len(ids) > 1:
            return self._chunk(ids, start, last=last, attention=attention)
        return self._one(ids[0], start, last=last, attention=attention)

    def take_attention(self) -> list[Tensor]:
        kept = [self._weights[layer].float() for layer in self._traced]
        self._weights.clear()
        return kept

    def _one(self, token: int, position: int, *, last: bool, attention: bool) -> Tensor | None:
        scratch = self._step
        scratch.start(self._table[token], self._cos[position], self._sin[position])
        for index, layer in enumerate(self._layers):
            weights = layer(self.cache.layers[index])
            if attention and index in self._traced:
                self._weights[index] = weights.reshape(-1, weights.shape[-1])
        if not last:
            return None
        self._norm()
        for product in self._head:
            product()
        # The buffer is written again by the next step; fp32 logits are used before that.
        return self._logits.float()

    def _chunk(self, ids: Sequence[int], start: int, *, last: bool, attention: bool) -> Tensor | None:
        model, count = self._model, len(ids)
        hidden = model.model.embed_tokens(torch.tensor([ids], device=self._table.device))
        cos, sin = self._cos[None, start : start + count], self._sin[None, start : start + count]
        mask = None
        if start:
            mask = torch.ones(count, start + count, dtype=torch.bool, device=hidden.device).tril_(start)
        for index, layer in enumerate(model.model.layers[: model.config.num_hidden_layers]):
            attn = layer.self_attn
            x = layer.input_layernorm(hidden)
            query, key, value = (
                projection(x).view(1, count, -1, attn.head_dim).transpose(1, 2)
                for projection in (attn.q_proj, attn.k_proj, attn.v_proj)
            )
            query, key = llama.apply_rotary_pos_emb(query, key, cos, sin)
            key, value = self.cache.update(key, value, index)
            read = functional.scaled_dot_product_attention(
                query, key, value, attn_mask=mask, is_causal=mask is None, scale=attn.scaling, enable_gqa=True
            )
            if attention and index in self._traced:
                self._weights[index] = _last_row(query, key, attn.scaling)
            hidden = hidden + attn.o_proj(read.transpose(1, 2).reshape(1, count, -1))
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        if not last:
            return None
        logits: Tensor = model.lm_head(model.model.norm(hidden[:, -1:]))
        return logits[0, -1].float()


def _last_row(query: Tensor, key: Tensor, scaling: float) -> Tensor:
    """(head, position) attention weights of the last of (1, head, new, head_dim) queries."""
    grouped = query[0, :, -1].view(key.shape[1], -1, key.shape[3])
    scores = torch.bmm(grouped, key[0].transpose(1, 2)) * scaling
    return torch.softmax(scores, dim=-1, dtype=torch.float32).reshape(-1, key.shape[2])


class _Scratch:
    """The buffers that one token passes through; all layers use the same.

    Queries, values and keys lie side by side, in this order: queries and values are neighbours in the files that
    safetensors writes (alphabetical), and values and keys go into the cache in one copy. One rotary
    operation covers all three: values get the angle 0, queries the attention scale.
    """

    def __init__(self, config: llama.LlamaConfig, like: Tensor) -> None:
        dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.heads, self.kv_heads, self.head_dim = config.num_attention_heads, config.num_key_value_heads, dim
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


class _Norm:
    """RMSNorm of the residual into `x`: x = w * h / sqrt(mean(h^2) + eps)."""

    def __init__(self, module: nn.Module, scratch: _Scratch) -> None:
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


class _Layer:
    """One decoder layer for one token."""

    def __init__(self, layer: llama.LlamaDecoderLayer, scratch: _Scratch) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self._scratch = scratch
        self._norms = _Norm(layer.input_layernorm, scratch), _Norm(layer.post_attention_layernorm, scratch)
        flat = scratch.qvk.view(-1)
        queries_values = flat[: (scratch.heads + scratch.kv_heads) * scratch.head_dim]
        keys = flat[queries_values.shape[0] :]
        self._qvk = [
            *matvecs([attention.q_proj, attention.v_proj], scratch.x, queries_values),
            *matvecs([attention.k_proj], scratch.x, keys),
        ]
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
        """Append the token's key and value; gives (kv_head, head_dim, position) keys and (kv_head, position, head_dim) values."""
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
