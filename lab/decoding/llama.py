"""The fast path for Llama-like models: the same sums as transformers' modules, with less between them.

One token a step: fixed buffers and operations in place, matrices read in row blocks (`matvec`), rotary tables
made once, grouped queries by reshape instead of repeated keys, attention as matmul, softmax, matmul (its weights
come for free), logits of the last position only. A chunk of the prompt goes through the modules themselves.

The weights are read from the given model at the start of each run, so a shell with replaced or changed modules is
followed: a linear module that is not plain is called as it stands, and `why_not` sends everything else
that differs the generic way.

Sources: Llama (Touvron et al. 2023), RMSNorm (Zhang & Sennrich 2019), rotary positions (Su et al. 2021), grouped
queries (Ainslie et al. 2023); the arithmetic is that of transformers' `models/llama/modeling_llama.py`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.cache_utils import Cache
from transformers.models.llama import modeling_llama as llama

from lab.decoding import cache_layout
from lab.decoding.chunks import CHUNK_OF_LAYERS, PAUSE_MS
from lab.decoding.half_pack import pack_ahead, packing_pays
from lab.decoding.llama_fits import why_not
from lab.decoding.llama_layer import Norm, Scratch, TokenLayer
from lab.decoding.llama_rows import LlamaRows
from lab.decoding.matvec import matvecs, out_features
from lab.decoding.passes import Rows, last_rows
from lab.decoding.products import FEW, linear_rows
from lab.decoding.tree import Tree, row_positions
from lab.errors import ModelError
from lab.steps import finished


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
    chunk = CHUNK_OF_LAYERS

    def __init__(self, model: nn.Module, capacity: int, *, layers: tuple[int, ...] = ()) -> None:
        reason = why_not(model)
        if reason or not isinstance(model, llama.LlamaForCausalLM):
            raise ModelError(f"The fast path does not fit: {reason}.", remedy="Use the generic path.")
        self._model = model
        self._traced = layers
        self._weights: dict[int, Tensor] = {}
        self._few: dict[int, LlamaRows] = {}
        self._capacity = capacity
        self.forget()
        with torch.inference_mode():
            self._prepare(model, capacity)

    def forget(self) -> None:
        self.cache: Cache = cache_layout.new_cache(self._model, self._capacity)
        self._rooms = cache_layout.roomy_layers(self.cache)

    def _prepare(self, model: llama.LlamaForCausalLM, capacity: int) -> None:
        config = model.config
        table = model.model.embed_tokens.weight
        self._table = table.detach()
        self._half = table.device.type == "cpu" and table.dtype == torch.bfloat16 and packing_pays()
        # One position more than there is room for: a run may be asked to shift its positions by one.
        self._make_turns(capacity + 1)
        self._step = Scratch(config, table)
        kept = model.model.layers[: config.num_hidden_layers]
        self._layers = [TokenLayer(layer, self._step) for layer in kept]
        self._norm = Norm(model.model.norm, self._step)
        self._logits = table.new_empty(out_features(model.lm_head))
        self._head = matvecs([model.lm_head], self._step.x, self._logits)

    def _make_turns(self, positions: int) -> None:
        """The (position, head_dim) rotary tables."""
        asked = torch.arange(positions, device=self._table.device)[None]
        cos, sin = self._model.model.rotary_emb(self._table[:1], position_ids=asked)
        self._cos, self._sin = cos[0], sin[0]
        self._few.clear()

    def _reach(self, positions: int) -> None:
        """Have rotary tables for so many positions, which may be more than there was room for."""
        if positions > self._cos.shape[0]:
            self._make_turns(positions + positions // 2)

    def __call__(self, ids: Sequence[int], start: int, *, last: bool, attention: bool) -> Tensor | None:
        self._weights.clear()
        if len(ids) == 1:
            return self._one(ids[0], start, last=last, attention=attention)
        return finished(self._chunk(ids, start, last=last, attention=attention))

    def sliced(
        self, ids: Sequence[int], start: int, *, last: bool, attention: bool
    ) -> Generator[None, None, Tensor | None]:
        self._weights.clear()
        if len(ids) > 1:
            return (yield from self._chunk(ids, start, last=last, attention=attention))
        with torch.inference_mode():
            return self._one(ids[0], start, last=last, attention=attention)

    def rows(self, ids: Sequence[int], start: int, *, tree: Tree | None = None, layers: int | None = None) -> Rows:
        if len(ids) == 1 and not self._half:
            self._one(ids[0], start, last=True, attention=False, layers=layers)
            return Rows(self._logits.float().clone()[None], self._step.x.clone()[None])
        shape = tree or Tree.chain(len(ids))
        if not self._are_few(ids):
            return finished(self._many(ids, start, shape, layers))
        self._reach(start + len(ids))
        few = self._few.get(len(ids))
        if few is None:
            few = self._few[len(ids)] = LlamaRows(self._model, len(ids), self._cos, self._sin)
        logits, states = few(ids, start, shape, self._rooms, layers)
        return Rows(logits, states)

    def sliced_rows(self, ids: Sequence[int], start: int, *, last: int | None = None) -> Generator[None, None, Rows]:
        if len(ids) > 1 and not self._are_few(ids):
            return (yield from self._many(ids, start, Tree.chain(len(ids)), None, last))
        with torch.inference_mode():
            return last_rows(self.rows(ids, start), last)

    def _are_few(self, ids: Sequence[int]) -> bool:
        return self._table.device.type == "cpu" and len(ids) <= FEW

    def _many(
        self, ids: Sequence[int], start: int, shape: Tree, layers: int | None, last: int | None = None
    ) -> Generator[None, None, Rows]:
        """`rows` through the modules themselves, pausing as `_through` does."""
        model, device = self._model, self._table.device
        began = perf_counter()
        with torch.inference_mode():
            self._reach(start + len(ids))
            positions = torch.tensor(row_positions(shape, start), device=device)
            turn = self._cos[positions][None], self._sin[positions][None]
            mask = shape.visible(start, device)
            hidden = model.model.embed_tokens(torch.tensor([ids], device=device))
        hidden = yield from self._through(hidden, turn, mask, layers, attention=False, began=began)
        with torch.inference_mode():
            features = model.model.norm(hidden if last is None else hidden[:, -last:])
            return Rows(linear_rows(model.lm_head, features)[0].float(), features[0])

    def take_attention(self) -> list[Tensor]:
        kept = [self._weights[layer].float() for layer in self._traced]
        self._weights.clear()
        return kept

    def _one(
        self, token: int, position: int, *, last: bool, attention: bool, layers: int | None = None
    ) -> Tensor | None:
        if self._half and not attention:
            # fp16 weights with fp32 sums are faster here than bf16 ones, even for one token
            row = self.rows((token,), position, layers=layers).logits[0]
            return row if last else None
        scratch = self._step
        scratch.start(self._table[token], self._cos[position], self._sin[position])
        for index, layer in enumerate(self._layers[:layers]):
            weights = layer(self._rooms[index])
            if attention and index in self._traced:
                self._weights[index] = weights.reshape(-1, weights.shape[-1])
        if not last:
            return None
        self._norm()
        for product in self._head:
            product()
        # The buffer is written again by the next step; fp32 logits are used before that.
        logits: Tensor = self._logits.float()
        return logits

    def _chunk(
        self, ids: Sequence[int], start: int, *, last: bool, attention: bool
    ) -> Generator[None, None, Tensor | None]:
        """Several tokens, pausing as `_through` does; of the last one's logits alone."""
        model, count = self._model, len(ids)
        began = perf_counter()
        for weight in [m.weight for m in model.modules() if isinstance(m, nn.Linear)] if self._half else ():
            for _ in pack_ahead(weight):
                if (perf_counter() - began) * 1e3 > PAUSE_MS:
                    yield None
                    began = perf_counter()
        with torch.inference_mode():
            hidden = model.model.embed_tokens(torch.tensor([ids], device=self._table.device))
            mask = None
            if start:
                mask = torch.ones(count, start + count, dtype=torch.bool, device=hidden.device).tril_(start)
            turn = self._cos[None, start : start + count], self._sin[None, start : start + count]
        hidden = yield from self._through(hidden, turn, mask, None, attention=attention, began=began)
        if not last:
            return None
        with torch.inference_mode():
            logits: Tensor = model.lm_head(model.model.norm(hidden[:, -1:]))
            last_row: Tensor = logits[0, -1].float()
        return last_row

    def _through(
        self,
        hidden: Tensor,
        turn: tuple[Tensor, Tensor],
        mask: Tensor | None,
        layers: int | None,
        *,
        attention: bool,
        began: float,
    ) -> Generator[None, None, Tensor]:
        """Through the layers, pausing after one when the slice, which began at `began`, has become long."""
        for index in range(self._model.config.num_hidden_layers if layers is None else layers):
            with torch.inference_mode():
                hidden = self._chunk_layer(index, hidden, turn, mask, attention=attention)
            if (perf_counter() - began) * 1e3 > PAUSE_MS:
                yield None
                began = perf_counter()
        return hidden

    def _chunk_layer(
        self, index: int, hidden: Tensor, turn: tuple[Tensor, Tensor], mask: Tensor | None, *, attention: bool
    ) -> Tensor:
        layer, count = self._model.model.layers[index], hidden.shape[1]
        attn = layer.self_attn
        x = layer.input_layernorm(hidden)
        query, key, value = (
            linear_rows(projection, x).view(1, count, -1, attn.head_dim).transpose(1, 2)
            for projection in (attn.q_proj, attn.k_proj, attn.v_proj)
        )
        query, key = llama.apply_rotary_pos_emb(query, key, *turn)
        key, value = self.cache.update(key, value, index)
        read = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None, scale=attn.scaling, enable_gqa=True
        )
        if attention and index in self._traced:
            self._weights[index] = _last_row(query, key, attn.scaling)
        hidden = hidden + linear_rows(attn.o_proj, read.transpose(1, 2).reshape(1, count, -1))
        return hidden + _mlp(layer.mlp, layer.post_attention_layernorm(hidden))


def _mlp(mlp: llama.LlamaMLP, x: Tensor) -> Tensor:
    gate = functional.silu(linear_rows(mlp.gate_proj, x), inplace=True)
    return linear_rows(mlp.down_proj, gate.mul_(linear_rows(mlp.up_proj, x)))


def _last_row(query: Tensor, key: Tensor, scaling: float) -> Tensor:
    """(head, position) attention weights of the last of (1, head, new, head_dim) queries."""
    grouped = query[0, :, -1].view(key.shape[1], -1, key.shape[3])
    scores = torch.bmm(grouped, key[0].transpose(1, 2)) * scaling
    return torch.softmax(scores, dim=-1, dtype=torch.float32).reshape(-1, key.shape[2])
