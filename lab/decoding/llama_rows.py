"""A few tokens through a Llama-like model in one pass, for the fast path on a CPU.

As `llama_layer` does for one token: fixed buffers, operations in place, grouped queries by reshape. All rows are
computed in fp32, whatever the weights' dtype; keys and values are stored in the model's own. Rows may form a tree:
positions come with each row, and a bias on the newest scores hides the rows that are no ancestors.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional
from transformers.models.llama import modeling_llama as llama

from lab.decoding.products import RowsProduct, Scratches, padded_rows
from lab.decoding.room import RoomyLayer
from lab.decoding.tree import Tree, row_positions


class LlamaRows:
    """The pass for a fixed number of rows.

    Args:
        model: read, not changed; one that `llama_fits.why_not` has nothing against.
        count: rows of a pass.
        cos, sin: (position, head_dim) rotary tables.
    """

    def __init__(self, model: llama.LlamaForCausalLM, count: int, cos: Tensor, sin: Tensor) -> None:
        config = model.config
        self._count, self._width = count, padded_rows(count)
        self._table = model.model.embed_tokens.weight.detach()
        self._heads = config.num_attention_heads
        self._kv_heads = config.num_key_value_heads or self._heads
        self._dim = model.model.layers[0].self_attn.head_dim
        self._cos_table, self._sin_table = cos, sin
        width, hidden, groups = self._width, config.hidden_size, self._heads + 2 * self._kv_heads
        # One column more than the hidden size: the norm's epsilon, so that one reduction gives the root.
        self._residual = torch.zeros(width, hidden + 1)
        self._residual[:, -1] = (hidden * config.rms_norm_eps) ** 0.5
        self._h = self._residual[:, :hidden]
        self._x = torch.empty(width, hidden)
        self._root = torch.empty(width, 1)
        self._qvk = torch.empty(groups, width, self._dim)
        self._turned = torch.empty(groups, width, self._dim)
        self._cos, self._sin = torch.ones(groups, width, self._dim), torch.zeros(groups, width, self._dim)
        half = self._dim // 2
        self._halves = self._qvk[..., half:], self._qvk[..., :half]
        self._queries = self._qvk[: self._heads].view(self._kv_heads, -1, self._dim)
        # As the cache has them: (value or key, batch, kv_head, row, head_dim).
        self._fresh = self._qvk[self._heads :].view(2, 1, self._kv_heads, width, self._dim)[:, :, :, :count]
        self._read = torch.empty(width, self._heads * self._dim)
        self._read_heads = self._read.view(width, self._heads, self._dim).transpose(0, 1)
        self._inner = torch.empty(width, config.intermediate_size)
        self._bias = torch.zeros(width, count)
        dtype = self._table.dtype
        layers = model.model.layers[: config.num_hidden_layers]
        scratch = Scratches()
        self._layers = [_Layer(layer, self._x, self._read, self._inner, dtype, scratch) for layer in layers]
        self._norm = _scaled(model.model.norm)
        self._head = RowsProduct([model.lm_head], self._x, dtype, scratch)

    def __call__(
        self, ids: Sequence[int], start: int, tree: Tree, rooms: Sequence[RoomyLayer], layers: int | None
    ) -> tuple[Tensor, Tensor]:
        """(row, vocab) logits and (row, hidden) features, both fp32 and fresh; keys and values go into `rooms`."""
        self._begin(ids, start, tree)
        for layer, room in zip(self._layers[:layers], rooms, strict=False):
            self._one_layer(layer, room)
        self._normed(self._norm)
        product = self._head()
        logits = torch.empty(self._count, product.shape[1])
        for row, given in zip(logits, product, strict=False):  # row by row: twice as fast as one transposing copy
            row.copy_(given)
        return logits, self._x[: self._count].clone()

    def _begin(self, ids: Sequence[int], start: int, tree: Tree) -> None:
        pad = self._width - self._count
        rows = [*ids, *[ids[-1]] * pad]
        where = [*row_positions(tree, start)]
        where += [where[-1]] * pad
        self._h.copy_(self._table[torch.tensor(rows)])
        cos, sin = self._cos_table[where].float(), self._sin_table[where].float()
        half = self._dim // 2
        signed = torch.cat((-sin[:, :half], sin[:, half:]), dim=1)  # rotate_half without its minus sign
        scale = self._dim**-0.5
        keys = self._heads + self._kv_heads
        torch.mul(cos, scale, out=self._cos[0])
        torch.mul(signed, scale, out=self._sin[0])
        self._cos[1 : self._heads], self._sin[1 : self._heads] = self._cos[0], self._sin[0]
        self._cos[keys:], self._sin[keys:] = cos, signed  # between them lie the values, which do not turn
        hidden = ~tree.visible(0, self._bias.device)
        self._bias.zero_()
        self._bias[: self._count].masked_fill_(hidden, -torch.inf)

    def _normed(self, scaled: Tensor) -> None:
        torch.linalg.vector_norm(self._residual, dim=1, keepdim=True, out=self._root)
        torch.mul(self._h, scaled, out=self._x)
        self._x.div_(self._root)

    def _one_layer(self, layer: _Layer, room: RoomyLayer) -> None:
        kv_heads, width, dim = self._kv_heads, self._width, self._dim
        self._normed(layer.before)
        self._qvk.copy_(layer.qvk().view(width, -1, dim).transpose(0, 1))
        torch.cat(self._halves, dim=2, out=self._turned)
        self._turned.mul_(self._sin)
        torch.addcmul(self._turned, self._qvk, self._cos, out=self._qvk)
        keys, values, held = self._store(room)
        scores = torch.bmm(self._queries, keys.transpose(1, 2))
        if self._count > 1:
            scores.view(kv_heads, -1, width, scores.shape[-1])[..., held:].add_(self._bias)
        read = torch.bmm(torch.softmax(scores, dim=-1), values)
        self._read_heads.copy_(read.view(-1, width, dim))
        self._h.add_(layer.out())
        self._normed(layer.after)
        gate_up = layer.gate_up()
        inner = self._inner.shape[1]
        torch.mul(functional.silu(gate_up[:, :inner]), gate_up[:, inner:], out=self._inner)
        self._h.add_(layer.down())

    def _store(self, room: RoomyLayer) -> tuple[Tensor, Tensor, int]:
        """Append the rows; gives (kv_head, position, head_dim) keys and values in fp32, and what was held before."""
        count, fresh, held = self._count, self._fresh, room.length
        if not room.is_initialized:
            like = fresh[0].to(self._table.dtype)
            room.lazy_initialization(like, like)
        room.reserve(held + count)
        if room.buffer is not None:
            room.buffer.narrow(3, held, count).copy_(fresh)
        else:
            assert room.key_buffer is not None and room.value_buffer is not None  # noqa: S101, PT018
            room.value_buffer.narrow(2, held, count).copy_(fresh[0])
            room.key_buffer.narrow(2, held, count).copy_(fresh[1])
        room.length = held + count
        assert room.keys is not None and room.values is not None  # noqa: S101, PT018 - just written
        return room.keys[0].float(), room.values[0].float(), held


class _Layer:
    """One decoder layer's products and norms."""

    def __init__(
        self,
        layer: llama.LlamaDecoderLayer,
        x: Tensor,
        read: Tensor,
        inner: Tensor,
        dtype: torch.dtype,
        scratch: Scratches,
    ) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.before, self.after = _scaled(layer.input_layernorm), _scaled(layer.post_attention_layernorm)
        self.qvk = RowsProduct([attention.q_proj, attention.v_proj, attention.k_proj], x, dtype, scratch)
        self.out = RowsProduct([attention.o_proj], read, dtype, scratch)
        self.gate_up = RowsProduct([mlp.gate_proj, mlp.up_proj], x, dtype, scratch)
        self.down = RowsProduct([mlp.down_proj], inner, dtype, scratch)


def _scaled(norm: llama.LlamaRMSNorm) -> Tensor:
    """The norm's weight times sqrt(hidden): |(h, sqrt(hidden * eps))| = sqrt(hidden) * sqrt(mean(h^2) + eps)."""
    weight: Tensor = norm.weight.detach().float()
    scaled: Tensor = weight * float(weight.shape[0]) ** 0.5
    return scaled
