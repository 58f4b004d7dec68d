"""Calibration and held-out text of a run, and changed models beside the dense one on the held-out text."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from lab.calibration.gather import calibrating
from lab.calibration.inputs import LayerInputs
from lab.evaluation.divergence import Comparison, DenseReference
from lab.evaluation.texts import TOPICS, Texts, find_texts
from lab.evaluation.tokens import Tokens, Windows, encode
from lab.events.evaluation import Divergence, TextsChosen, TextUsed
from lab.experiments.compared.progress import Made, shares
from lab.models.loading import LoadedModel
from lab.steps import relay

WINDOW = 512
"""Tokens that are read at a time, of both texts, what the tokenizer puts before any text included where inputs are
gathered: each window is read alone. Only a short last one may join the window before it."""


@dataclass
class ComparedTexts:
    """The texts of one run; nothing is read before it is asked for.

    Attributes:
        loaded: the dense model, read-only.
        text: a file, "wikitext" or "topics"; "": topics.
        calibration_tokens, heldout_tokens: how many to use at most.
    """

    loaded: LoadedModel
    text: str
    calibration_tokens: int
    heldout_tokens: int

    def __post_init__(self) -> None:
        self._texts: Texts | None = None
        self._held_out: Tokens | None = None
        self._reference: DenseReference | None = None

    @property
    def texts(self) -> Texts:
        """Calibration and held-out text.

        Raises:
            BadInput: a text that cannot be read.
        """
        if self._texts is None:
            self._texts = find_texts(self.text or TOPICS)
        return self._texts

    @property
    def held_out(self) -> Tokens:
        """The held-out text's tokens."""
        if self._held_out is None:
            self._held_out = encode(self.loaded.tokenizer, self.texts.held_out, self.heldout_tokens, least=16)
        return self._held_out

    def choose(self, *, calibration: bool, held_out: bool = True) -> Made[list[list[int]]]:
        """Tell the texts. Returns the calibration text's windows, [] if none is needed."""
        used: list[TextUsed] = []
        windows: list[list[int]] = []
        _ = self.texts
        yield None
        if calibration:
            wanted = self.calibration_tokens
            tokens = encode(self.loaded.tokenizer, self.texts.calibration, wanted, least=min(32, wanted))
            windows = cut(tokens)
            used.append(TextUsed("calibration", tokens.source, tokens.hash, len(tokens)))
            yield None
        if held_out:
            held = self.held_out
            used.append(TextUsed("held-out", held.source, held.hash, len(held)))
        yield TextsChosen(texts=tuple(used))
        return windows

    def inputs(self, names: list[str]) -> Made[tuple[dict[str, LayerInputs], dict[str, LayerInputs]]]:
        """Tell the texts, and gather what both send into the modules `names` of the dense model.

        Returns:
            Of the calibration text, with Hessians; and of the held-out text, without.
        """
        windows = yield from self.choose(calibration=True)
        found = []
        for stage, some, hessian in (
            ("reading the calibration text", windows, True),
            ("reading the held-out text", cut(self.held_out), False),
        ):
            reading = calibrating(self.loaded.model, some, names, hessian=hessian, keep=512)
            found.append((yield from relay(reading, shares(stage))))
        return found[0], found[1]

    def compare(
        self, variant: nn.Module, stage: str, done: float = 0, total: float = 1, part: float = 1
    ) -> Made[Divergence]:
        """The variant beside the dense model on the held-out text.

        Args:
            variant: a shell of the dense model.
            done, total, part: see `shares`.
        """
        if self._reference is None:
            self._reference = DenseReference(self.loaded.model, self.held_out, Windows(WINDOW, WINDOW))
        found = yield from relay(self._reference.comparing(variant), shares(stage, done, total, part))
        return divergence_of(found)


def cut(tokens: Tokens) -> list[list[int]]:
    """Windows of a text, each with the tokenizer's prefix before it; a short last one is joined to the one before."""
    size = max(1, WINDOW - len(tokens.prefix))
    parts = [list(tokens.ids[i : i + size]) for i in range(0, len(tokens), size)]
    if len(parts) > 1 and len(parts[-1]) < WINDOW // 8:
        tail = parts.pop()
        parts[-1] += tail
    return [[*tokens.prefix, *part] for part in parts]


def divergence_of(found: Comparison) -> Divergence:
    """As it travels."""
    kl = found.kl
    return Divergence(
        kl=found.mean_kl if found.mean_kl is not None else float("nan"),
        worst_kl=float(kl.max()) if kl.numel() else float("nan"),
        flips=int(found.flips.numel()),
        positions=int(kl.numel()),
        perplexity=found.variant.perplexity,
        dense_perplexity=found.dense.perplexity,
        bits_per_byte=found.variant.bits_per_byte,
        dense_bits_per_byte=found.dense.bits_per_byte,
        text_hash=found.variant.text_hash,
    )
