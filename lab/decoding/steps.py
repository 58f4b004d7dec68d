"""What the token loop hands out, and the half that both loops share: from logits to a `Step`."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from lab.decoding import cache_layout
from lab.decoding.passes import Pass
from lab.decoding.sampling import Sampling, choose
from lab.decoding.trace import Trace


@dataclass(frozen=True)
class Prefilled:
    """Prompt positions start..stop-1 went through the layers in `ms` milliseconds.

    `cache` is the run's own, live: read it before the next step and do not change it.
    """

    start: int
    stop: int
    ms: float
    cache: Cache


@dataclass
class Step:
    """One new token.

    Attributes:
        index: 0 for the first new token, which comes out of the prefill.
        log_prob: of the token, after temperature and before top-k and top-p; NaN at trace level "off".
        gap: difference of the two largest logits, before temperature; NaN at level "off".
        top: the most probable tokens with their log-probabilities, likewise; empty at level "off".
        ms: own compute, milliseconds. For index 0 with the cache: the choice alone.
        computed: tokens that went through the layers for this one; for index 0 the whole prompt.
        fed_token_id: the last token that went through the layers.
        fed_position: the position it was given.
        stored: for each layer, how many positions its cache holds now; empty at level "off".
        attention: (layer, head, position) fp32 on the CPU, the newest position's weights in the traced layers,
            only at level "full" and while the trace's cap is not reached. The last position is the
            newest; positions that a layer no longer holds are 0.
        cache: the run's own, live: read it before the next step and do not change it. None without a cache.
    """

    index: int
    token_id: int
    log_prob: float
    gap: float
    top: list[tuple[int, float]]
    ms: float
    computed: int
    fed_token_id: int
    fed_position: int
    stored: tuple[int, ...] = ()
    attention: Tensor | None = None
    cache: Cache | None = None


@dataclass
class Decoded:
    """The end of a run.

    Attributes:
        token_ids: the new tokens, the end token included if one came.
        cache: what the layers remember, for `cache_layout.layer_tensors`; None without a cache.
        path: "llama" for the fast path, "transformers" for the model's own forward.
        dropped_layer: the layer emptied on purpose, if one was.
        attention_capped: whether attention weights were left out because the trace's cap was reached.
    """

    token_ids: list[int]
    cache: Cache | None
    path: str
    dropped_layer: int | None = None
    attention_capped: bool = False


@dataclass
class Chooser:
    """The half that both loops share: from logits to a `Step`."""

    sampling: Sampling
    trace: Trace
    generator: torch.Generator | None
    attention_bytes: int = 0
    capped: bool = False
    token_ids: list[int] = field(default_factory=list)

    def step(self, logits: Tensor, runner: Pass, fed: tuple[int, int], computed: int) -> Step:
        """Choose a token. `ms` is left 0 for the caller. Must run inside inference mode."""
        token, scaled = choose(logits, self.sampling, self.generator)
        index, (fed_id, position) = len(self.token_ids), fed
        nan = float("nan")
        step = Step(index, 0, nan, nan, [], 0.0, computed, fed_id, position)
        if self.trace.level == "off":
            step.token_id = int(token.item())
        else:
            self._describe(step, logits, scaled, token)
            step.stored = cache_layout.stored_lengths(runner.cache)
            step.attention = self._attention(runner)
        self.token_ids.append(step.token_id)
        return step

    def _describe(self, step: Step, logits: Tensor, scaled: Tensor, token: Tensor) -> None:
        k = min(max(self.trace.top, 2), logits.shape[0])
        best = torch.topk(scaled, k)
        # One transfer a step; float64 holds token ids and fp32 numbers exactly.
        numbers = torch.cat((best.values, scaled[token], scaled.logsumexp(0, keepdim=True)))
        ids = torch.cat((best.indices, token))
        flat = torch.cat((numbers.double(), ids.double())).tolist()
        values, chosen, total = flat[:k], flat[k], flat[k + 1]
        scale = self.sampling.temperature if self.sampling.do_sample else 1.0
        step.token_id = int(flat[-1])
        step.log_prob = chosen - total
        step.gap = (values[0] - values[1]) * scale if k > 1 else float("inf")
        step.top = [(int(i), v - total) for i, v in zip(flat[k + 2 : -1], values, strict=True)][: self.trace.top]

    def _attention(self, runner: Pass) -> Tensor | None:
        if not self.trace.attention_layers or self.capped:
            return None
        rows = runner.take_attention()
        longest = max(row.shape[1] for row in rows)
        size = sum(row.shape[0] for row in rows) * longest * 4
        if self.attention_bytes + size > self.trace.max_bytes:
            self.capped = True
            return None
        self.attention_bytes += size
        if any(row.shape[1] != longest for row in rows):
            rows = [torch.nn.functional.pad(row, (longest - row.shape[1], 0)) for row in rows]
        return torch.stack(rows).cpu()

    @property
    def wants_attention(self) -> bool:
        return bool(self.trace.attention_layers) and not self.capped
