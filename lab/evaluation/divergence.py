"""How far a changed model is from the one it came from, token by token of a text.

KL(dense || variant) = sum over the vocabulary of p (log p - log q), with p the dense model's probabilities and q the
variant's: what the variant costs where the dense model is right. In nats. The other direction is another number.

One pass gives both models' perplexity and everything here. Of the dense model its last hidden states are kept (2,304
bytes a token of the default model; its log-probabilities would take 196,608), and the head is multiplied again for
each variant: a fifth of a pass, and the same logits bit for bit. Where the head alone does not give the logits (a
model that caps them, windows of a few tokens), the dense model reads each chunk again.

Source: Kullback & Leibler 1951.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from lab.decoding.products import FEW, linear_rows
from lab.evaluation.perplexity import Chunk, Collected, Likelihood, Reader, chunks, nll_of
from lab.evaluation.tokens import Tokens, Windows
from lab.steps import relay


@dataclass(frozen=True)
class Comparison:
    """A variant beside its dense model on one text. All per-token tensors are in the order of `variant.positions`.

    Attributes:
        dense, variant: how well each predicts the text.
        kl: (scored,) fp32: KL(dense || variant) at each scored token, nats.
        dense_top, variant_top: (scored,) int64: the token that each finds most probable.
    """

    dense: Likelihood
    variant: Likelihood
    kl: Tensor
    dense_top: Tensor
    variant_top: Tensor

    @property
    def mean_kl(self) -> float | None:
        """Nats a token; None where none was scored."""
        return float(self.kl.mean(dtype=torch.float64)) if self.kl.numel() else None

    @property
    def flips(self) -> Tensor:
        """Positions in the text of the tokens whose most probable guess changed, (flip,) int64."""
        return self.variant.positions[self.dense_top != self.variant_top]

    @property
    def agreement(self) -> float | None:
        """Share of scored tokens with the same most probable guess, 0 to 1; None where none was scored."""
        return 1.0 - self.flips.numel() / self.kl.numel() if self.kl.numel() else None


class DenseReference:
    """The dense model on a text, ready to be compared with any number of variants.

    Args:
        model: the dense model; read, not changed.
        tokens: the text.
        windows: in which it is read.

    Raises:
        ModelError: it has no attention key/value cache.
    """

    def __init__(self, model: nn.Module, tokens: Tokens, windows: Windows | None = None) -> None:
        self.tokens, self.windows = tokens, windows or Windows()
        self._reader = Reader(model, tokens, self.windows)
        self._features: list[Tensor] = []
        self._likelihood: Likelihood | None = None

    def reading(self) -> Generator[float, None, Likelihood]:
        """Read the text once; nothing happens where that was done. Yields the share done, 0 to 1."""
        if self._likelihood is not None:
            return self._likelihood
        collected = Collected()
        features: list[Tensor] = []
        for chunk in chunks(self.tokens, self.windows, self._reader.size):
            rows = yield from self._reader.reading(chunk)
            yield chunk.done
            with torch.inference_mode():
                if self._reader.shows_features and rows.features is not None:
                    features.append(rows.features)
                if len(chunk.targets):
                    collected.add(chunk, nll_of(rows.logits[chunk.skip :].log_softmax(-1), chunk.targets))
                del rows
            yield chunk.done
        # A few rows take a way of their own, whose sums are ordered differently.
        self._features = features if all(len(kept) > FEW for kept in features) else []
        self._likelihood = collected.likelihood(self.tokens, self.windows)
        return self._likelihood

    def comparing(self, variant: nn.Module) -> Generator[float, None, Comparison]:
        """Read the text with `variant` beside the dense model.

        Args:
            variant: a shell of the dense model; read, not changed.

        Yields:
            The share done, 0 to 1, of the dense model's own reading too where that is still to be made.
        """
        share = 0.0 if self._likelihood is not None else 0.5
        dense = yield from relay(self.reading(), lambda done: done * share)
        reader = Reader(variant, self.tokens, self.windows)
        collected = Collected()
        kl: list[Tensor] = []
        tops: tuple[list[Tensor], list[Tensor]] = [], []
        after = partial(_after, share)
        for index, chunk in enumerate(chunks(self.tokens, self.windows, self._reader.size)):
            logits = (yield from relay(reader.reading(chunk), after)).logits[chunk.skip :]
            # Three slices or more: on the default model each is a good part of what a slice may take.
            yield after(chunk.done)
            expected = yield from relay(self._dense_logits(index, chunk), after)
            yield after(chunk.done)
            with torch.inference_mode():
                if len(chunk.targets):
                    log_p, log_q = expected.log_softmax(-1), logits.log_softmax(-1)
                    collected.add(chunk, nll_of(log_q, chunk.targets))
                    tops[0].append(log_p.argmax(-1).cpu())
                    tops[1].append(log_q.argmax(-1).cpu())
                    kl.append(kl_divergence(log_p, log_q))
                    del log_p, log_q
                del logits, expected
            yield after(chunk.done)
        return Comparison(dense, collected.likelihood(self.tokens, self.windows), _joined(kl), *map(_whole, tops))

    def _dense_logits(self, index: int, chunk: Chunk) -> Generator[float, None, Tensor]:
        """(row, vocab) fp32 of the scored rows: as the reading of the chunk gave them. Yields as that did."""
        if not self._features:
            return (yield from self._reader.reading(chunk)).logits[chunk.skip :]
        head: nn.Module = self._reader.model.lm_head  # type: ignore[assignment]
        with torch.inference_mode():
            return linear_rows(head, self._features[index][None])[0].float()[chunk.skip :]


def kl_divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p || q) = sum of p (log p - log q) for each row, nats, never below 0.

    Both sums are near 1 in fp32 only, so sum(q - p), which is 0, is added: it takes away to first order what the
    rounding of the two normalizations leaves.

    Args:
        log_p, log_q: (row, vocab) log-probabilities.

    Returns:
        (row,) fp32 on the CPU; inf where q is 0 and p is not.
    """
    p = log_p.exp()
    terms = (log_p - log_q).masked_fill_(p == 0, 0.0).mul_(p).sub_(p).add_(log_q.exp())
    return terms.sum(-1, dtype=torch.float64).clamp_(min=0.0).float().cpu()


def _after(begun: float, share: float) -> float:
    """The whole share where `share` of what followed `begun` is done."""
    return begun + (1 - begun) * share


def _joined(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts) if parts else torch.empty(0)


def _whole(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)
