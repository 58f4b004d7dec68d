"""One decoder layer of a Llama-like model for the newest token of several beams."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.models.llama import modeling_llama as llama
from transformers.models.llama.configuration_llama import LlamaConfig

from lab.decoding.matvec import is_plain, out_features
from lab.decoding.products import FEW, linear_rows


class Buffers:
    """What `rows` beams pass through; all layers use the same.

    Matrix products take row-major (row, in) and give (out, row): W x^T reads the weights once, at full speed.
    Keys and values lie side by side and go into the cache in one copy; one rotary operation covers queries, values
    and keys (values get the angle 0, queries the attention scale).
    """

    def __init__(self, config: LlamaConfig, like: Tensor, rows: int) -> None:
        self.rows = rows
        # Products of three rows take longer than those of four.
        padded = 4 if rows == 3 else rows
        self.heads = config.num_attention_heads
        self.kv_heads = config.num_key_value_heads or self.heads
        self.group = self.heads // self.kv_heads
        dim = self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.hidden, self.inner = config.hidden_size, config.intermediate_size
        lines = self.heads + 2 * self.kv_heads
        # One element more than the hidden size: the norm's epsilon, so that one reduction gives the root.
        self.residual = like.new_zeros(rows, self.hidden + 1)
        self.h = self.residual[:, : self.hidden]
        self.x_padded = like.new_zeros(padded, self.hidden)
        self.x = self.x_padded[:rows]
        self.read_padded = like.new_zeros(padded, self.heads * dim)
        self.read = self.read_padded[:rows].view(rows, self.kv_heads, self.group, dim)
        self.act_padded = like.new_zeros(padded, self.inner)
        self.act = self.act_padded[:rows].t()
        self.qvk_flat = like.new_empty(lines * dim, padded)
        self.qvk = self.qvk_flat.view(lines, dim, padded)
        self.halves = self.qvk[:, dim // 2 :], self.qvk[:, : dim // 2]
        self.turned = torch.empty_like(self.qvk)
        self.gate = like.new_empty(self.inner, padded)
        self.up = like.new_empty(self.inner, padded)
        self.out = like.new_empty(self.hidden, padded)
        self.back = self.out[:, :rows].t()
        query = self.qvk[: self.heads].view(self.kv_heads, self.group, dim, padded)[..., :rows]
        self.query_by_head = query.permute(0, 3, 1, 2)
        self.query_by_row = query.permute(3, 0, 1, 2)
        self.value_key = self.qvk[self.heads :].view(2, self.kv_heads, dim, padded)[..., :rows].permute(0, 3, 1, 2)
        self.root = like.new_empty(rows, 1)
        self.cos, self.sin = like.new_ones(lines, dim, 1), like.new_zeros(lines, dim, 1)
        self.scaling = float(dim**-0.5)
        self.residual[:, -1] = (self.hidden * config.rms_norm_eps) ** 0.5

    def start(self, embeddings: Tensor, cos: Tensor, sin: Tensor) -> None:
        """Take in the tokens' (row, hidden) embeddings and their position's (head_dim,) rotary tables."""
        self.h.copy_(embeddings)
        # rotate_half without its minus sign, which goes into the sine.
        half = self.head_dim // 2
        signed = torch.cat((-sin[:half], sin[half:]))
        for lines in (slice(0, self.heads), slice(self.heads + self.kv_heads, None)):
            self.cos[lines, :, 0], self.sin[lines, :, 0] = cos, signed
        self.cos[: self.heads] *= self.scaling
        self.sin[: self.heads] *= self.scaling


class RowNorm:
    """RMSNorm of each row of the residual into `x`: x = w * h / sqrt(mean(h^2) + eps)."""

    def __init__(self, module: nn.Module) -> None:
        assert isinstance(module, llama.LlamaRMSNorm)  # noqa: S101 - checked by `why_not`
        self._module = module
        self._exact = module.weight.dtype == torch.float32
        self._scaled = module.weight.detach() * module.weight.shape[0] ** 0.5

    def __call__(self, buffers: Buffers) -> None:
        if not self._exact:
            buffers.x.copy_(self._module(buffers.h))
            return
        # |(h, sqrt(size * eps))| = sqrt(size) * sqrt(mean(h^2) + eps), in one reduction.
        torch.linalg.vector_norm(buffers.residual, dim=1, keepdim=True, out=buffers.root)
        torch.mul(buffers.h, self._scaled, out=buffers.x)
        buffers.x.div_(buffers.root)


class RowsProduct:
    """W x^T for a few rows: (padded row, in) into (out, padded row). What is not plain, or not fp32 on a CPU, goes the
    way of `linear_rows`."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self.rows = out_features(module)
        weight, bias = module.weight, getattr(module, "bias", None)
        self._weight = self._bias = None
        if is_plain(module) and isinstance(weight, Tensor):
            if weight.device.type != "cpu" or weight.dtype == torch.float32:
                self._weight = weight.detach()
            self._bias = bias.detach()[:, None] if isinstance(bias, Tensor) else None

    def __call__(self, x: Tensor, out: Tensor) -> None:
        if self._weight is None or x.shape[0] > FEW:
            out.copy_(linear_rows(self._module, x).t())
            return
        torch.mm(self._weight, x.t(), out=out)
        if self._bias is not None:
            out.add_(self._bias)


