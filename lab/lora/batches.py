"""From examples to what goes through the model: labels on the answers alone, and no position sent twice or for nothing.

A batch becomes one row of tokens, a tree: what all of its prompts begin with (a chat template's system prompt above
all) stands there once, then each example's own rest. Each token sees its own past only, by an explicit mask, at the
position that it would have alone, so the sums are those of the examples one by one. A model that does not take such a
mask gets padded rows, on the right: causal attention never looks there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lab.errors import BadInput, LabError, shown
from lab.lora.task_files import Example
from lab.models.prompts import encode_prompt

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

MOST_TOKENS = 512
"""Of one example, prompt and answer together."""
ROW_TOKENS = 512
"""Of one row that goes through the model at a time."""


@dataclass(frozen=True)
class Tokenized:
    """One example as tokens.

    Attributes:
        ids: prompt, answer, end token.
        labels_from: where the answer begins: the tokens from there on are predicted and count. At least 1.
    """

    ids: tuple[int, ...]
    labels_from: int

    @property
    def labels(self) -> int:
        """Tokens that count."""
        return len(self.ids) - self.labels_from


@dataclass(frozen=True)
class Rows:
    """Tokens that go through the model at a time. All on the model's device.

    Attributes:
        ids: (row, position) int64.
        position_ids: (row, position) int64; None for 0, 1, 2, ...
        mask: (1, 1, position, position) bool, True where a token sees another; None for plain causal attention.
        predicts: (label,) int64: flat positions, row by row, whose next token counts.
        targets: (label,) int64: those tokens.
    """

    ids: Tensor
    position_ids: Tensor | None
    mask: Tensor | None
    predicts: Tensor
    targets: Tensor

    @property
    def tokens(self) -> int:
        """Positions sent, those of padding included."""
        return self.ids.numel()


def encode_examples(
    loaded: LoadedModel, examples: Sequence[Example], *, chat: bool | None = None
) -> tuple[Tokenized, ...]:
    """Each example as the model will see it: the prompt in its chat template, the answer, its end token.

    Args:
        chat: use the chat template; None for where there is one.

    Raises:
        BadInput: an example without a token to learn, or longer than the model or a row takes; names the line.
        ModelError: `chat` is set and the model has no chat template.
    """
    tokenizer = loaded.tokenizer
    wanted = bool(tokenizer.chat_template) if chat is None else chat
    end = _end_token(loaded)
    limit = min(MOST_TOKENS, loaded.facts.context or MOST_TOKENS)
    made = []
    for one in examples:
        where = f"Line {one.line}" if one.line else f"The example {shown(one.prompt)}"
        try:
            prompt = encode_prompt(loaded, one.prompt, chat=wanted)
        except BadInput as error:
            raise type(error)(f"{where}: {error.message}", remedy=error.remedy) from error
        answer = [int(i) for i in tokenizer(one.answer, add_special_tokens=False)["input_ids"]]
        if not answer:
            raise BadInput(f"{where} has an answer of 0 tokens; at least 1 is needed.", remedy="Write an answer.")
        ids = (*prompt, *answer, *end)
        if len(ids) > limit:
            raise BadInput(
                f"{where} has {len(ids):,} tokens with its template and end token; at most {limit} are trained on.",
                remedy="Shorten the prompt or the answer.",
            )
        made.append(Tokenized(ids, len(prompt)))
    return tuple(made)


def _end_token(loaded: LoadedModel) -> tuple[int, ...]:
    """What ends an answer, so that the model learns to stop: the tokenizer's own, else one of the config's."""
    own = loaded.tokenizer.eos_token_id
    ends = loaded.end_token_ids
    if isinstance(own, int) and (own in ends or not ends):
        return (own,)
    return (min(ends),) if ends else ()


def batches(count: int, size: int, seed: int) -> Iterator[tuple[int, ...]]:
    """Indices of one batch after another, without end: each example once an epoch, in an order of its own.

    A last batch of an epoch that is not full is filled from the next epoch's order.

    Raises:
        LabError: there is nothing to draw from.
    """
    if count < 1 or size < 1:
        raise LabError(f"A batch of {size} from {count} examples cannot be drawn.")
    draw = random.Random(seed)  # noqa: S311
    waiting: list[int] = []
    while True:
        while len(waiting) < size:
            order = list(range(count))
            draw.shuffle(order)
            waiting += order
        yield tuple(waiting[:size])
        del waiting[:size]


def in_rows(sequences: Sequence[Tokenized], device: torch.device, *, tree: bool, room: int = ROW_TOKENS) -> list[Rows]:
    """A batch cut into what goes through at a time: as few `Rows` of at most `room` tokens as its order gives.

    Args:
        tree: one row with shared beginnings; else padded rows.
    """
    made: list[Rows] = []
    part: list[Tokenized] = []
    for one in sequences if tree else sorted(sequences, key=lambda s: len(s.ids)):
        grown = [*part, one]
        if part and _size(grown, tree) > room:
            made.append(_rows(part, device, tree))
            grown = [one]
        part = grown
    if part:
        made.append(_rows(part, device, tree))
    return made


def shared_prefix(sequences: Sequence[Tokenized]) -> int:
    """Tokens that all begin with. The last prompt token is never among them: it predicts an answer."""
    limit = min(one.labels_from for one in sequences) - 1
    first = sequences[0].ids
    for position in range(limit):
        if any(one.ids[position] != first[position] for one in sequences):
            return position
    return max(limit, 0)


def _size(sequences: Sequence[Tokenized], tree: bool) -> int:
    """Positions sent. The last token of an example is not: nothing after it is predicted."""
    lengths = [len(one.ids) - 1 for one in sequences]
    if not tree:
        return max(lengths) * len(lengths)
    prefix = shared_prefix(sequences)
    return prefix + sum(length - prefix for length in lengths)


def _rows(sequences: Sequence[Tokenized], device: torch.device, tree: bool) -> Rows:
    return (_tree if tree else _padded)(sequences, device)


def _tree(sequences: Sequence[Tokenized], device: torch.device) -> Rows:
    prefix = shared_prefix(sequences)
    ids = list(sequences[0].ids[:prefix])
    positions, owner = list(range(prefix)), [-1] * prefix
    predicts: list[int] = []
    targets: list[int] = []
    for number, one in enumerate(sequences):
        shift = len(ids) - prefix
        ids += one.ids[prefix:-1]
        positions += range(prefix, len(one.ids) - 1)
        owner += [number] * (len(one.ids) - 1 - prefix)
        predicts += range(shift + one.labels_from - 1, shift + len(one.ids) - 1)
        targets += one.ids[one.labels_from :]
    of = torch.tensor(owner)
    mask = ((of[:, None] == of) | (of == -1)).tril()[None, None]
    return Rows(
        torch.tensor([ids], device=device),
        torch.tensor([positions], device=device),
        mask.to(device),
        torch.tensor(predicts, device=device),
        torch.tensor(targets, device=device),
    )


def _padded(sequences: Sequence[Tokenized], device: torch.device) -> Rows:
    width = max(len(one.ids) for one in sequences) - 1
    ids = torch.empty(len(sequences), width, dtype=torch.int64)
    predicts: list[int] = []
    targets: list[int] = []
    for row, one in enumerate(sequences):
        # Any token does as padding: nothing looks at it, and nothing of it counts.
        ids[row] = torch.tensor([*one.ids[:-1], *[one.ids[0]] * (width - len(one.ids) + 1)])
        predicts += range(row * width + one.labels_from - 1, row * width + len(one.ids) - 1)
        targets += one.ids[one.labels_from :]
    return Rows(ids.to(device), None, None, torch.tensor(predicts, device=device), torch.tensor(targets, device=device))
