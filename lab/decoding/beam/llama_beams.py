"""The fast path for beams on Llama-like models: one pass for all running beams, the prompt kept once.

The sums are those of transformers' modules (see `lab.decoding.llama`); what differs is what lies between them:

- The weights are read once for all rows, as W x^T.
- The prompt's keys and values are stored once and read by all rows. transformers has a copy of them for each beam.
- Only the new tokens' keys and values are put in order, and of those only the positions at which a row's text
  differs from the one it takes over; nothing is moved while the order is the identity.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from time import perf_counter

import torch
from torch import Tensor, nn
from transformers.models.llama import modeling_llama as llama

from lab.decoding import cache_layout
from lab.decoding.beam.llama_layer import BeamLayer, Buffers, RowNorm, RowsProduct
from lab.decoding.beam.rows import Held, log_softmax, moved_texts, prefilled, unmoved
from lab.decoding.chunks import PAUSE_MS
from lab.decoding.llama import LlamaPass
from lab.decoding.steps import Prefilled


class LlamaBeams:
    """Beams of a model that `llama_fits.why_not` has nothing against.

    Args:
        model: read, not changed.
        prompt_ids: at least one token.
        width: running beams at most.
        max_new_tokens: tokens of a text at most; the last one never goes through the model.
        leave_rows: make the mistake of never putting the rows in order.

    Raises:
        ModelError: the model does not fit.
    """

    name = "llama"

    def __init__(
        self, model: nn.Module, prompt_ids: Sequence[int], width: int, max_new_tokens: int, *, leave_rows: bool = False
    ) -> None:
        self._prompt, self._leave_rows = list(prompt_ids), leave_rows
        self._pass = LlamaPass(model, len(self._prompt))
        assert isinstance(model, llama.LlamaForCausalLM)  # noqa: S101 - LlamaPass has refused others
        self._model = model
        self._width, self._room = max(width, 2), max(max_new_tokens - 1, 1)  # `follow` has two rows
        self._table = model.model.embed_tokens.weight.detach()
        self._buffers: dict[int, Buffers] = {}
        self._layers = [BeamLayer(layer) for layer in model.model.layers[: model.config.num_hidden_layers]]
        self._norm, self._head = RowNorm(model.model.norm), RowsProduct(model.lm_head)
        with torch.inference_mode():
            positions = torch.arange(len(self._prompt), len(self._prompt) + self._room, device=self._table.device)
            cos, sin = model.model.rotary_emb(self._table[:1], position_ids=positions[None])
            self._cos, self._sin = cos[0], sin[0]
        self.texts: list[list[int]] = [[]]
        self.reorder_ms = 0.0

    def prefill(self) -> Generator[Prefilled | None, None, None]:
        self._first = yield from prefilled(self._pass, self._prompt)
        held = cache_layout.layer_tensors(self._pass.cache)
        self._prompts = [(t.keys[0], t.values[0]) for t in held if t.keys is not None and t.values is not None]
        with torch.inference_mode():
            shape = self._prompts[0][0].shape
            room = (len(self._prompts), 2, self._width, shape[0], self._room, shape[2])
            # (layer, values and keys, row, kv_head, position, head_dim)
            self._generated = self._table.new_empty(room)

    def rewind(self) -> None:
        self.texts = [[]]

    def first(self) -> Generator[None, None, Tensor]:
        yield from ()
        return self._first

    def extend(self, rows: Sequence[int], token_ids: Sequence[int]) -> Generator[None, None, Tensor]:
        began = perf_counter()
        held = len(self.texts[0])
        buffers = self._buffers_of(len(rows))
        with torch.inference_mode():
            order = unmoved(rows, len(self.texts)) if self._leave_rows else list(rows)
            self._reorder(order)
            self.reorder_ms = (perf_counter() - began) * 1e3
            self.texts = moved_texts(self.texts, order, token_ids)
            ids = torch.tensor(list(token_ids), device=self._table.device)
            buffers.start(self._table[ids], self._cos[held], self._sin[held])
        for index, layer in enumerate(self._layers):
            with torch.inference_mode():
                layer(buffers, self._prompts[index], self._generated[index, :, : len(rows)], held)
            if (perf_counter() - began) * 1e3 > PAUSE_MS:
                yield None
                began = perf_counter()
        if (perf_counter() - began) * 1e3 > PAUSE_MS / 2:  # the head over all rows and the choice are still to come
            yield None
        with torch.inference_mode():
            self._norm(buffers)
            logits = self._table.new_empty(self._head.rows, buffers.x_padded.shape[0])
            self._head(buffers.x_padded, logits)
            return log_softmax(logits[:, : len(rows)].t())

    def _buffers_of(self, rows: int) -> Buffers:
        if rows not in self._buffers:
            with torch.inference_mode():
                self._buffers[rows] = Buffers(self._model.config, self._table, rows)
        return self._buffers[rows]

    def _reorder(self, order: Sequence[int]) -> None:
        """Copy to each row what it takes over from another, from the first position at which their texts differ."""
        moving = [(row, source) for row, source in enumerate(order) if row != source]
        held = len(self.texts[0])
        start = min((self._first_difference(row, source) for row, source in moving), default=held)
        if start >= held:
            return
        device = self._table.device
        rows = torch.tensor([row for row, _ in moving], device=device)
        sources = torch.tensor([source for _, source in moving], device=device)
        own = self._generated.narrow(4, start, held - start)
        own.index_copy_(2, rows, own.index_select(2, sources))

    def _first_difference(self, row: int, source: int) -> int:
        if row >= len(self.texts):
            return 0
        for index, (one, other) in enumerate(zip(self.texts[row], self.texts[source], strict=True)):
            if one != other:
                return index
        return len(self.texts[source])

    def held(self) -> Held:
        own = self._generated[:, :, : len(self.texts), :, : len(self.texts[0])]
        prompt, _ = cache_layout.total_bytes(self._pass.cache)
        return Held(len(self._prompt), len(self.texts[0]), len(self.texts), prompt + own.nbytes, shares_prompt=True)
