"""A text as tokens: how many, which bytes each stands for, and the windows in which a model reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab.errors import BadInput
from lab.evaluation.texts import Text, short_hash

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MOST_TOKENS = 131_072
LEAST_WINDOW, MOST_WINDOW = 2, 8192
_CHARACTERS_A_TOKEN = 12
"""Text is cut to so many characters for each token wanted before it is encoded: a long text takes seconds."""


@dataclass(frozen=True)
class Tokens:
    """The start of a text, as tokens. No chat template is put around it.

    Attributes:
        ids: the tokens.
        bytes: of UTF-8 that each stands for; a character spread over tokens counts at the first of them.
        prefix: what the tokenizer puts before any text (a BOS token), or nothing. Each window begins with it; it is
            never predicted.
        hash: the first 12 hex digits of the sha256 of the text that `ids` cover: the same hash, the same text.
        source: of the text, in words.
    """

    ids: tuple[int, ...]
    bytes: tuple[int, ...]
    prefix: tuple[int, ...]
    hash: str
    source: str

    def __len__(self) -> int:
        return len(self.ids)


def encode(tokenizer: PreTrainedTokenizerBase, text: Text, most: int, *, least: int = 1) -> Tokens:
    """The first tokens of a text.

    Args:
        most: tokens at most.
        least: refuse a text with fewer.

    Raises:
        BadInput: `most` outside 1 to 131,072, or a text that is too short.
    """
    if isinstance(most, bool) or not 1 <= most <= MOST_TOKENS:
        raise BadInput(f"{most} tokens were asked for; 1 to {MOST_TOKENS:,} are possible.", remedy="Ask for fewer.")
    piece = text.text[: most * _CHARACTERS_A_TOKEN]
    # verbose=False: a text longer than the model's context is cut into windows later
    made = tokenizer(piece, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    ids = [int(i) for i in made["input_ids"]][:most]
    ends, covered = [], 0
    for _, end in made["offset_mapping"][: len(ids)]:
        covered = max(covered, int(end))
        ends.append(covered)
    if len(ids) < least:
        raise BadInput(
            f"The text ({text.source}) has {len(ids)} tokens; at least {least:,} are needed.",
            remedy="Give a longer text, or ask for fewer tokens.",
        )
    starts = [0, *ends[:-1]]
    sizes = tuple(len(piece[start:end].encode()) for start, end in zip(starts, ends, strict=True))
    return Tokens(tuple(ids), sizes, _prefix(tokenizer), short_hash(piece[:covered]), text.source)


def _prefix(tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    whole = [int(i) for i in tokenizer("a")["input_ids"]]
    plain = [int(i) for i in tokenizer("a", add_special_tokens=False)["input_ids"]]
    for start in range(len(whole) - len(plain) + 1):
        if whole[start : start + len(plain)] == plain:
            return tuple(whole[:start])
    return ()


@dataclass(frozen=True)
class Windows:
    """How a model reads a long text: `size` tokens at a time, each window beginning `stride` after the last.

    A token is scored in the first window that holds it, so that with a stride below the size all but the first
    window's have at least size - stride tokens before them.

    Raises:
        BadInput: a size or stride outside its limits.
    """

    size: int = 512
    stride: int = 512

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not LEAST_WINDOW <= self.size <= MOST_WINDOW:
            raise BadInput(
                f"A window has {LEAST_WINDOW} to {MOST_WINDOW:,} tokens, not {self.size}.",
                remedy="Choose a size between them.",
            )
        if isinstance(self.stride, bool) or not 1 <= self.stride <= self.size:
            raise BadInput(
                f"The stride is {self.stride}; it is 1 to the window's {self.size} tokens.",
                remedy="Choose a stride between them.",
            )

    def spans(self, count: int, *, prefix: bool = False) -> Iterator[Span]:
        """The windows over `count` tokens that score any.

        Args:
            prefix: whether a window's first token has something before it to be predicted from.
        """
        done = begin = 0
        while done < count:
            end = min(begin + self.size, count)
            first = max(done, begin if prefix else begin + 1)
            if first < end:
                yield Span(begin, end, first)
            done = end
            begin += self.stride


@dataclass(frozen=True)
class Span:
    """One window: tokens `begin` to `end` are read, `first` to `end` are scored."""

    begin: int
    end: int
    first: int
