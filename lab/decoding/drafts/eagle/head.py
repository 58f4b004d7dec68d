"""The draft head: one Llama layer that continues the target's last feature by one token.

At position s it reads the token x_{s+1} and the target's feature f_s (after the final norm: what the output matrix
reads), and gives an estimate of f_{s+1}; the output matrix's rows turn it into a distribution of x_{s+2}. Its own
estimate stands in for the feature when it drafts deeper.

Source: EAGLE (Li et al. 2024, arXiv 2401.15077). Differences: both inputs are normalised, the layer starts from small
random numbers (a copied layer expects the large residual stream, not normalised features), it has a norm of its own,
and it speaks only the most used rows of the target's output matrix (FR-Spec, Zhao et al. 2025), the others get 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.models.llama import modeling_llama as llama
from transformers.models.llama.configuration_llama import LlamaConfig

FC_STD = 0.02
LAYER_STD = 0.03


def head_config(hidden: int, inner: int, heads: int, kv_heads: int, head_dim: int, theta: float) -> LlamaConfig:
    """The config of the head's one layer: the target's shapes."""
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=1,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        rope_parameters={"rope_type": "default", "rope_theta": theta},
        rms_norm_eps=1e-5,
    )
    config._attn_implementation = "sdpa"
    return config


class EagleHead(nn.Module):
    """The head's weights and its sums for whole texts; `draft` steps go through `lab.decoding.drafts.eagle_draft`.

    Args:
        config: of `head_config`.
        table: (vocab, hidden) the target's embedding; shared, not copied, never trained.
        output: (rows, hidden) the target's output rows of `rows`.
        rows: (rows,) int64, ascending: the token ids that the head can say.
    """

    def __init__(self, config: LlamaConfig, table: Tensor, output: Tensor, rows: Tensor) -> None:
        super().__init__()
        self.config = config
        hidden = config.hidden_size
        self.fc = nn.Linear(2 * hidden, hidden, bias=False)
        self.layer = llama.LlamaDecoderLayer(config, 0)
        self.norm = llama.LlamaRMSNorm(hidden, config.rms_norm_eps)
        # Plain attributes: they belong to the target and must not appear among the head's parameters.
        self.table, self.output, self.rows = table, output, rows
        dim = self.layer.self_attn.head_dim
        theta = float((config.rope_parameters or {}).get("rope_theta") or 10_000.0)
        self._frequencies = theta ** (-torch.arange(0, dim, 2, dtype=torch.float32) / dim)

    @property
    def vocab(self) -> int:
        """Tokens that the target knows."""
        return int(self.table.shape[0])

    def start(self, final_norm: Tensor, generator: torch.Generator) -> None:
        """Set the starting weights: the head gives back the feature that it reads, up to the scale of `final_norm`."""
        hidden = self.config.hidden_size
        with torch.no_grad():
            for name, weight in self.layer.named_parameters():
                if weight.dim() == 1:
                    weight.fill_(1.0)
                elif name.endswith(("o_proj.weight", "down_proj.weight")):
                    weight.zero_()
                else:
                    weight.normal_(0.0, LAYER_STD, generator=generator)
            self.fc.weight[:, :hidden].normal_(0.0, FC_STD, generator=generator)
            self.fc.weight[:, hidden:] = torch.eye(hidden)
            self.norm.weight.copy_(final_norm)

    def fuse(self, ids: Tensor, features: Tensor) -> Tensor:
        """The layer's input, (..., hidden), from (...) token ids and (..., hidden) features."""
        embedding = self.table[ids]
        return self.fc(torch.cat((self._rms(embedding), self._rms(features)), dim=-1))  # type: ignore[no-any-return]

    def _rms(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, x.shape[-1:], eps=self.config.rms_norm_eps)

    def rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines, (position, head_dim), of (position,) positions."""
        angles = positions[:, None].float() * self._frequencies
        angles = torch.cat((angles, angles), dim=-1)
        dtype = self.fc.weight.dtype
        return angles.cos().to(dtype), angles.sin().to(dtype)

    def project(self, hidden: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, (batch, kv_head, group, token, head_dim) and already scaled, keys and values (batch, kv_head, ...).

        Args:
            hidden: (batch, token, hidden).
            cos: (token, head_dim), as `sin`, of the tokens' positions.
        """
        attention = self.layer.self_attn
        x = self.layer.input_layernorm(hidden)
        dim, batch, count = attention.head_dim, hidden.shape[0], hidden.shape[1]
        query, key, value = (
            projection(x).view(batch, count, -1, dim).transpose(1, 2)
            for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        query, key = turned(query, cos, sin) * dim**-0.5, turned(key, cos, sin)
        return query.reshape(batch, key.shape[1], -1, count, dim), key, value

    def finish(self, hidden: Tensor, read: Tensor) -> Tensor:
        """The estimates, (batch, token, hidden), from the layer's input and what its attention read."""
        batch, count = hidden.shape[:2]
        flat = read.flatten(1, 2).transpose(1, 2).reshape(batch, count, -1)
        hidden = hidden + self.layer.self_attn.o_proj(flat)
        hidden = hidden + self.layer.mlp(self.layer.post_attention_layernorm(hidden))
        return self.norm(hidden)  # type: ignore[no-any-return]

    def forward(
        self, ids: Tensor, features: Tensor, past: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The estimates for several tokens, and the keys and values of all positions so far.

        Args:
            ids: (batch, token): x_{s+1}.
            features: (batch, token, hidden): f_s.
            past: keys and values, (batch, kv_head, position, head_dim), of the positions before.
        """
        held = 0 if past is None else past[0].shape[2]
        count = ids.shape[1]
        hidden = self.fuse(ids, features)
        cos, sin = self.rotary(torch.arange(held, held + count, device=ids.device))
        query, key, value = self.project(hidden, cos, sin)
        if past is not None:
            key, value = torch.cat((past[0], key), dim=2), torch.cat((past[1], value), dim=2)
        scores = query @ key.transpose(-1, -2)[:, :, None]
        ahead = torch.ones(count, held + count, dtype=torch.bool, device=ids.device).triu_(held + 1)
        weights = torch.softmax(scores.masked_fill(ahead, -torch.inf), dim=-1)
        return self.finish(hidden, weights @ value[:, :, None]), (key, value)

    def logits(self, features: Tensor) -> Tensor:
        """(..., rows) logits over `rows`."""
        return features @ self.output.t()

    def spread(self, values: Tensor, empty: float = -torch.inf) -> Tensor:
        """(..., vocab) from (..., rows): `empty` where the head has no row."""
        full = values.new_full((*values.shape[:-1], self.vocab), empty)
        return full.index_copy_(-1, self.rows, values)


def new_head(model: Any, rows: Sequence[int] | Tensor, seed: int) -> EagleHead:
    """A fresh head for a transformers Llama, at its starting weights, float32. The model is not changed."""
    head = attached(model, torch.as_tensor(rows, dtype=torch.long), float32=True)
    head.start(model.model.norm.weight.detach().float(), torch.Generator().manual_seed(seed))
    return head


def attached(model: Any, rows: Tensor, *, float32: bool = False) -> EagleHead:
    """An empty head of the target's shapes that reads the target's embedding and output rows."""
    config = model.config
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    theta = float((getattr(config, "rope_parameters", None) or {}).get("rope_theta") or 10_000.0)
    shape = head_config(
        config.hidden_size,
        config.intermediate_size,
        config.num_attention_heads,
        config.num_key_value_heads,
        dim,
        theta,
    )
    table, weight = model.model.embed_tokens.weight.detach(), model.lm_head.weight.detach()
    dtype = torch.float32 if float32 else table.dtype
    rows = rows.to(weight.device)
    output = weight.index_select(0, rows).to(dtype)
    return EagleHead(shape, table.to(dtype), output, rows).to(table.device, dtype)


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`x`, (..., token, head_dim), turned to its positions (rotary positions, Su et al. 2021)."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin
