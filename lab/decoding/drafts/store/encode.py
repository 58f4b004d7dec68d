"""From texts to one run of token ids, piece by piece, and what tells two tokenizers apart."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lab.decoding.drafts.store.suffix_array import MAX_TOKENS, IntArray
from lab.errors import BadInput

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PIECE = 32_768
"""Characters tokenized between two pauses: about 20 ms with a fast tokenizer."""

BORDER = -1
"""Between two documents: no token."""


def tokenizer_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    """sha256 over what a tokenizer does: its vocabulary with its ids, and its rules where it shows them; hex.

    Two tokenizers of different names with the same content have the same hash.
    """
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        whole: str = backend.to_str()
        # What comes before are truncation and padding, which a call may set and which change no plain text's tokens.
        content = whole[max(whole.find('"added_tokens"'), 0) :]
    else:
        vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
        content = repr((type(tokenizer).__name__, vocabulary))
    return hashlib.sha256(content.encode("utf-8", errors="surrogatepass")).hexdigest()


def encode_texts(documents: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> Generator[float, None, IntArray]:
    """The tokens of all documents, one after the other, with `BORDER` between two.

    A document goes through in pieces of about 32,768 characters that end at a line's end where they can, so a
    token never spans two pieces. A tokenizer written in Python may need longer than 200 ms for a piece.

    Yields:
        The fraction of the characters done.

    Returns:
        (token,) int32.

    Raises:
        BadInput: they are more than `MAX_TOKENS`.
    """
    whole = max(sum(len(text) for text in documents), 1)
    parts: list[IntArray] = []
    tokens = characters = 0
    for number, text in enumerate(documents):
        if number:
            parts.append(np.array([BORDER], dtype=np.int32))
        start = 0
        while start < len(text):
            stop = _piece_end(text, start)
            ids = tokenizer(text[start:stop], add_special_tokens=False, verbose=False)["input_ids"]
            parts.append(np.array(ids, dtype=np.int32))
            tokens += len(ids)
            characters += stop - start
            start = stop
            if tokens + len(documents) > MAX_TOKENS:
                raise BadInput(
                    f"The texts have more than {MAX_TOKENS:,} tokens ({characters:,} of {whole:,} characters read).",
                    remedy="Give less text.",
                )
            yield characters / whole
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)


def _piece_end(text: str, start: int) -> int:
    """Where the piece that begins at `start` ends: before a line that begins with a letter, else anywhere."""
    stop = start + PIECE
    if stop >= len(text):
        return len(text)
    end = stop
    while (end := text.rfind("\n", start + PIECE // 2, end)) >= 0:
        if not text[end + 1].isspace():
            return end + 1
    return stop
