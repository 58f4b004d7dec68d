"""Beams through transformers' own `forward`: any causal model with an attention key/value cache."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from lab.decoding import cache_layout
from lab.decoding.beam.rows import Held, log_softmax, moved_texts, prefilled, unmoved
from lab.decoding.passes import TransformersPass
from lab.decoding.steps import Prefilled


class TransformersBeams:
    """The cache has one batch row for each beam; its rows are put in order before each pass, prompt and all.

    Args:
        model: read, not changed.
        prompt_ids: at least one token.
        capacity: positions to make room for.
        leave_rows: make the mistake of never putting the rows in order.

    Raises:
        ModelError: no attention key/value cache.
    """

    name = "transformers"

    def __init__(self, model: nn.Module, prompt_ids: Sequence[int], capacity: int, *, leave_rows: bool = False) -> None:
        self._model, self._prompt, self._leave_rows = model, list(prompt_ids), leave_rows
        self._pass = TransformersPass(model, capacity)
        self._device = next(model.parameters()).device
        self._keyword = cache_layout.cache_keyword(model)
        self._options: dict[str, Any] = {"use_cache": True}
        if cache_layout.forward_takes(model, "logits_to_keep"):
            self._options["logits_to_keep"] = 1
        self._takes_positions = cache_layout.forward_takes(model, "position_ids")
        self.texts: list[list[int]] = [[]]
        self.reorder_ms = 0.0
        self._fresh = True

    def prefill(self) -> Generator[Prefilled | None, None, None]:
        self._first = yield from prefilled(self._pass, self._prompt)
        self._after_prompt = cache_layout.snapshot(self._pass.cache)

    def rewind(self) -> None:
        cache_layout.put_back(self._pass.cache, self._after_prompt)
        self.texts, self._fresh = [[]], True

    def first(self) -> Generator[None, None, Tensor]:
        yield from ()
        return self._first

    def extend(self, rows: Sequence[int], token_ids: Sequence[int]) -> Generator[None, None, Tensor]:
        yield from ()  # the model's own forward runs whole
        cache = self._pass.cache
        with torch.inference_mode():
            began = perf_counter()
            order = unmoved(rows, len(self.texts)) if self._leave_rows else list(rows)
            # The prompt's tensors are kept for `rewind`, so the first call copies them in any case.
            if self._fresh or order != list(range(len(self.texts))):
                cache_layout.reorder(cache, order)
            self.reorder_ms = (perf_counter() - began) * 1e3
            position = len(self._prompt) + len(self.texts[0])
            self.texts, self._fresh = moved_texts(self.texts, order, token_ids), False
            ids = torch.tensor(list(token_ids), device=self._device)[:, None]
            options = {**self._options, self._keyword: cache}
            if self._takes_positions:
                options["position_ids"] = torch.full_like(ids, position)
            logits = cache_layout.logits_of(self._model(input_ids=ids, **options))[:, -1]
            return log_softmax(logits)

    def held(self) -> Held:
        held, _ = cache_layout.total_bytes(self._pass.cache)
        return Held(len(self._prompt), len(self.texts[0]), len(self.texts), held, shares_prompt=False)

    @property
    def cache(self) -> Any:
        """transformers' cache itself, for the ledger."""
        return self._pass.cache
