"""What the tasks of the `quantization` experiment share: the matrices, the texts, progress, what is checked."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import nn

from lab.evaluation.divergence import Comparison, DenseReference
from lab.evaluation.texts import TOPICS, Texts, find_texts
from lab.evaluation.tokens import Tokens, Windows, encode
from lab.events import Event, Progress
from lab.events.evaluation import Divergence, TextsChosen, TextUsed
from lab.events.quantization import GridNote
from lab.experiments.base import RunContext
from lab.experiments.quantization.checked import Checked, fingerprint
from lab.experiments.quantization.params import QuantizationParams
from lab.experiments.quantization.settings import Scheme
from lab.experiments.quantization.targets import find_targets
from lab.models.grid import check_grid
from lab.models.loading import LoadedModel

T = TypeVar("T")
Part = Generator[Event | None, None, None]
Made = Generator[Event | None, None, T]

WINDOW = 512
"""Tokens that are read at a time, of both texts, what the tokenizer puts before any text included where inputs are
gathered: each window is read alone. Only a short last one may join the window before it."""
GRID_GROUP = 32


@dataclass
class Setup:
    """One run's model, parameters, texts and checks."""

    context: RunContext
    params: QuantizationParams

    def __post_init__(self) -> None:
        self.loaded: LoadedModel = self.context.model
        self.model: nn.Module = self.loaded.model
        self.targets = find_targets(self.model)
        self.scheme = Scheme.of(self.params)
        self.checked = Checked(self.params.seed, self.loaded.dtype)
        self.before = ""
        self._texts: Texts | None = None
        self._held_out: Tokens | None = None
        self._reference: DenseReference | None = None

    def begin(self) -> Part:
        """The model's fingerprint before anything is done, and what is known of its own grid."""
        self.before = yield from fingerprint(self.model)
        yield self.grid_note()

    def grid_note(self) -> GridNote:
        """Whether the first matrix with rows of whole groups of 32 lies on the grid of Q4_1."""
        grid = self.loaded.facts.grid or ""
        target = next((t for t in self.targets if t.weight.shape[1] % GRID_GROUP == 0), None)
        if target is None:
            return GridNote(grid=grid, checked="", changed=1.0, max_error=float("nan"), words="")
        found = check_grid(target.weight)
        words = ""
        if found.on_grid:
            name = grid or "Q4_1, groups of 32"
            words = (
                f"The weights of {self.loaded.facts.name} come from {name}: 4 bits with a float minimum and groups of "
                "32 change nothing, and errors on other 4-bit grids are not those of ordinary weights."
            )
        return GridNote(grid=grid, checked=target.title, changed=found.changed, max_error=found.max_error, words=words)

    def text_of(self, token: int) -> str:
        """A token by itself."""
        tokenizer: Any = self.loaded.tokenizer
        return str(tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False))

    # Texts

    @property
    def texts(self) -> Texts:
        """Calibration and held-out text."""
        if self._texts is None:
            self._texts = find_texts(self.params.text or TOPICS)
        return self._texts

    @property
    def held_out(self) -> Tokens:
        """The held-out text's tokens."""
        if self._held_out is None:
            self._held_out = encode(self.loaded.tokenizer, self.texts.held_out, self.params.heldout_tokens, least=16)
        return self._held_out

    def choose_texts(self, *, calibration: bool, held_out: bool = True) -> Made[list[list[int]]]:
        """Tell the texts. Returns the calibration text's windows, [] if none is needed."""
        used: list[TextUsed] = []
        windows: list[list[int]] = []
        _ = self.texts
        yield None
        if calibration:
            wanted = self.params.calibration_tokens
            tokens = encode(self.loaded.tokenizer, self.texts.calibration, wanted, least=min(32, wanted))
            windows = cut(tokens)
            used.append(TextUsed("calibration", tokens.source, tokens.hash, len(tokens)))
            yield None
        if held_out:
            held = self.held_out
            used.append(TextUsed("held-out", held.source, held.hash, len(held)))
        yield TextsChosen(texts=tuple(used))
        return windows

    # The whole model

    def compare(
        self, variant: nn.Module, stage: str, done: float = 0, total: float = 1, part: float = 1
    ) -> Made[Divergence]:
        """The variant beside the dense model on the held-out text.

        Args:
            done, total, part: of the progress bar: this is `part` steps of `total`, after `done` others.
        """
        if self._reference is None:
            self._reference = DenseReference(self.model, self.held_out, Windows(WINDOW, WINDOW))
        comparing = self._reference.comparing(variant)
        while True:
            try:
                share = next(comparing)
            except StopIteration as end:
                return divergence_of(end.value)
            yield progress(stage, done + part * share, total)


def cut(tokens: Tokens) -> list[list[int]]:
    """Windows of a text, each with the tokenizer's prefix before it; a short last one is joined to the one before."""
    size = max(1, WINDOW - len(tokens.prefix))
    parts = [list(tokens.ids[i : i + size]) for i in range(0, len(tokens), size)]
    if len(parts) > 1 and len(parts[-1]) < WINDOW // 8:
        tail = parts.pop()
        parts[-1] += tail
    return [[*tokens.prefix, *part] for part in parts]


def progress(stage: str, done: float, total: float) -> Progress:
    """`done` of `total` as thousandths."""
    return Progress(stage=stage, done=min(1000, round(1000 * done / total)), total=1000)


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
