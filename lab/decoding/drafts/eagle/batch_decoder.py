"""Many texts at once through a Llama-like model, keeping the feature of every token: what the head learns from.

The sums are those of transformers' `models/llama/modeling_llama.py`; one buffer holds the keys and values of the
batch, prompts are padded on the left, and texts that ended leave the batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_HIDDEN_SCORE = -1e9
_LOOP_TOKENS = 64
_LOOP_PERIOD = 24


@dataclass
class Text:
    """One text in the making.

    Attributes:
        ids: prompt and generated tokens.
        prompt: how many of them are the prompt's.
        features: one (tokens, hidden) float16 tensor a forward; joined they belong to `ids` without the last token.
        lse: of the logits after each of those tokens; 0 inside the prompt, where nothing is asked of the head.
        done: whether an end token came, or the text began to repeat itself.
    """

    ids: list[int]
    prompt: int
    temperature: float
    features: list[Tensor] = field(default_factory=list)
    lse: list[float] = field(default_factory=list)
    done: bool = False


class BatchDecoder:
    """Generates with a whole batch.

    Args:
        model: a transformers Llama in eval mode, float32, read only.
        end_ids: tokens that end a text.
        generator: of the uniforms.
    """

    def __init__(self, model: Any, end_ids: frozenset[int], generator: torch.Generator) -> None:
        self._model, self._end, self._generator = model, end_ids, generator
        config = model.config
        self._heads, self._groups = config.num_attention_heads, config.num_key_value_heads
        self._dim = model.model.layers[0].self_attn.head_dim
        self._layers = len(model.model.layers)
        self.mass = torch.zeros(config.vocab_size, dtype=torch.float64)

    @torch.inference_mode()
    def generate(self, texts: list[Text], new_tokens: int) -> None:
        """Extend each text by up to `new_tokens`; `mass` sums the probabilities at temperature 1 of all positions."""
        longest = max(text.prompt for text in texts)
        self._start(texts, longest, longest + new_tokens)
        ids = torch.tensor([[0] * (longest - text.prompt) + text.ids for text in texts])
        features = self._forward(ids)
        for row, text in enumerate(texts):
            text.features.append(features[row, longest - text.prompt :].half())
            text.lse.extend([0.0] * (text.prompt - 1))
        alive = list(texts)
        last = features[:, -1]
        for step in range(new_tokens):
            chosen = self._choose(last, alive)
            for text, token in zip(alive, chosen, strict=True):
                if not text.done:
                    text.ids.append(token)
                    text.done = token in self._end or _loops(text)
            keep = [row for row, text in enumerate(alive) if not text.done]
            if step == new_tokens - 1 or not keep:
                return
            # Texts that ended are dropped once they are an eighth of the batch: moving the cache costs a step or so.
            if len(alive) - len(keep) > len(alive) // 8:
                alive = [alive[row] for row in keep]
                self._keep(keep)
            last = self._forward(torch.tensor([[text.ids[-1]] for text in alive]))[:, -1]
            half = last.half()
            for row, text in enumerate(alive):
                if not text.done:
                    text.features.append(half[row : row + 1])

    def _start(self, texts: list[Text], longest: int, capacity: int) -> None:
        shape = self._layers, len(texts), self._groups, capacity, self._dim
        self._keys, self._values = torch.zeros(shape), torch.zeros(shape)
        self._pad = torch.tensor([longest - text.prompt for text in texts])
        self._length = 0

    def _keep(self, rows: list[int]) -> None:
        chosen = torch.tensor(rows)
        for store in (self._keys, self._values):
            for layer in range(self._layers):
                store[layer, : len(rows), :, : self._length] = store[layer, chosen, :, : self._length]
        self._keys, self._values = self._keys[:, : len(rows)], self._values[:, : len(rows)]
        self._pad = self._pad[chosen]

    def _choose(self, last: Tensor, alive: list[Text]) -> list[int]:
        logits = self._model.lm_head(last)
        lse = torch.logsumexp(logits, dim=-1)
        p = torch.exp(logits - lse[:, None])
        open_rows = [row for row, text in enumerate(alive) if not text.done]
        self.mass += p[open_rows].sum(0).double()
        for row in open_rows:
            alive[row].lse.append(float(lse[row]))
        temperature = torch.tensor([text.temperature for text in alive])
        cool = ((temperature > 0) & (temperature < 1)).nonzero()[:, 0]
        if len(cool):
            p[cool] = torch.softmax(logits[cool] / temperature[cool, None], dim=-1)
        cumulative = p.cumsum(-1)
        u = torch.rand(len(alive), 1, generator=self._generator) * cumulative[:, -1:]
        drawn = torch.searchsorted(cumulative, u, right=True)[:, 0].clamp_(max=p.shape[1] - 1)
        chosen: list[int] = torch.where(temperature == 0, logits.argmax(-1), drawn).tolist()
        return chosen

    def _forward(self, ids: Tensor) -> Tensor:
        """Post-norm features, (rows, tokens, hidden), of tokens appended to the texts."""
        model, (rows, count), start = self._model.model, ids.shape, self._length
        stop = start + count
        positions = (torch.arange(start, stop)[None] - self._pad[:, None]).clamp_(min=0)
        hidden = model.embed_tokens(ids)
        cos, sin = model.rotary_emb(hidden, position_ids=positions)
        cos, sin = cos[:, None], sin[:, None]
        padded = torch.arange(stop)[None] < self._pad[:, None]
        mask = torch.zeros(rows, 1, 1, count, stop).masked_fill_(padded[:, None, None, None], _HIDDEN_SCORE)
        if count > 1:
            mask += torch.full((count, stop), _HIDDEN_SCORE).triu_(start + 1)
        for index, layer in enumerate(model.layers):
            x = layer.input_layernorm(hidden)
            attention = layer.self_attn
            query = _turn(attention.q_proj(x).view(rows, count, -1, self._dim).transpose(1, 2), cos, sin)
            key = _turn(attention.k_proj(x).view(rows, count, -1, self._dim).transpose(1, 2), cos, sin)
            value = attention.v_proj(x).view(rows, count, -1, self._dim).transpose(1, 2)
            self._keys[index, :, :, start:stop] = key
            self._values[index, :, :, start:stop] = value
            read = self._attend(query, self._keys[index, :, :, :stop], self._values[index, :, :, :stop], mask)
            hidden = hidden + attention.o_proj(read)
            x = layer.post_attention_layernorm(hidden)
            hidden = hidden + layer.mlp.down_proj(functional.silu(layer.mlp.gate_proj(x)).mul_(layer.mlp.up_proj(x)))
        self._length = stop
        features: Tensor = model.norm(hidden)
        return features

    def _attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        rows, _, count, dim = query.shape
        grouped = query.reshape(rows, self._groups, -1, dim) * dim**-0.5
        scores = grouped @ keys.transpose(2, 3)
        scores = scores.view(rows, self._groups, -1, count, scores.shape[-1]).add_(mask)
        weights = torch.softmax(scores, dim=-1).view(rows, self._groups, -1, scores.shape[-1])
        read = (weights @ values).view(rows, self._heads, count, dim)
        return read.transpose(1, 2).reshape(rows, count, -1)


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


def _loops(text: Text) -> bool:
    """Whether the end of the text repeats itself with a short period: such texts teach nothing more."""
    if (len(text.ids) - text.prompt) % 16 or len(text.ids) - text.prompt < 2 * _LOOP_TOKENS:
        return False
    tail = text.ids[-_LOOP_TOKENS:]
    return any(tail[period:] == tail[:-period] for period in range(1, _LOOP_PERIOD + 1))
