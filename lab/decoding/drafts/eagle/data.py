"""The data on disk, read back: texts with their features, in batches of like length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from lab.errors import ModelError


@dataclass(frozen=True)
class Sample:
    """One text.

    Attributes:
        tokens: (n,) int64.
        features: (n - 1, hidden) float16: of all tokens but the last.
        lse: (n - 1,) float32: log of the sum of the target's exponentiated logits; 0 inside the prompt.
        prompt: tokens of the prompt.
        temperature: at which it was drawn.
    """

    tokens: Tensor
    features: Tensor
    lse: Tensor
    prompt: int
    temperature: float


@dataclass(frozen=True)
class Batch:
    """Texts side by side, padded on the right.

    Attributes:
        ids: (text, position): x_{s+1}.
        features: (text, position, hidden): f_s.
        wanted: (text, position, hidden): f_{s+1}, what the head estimates.
        lse: (text, position): of position s+1.
        judged: (text, position) bool: where x_{s+2} is a token that the target generated.
    """

    ids: Tensor
    features: Tensor
    wanted: Tensor
    lse: Tensor
    judged: Tensor


@dataclass(frozen=True)
class Data:
    """What the files of one kind hold.

    Attributes:
        mass: (vocab,) the probabilities of the target at temperature 1, summed over the generated positions.
        weight_hash: of the target that made them.
    """

    samples: list[Sample]
    mass: Tensor
    weight_hash: str

    @property
    def tokens(self) -> int:
        """Generated tokens."""
        return sum(len(s.tokens) - s.prompt for s in self.samples)


def read_data(directory: Path, *, held_out: bool, files: int | None = None) -> Data:
    """Read all files of one kind, or the first so many of them.

    Raises:
        ModelError: there are none, one is damaged, or they come from different targets.
    """
    samples: list[Sample] = []
    mass: Tensor | None = None
    hashes: set[str] = set()
    for file in sorted(directory.glob("held-out-*.safetensors" if held_out else "train-*.safetensors"))[:files]:
        try:
            with safe_open(str(file), "pt") as stored:
                hashes.add((stored.metadata() or {}).get("weight_hash", ""))
                tokens, features, lse = (stored.get_tensor(name) for name in ("tokens", "features", "lse"))
                lengths, prompts, temperatures = (
                    stored.get_tensor(name).tolist() for name in ("length", "prompt", "temperature")
                )
                part = stored.get_tensor("mass")
        except (SafetensorError, OSError) as error:
            raise ModelError(
                f"{file.name} cannot be read: {error}.", remedy="Delete it and generate it again."
            ) from None
        mass = part if mass is None else mass + part
        row = 0
        for start, length, prompt, temperature in zip(_starts(lengths), lengths, prompts, temperatures, strict=True):
            stop = row + length - 1
            ids = tokens[start : start + length].long()
            samples.append(Sample(ids, features[row:stop], lse[row:stop], prompt, temperature))
            row = stop
    if mass is None:
        raise ModelError(f"There is no data in {directory.name}.", remedy="Run generate_data first.")
    if len(hashes) > 1:
        raise ModelError("The data comes from different targets.", remedy="Generate it again in an empty directory.")
    return Data(samples, mass, hashes.pop())


def batches(samples: list[Sample], tokens: int, generator: torch.Generator | None) -> Iterator[Batch]:
    """All samples once, in batches of about `tokens` positions, padding included; in random order with a generator."""
    usable = [sample for sample in samples if len(sample.tokens) >= 3]
    lengths = torch.tensor([float(len(sample.tokens)) for sample in usable])
    if generator is not None:
        # A little noise in the lengths, so that an epoch does not repeat the batches of the one before.
        lengths = lengths * (1 + 0.1 * torch.rand(len(usable), generator=generator))
    groups: list[list[Sample]] = [[]]
    for index in lengths.argsort().tolist():
        sample = usable[index]
        longest = max(len(s.tokens) for s in [*groups[-1], sample]) - 2
        if groups[-1] and longest * (len(groups[-1]) + 1) > tokens:
            groups.append([])
        groups[-1].append(sample)
    order = range(len(groups)) if generator is None else torch.randperm(len(groups), generator=generator).tolist()
    for index in order:
        if groups[index]:
            yield _batch(groups[index])


def _batch(group: list[Sample]) -> Batch:
    longest = max(len(s.tokens) for s in group) - 2
    hidden = group[0].features.shape[1]
    ids = torch.zeros(len(group), longest, dtype=torch.long)
    features, wanted = torch.zeros(2, len(group), longest, hidden)
    lse = torch.zeros(len(group), longest)
    judged = torch.zeros(len(group), longest, dtype=torch.bool)
    for row, s in enumerate(group):
        count = len(s.tokens) - 2
        ids[row, :count] = s.tokens[1:-1]
        features[row, :count] = s.features[:-1].float()
        wanted[row, :count] = s.features[1:].float()
        lse[row, :count] = s.lse[1:]
        judged[row, max(s.prompt - 2, 0) : count] = True
    return Batch(ids, features, wanted, lse, judged)


def _starts(lengths: list[int]) -> list[int]:
    starts = [0]
    for length in lengths[:-1]:
        starts.append(starts[-1] + length)
    return starts