class BeamLayer:
    """One decoder layer; its weights are read at each call, so the module's own tensors are used."""

    def __init__(self, layer: llama.LlamaDecoderLayer) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self._norms = RowNorm(layer.input_layernorm), RowNorm(layer.post_attention_layernorm)
        self._qvk = [RowsProduct(m) for m in (attention.q_proj, attention.v_proj, attention.k_proj)]
        self._out = RowsProduct(attention.o_proj)
        self._gate, self._up, self._down = (RowsProduct(m) for m in (mlp.gate_proj, mlp.up_proj, mlp.down_proj))

    def __call__(self, b: Buffers, prompt: tuple[Tensor, Tensor], generated: Tensor, held: int) -> None:
        """Send the rows' newest tokens through.

        Args:
            prompt: (kv_head, position, head_dim) keys and values, the same for all rows.
            generated: (2, row, kv_head, room, head_dim), values first: what each row holds of its own; the newest
                are written at `held`.
        """
        self._norms[0](b)
        start = 0
        for product in self._qvk:
            product(b.x_padded, b.qvk_flat[start : start + product.rows])
            start += product.rows
        torch.cat(b.halves, 1, out=b.turned)
        b.turned.mul_(b.sin)
        torch.addcmul(b.turned, b.qvk, b.cos, out=b.qvk)
        generated.select(3, held).copy_(b.value_key)
        b.read.copy_(_attend(b, prompt, generated.narrow(3, 0, held + 1)))
        self._out(b.read_padded, b.out)
        b.h.add_(b.back)

        self._norms[1](b)
        self._gate(b.x_padded, b.gate)
        self._up(b.x_padded, b.up)
        gate = functional.silu(b.gate, inplace=True)
        torch.mul(gate[:, : b.rows], b.up[:, : b.rows], out=b.act)
        self._down(b.act_padded, b.out)
        b.h.add_(b.back)


def _attend(b: Buffers, prompt: tuple[Tensor, Tensor], generated: Tensor) -> Tensor:
    """(row, kv_head, group, head_dim): softmax over the shared prompt and the row's own positions together.

    The prompt's keys are read once for all rows: to it the rows are just more queries.
    """
    keys, values = prompt
    rows, heads, group, dim = b.rows, b.kv_heads, b.group, b.head_dim
    length, own = keys.shape[1], generated.shape[3]
    own_values, own_keys = (part.reshape(rows * heads, own, dim) for part in generated)
    by_head = b.query_by_head.reshape(heads, rows * group, dim)
    by_row = b.query_by_row.reshape(rows * heads, group, dim)
    to_prompt = torch.bmm(by_head, keys.transpose(1, 2)).view(heads, rows, group, length)
    to_own = torch.bmm(by_row, own_keys.transpose(1, 2)).view(rows, heads, group, own)
    scores = torch.cat((to_prompt, to_own.transpose(0, 1)), dim=-1)
    weights = torch.softmax(scores, dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(values.dtype)
    from_prompt = torch.bmm(weights[..., :length].reshape(heads, rows * group, length), values)
    from_own = torch.bmm(weights[..., length:].transpose(0, 1).reshape(rows * heads, group, own), own_values)
    result = from_own.view(rows, heads, group, dim)
    return result.add_(from_prompt.view(heads, rows, group, dim).transpose(0, 1))
