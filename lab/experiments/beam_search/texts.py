"""What each node of the tree adds to the text of its path."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lab.decoding.beam.search import Candidate
from lab.models.prompts import TextStream

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class TreeTexts:
    """Texts of nodes, step by step; joined along a path they are its text.

    Args:
        after_prompt: a stream at the prompt's end.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, after_prompt: TextStream) -> None:
        self._tokenizer = tokenizer
        self._after_prompt = after_prompt
        self._streams = {-1: after_prompt}
        self.texts: list[str] = []

    def add(self, candidates: Iterable[Candidate]) -> list[str]:
        """The texts of one step's candidates, in their order. Their ids go on from those before."""
        streams: dict[int, TextStream] = {}
        texts = []
        for candidate in candidates:
            stream = self._streams[candidate.parent].branch()
            text = stream.add(candidate.token_id)
            if candidate.fate == "kept":
                streams[candidate.id] = stream
            else:
                text += stream.finish()
            texts.append(text)
        self._streams = streams
        self.texts += texts
        return texts

    def along(self, token_ids: Iterable[int]) -> list[str]:
        """What each token of a text after the prompt adds to it."""
        stream = self._after_prompt.branch()
        texts = [stream.add(token) for token in token_ids]
        if texts:
            texts[-1] += stream.finish()
        return texts

    def name(self, token_ids: Iterable[int]) -> str:
        """A text for a person, shortened in the middle."""
        text = str(self._tokenizer.decode(list(token_ids), skip_special_tokens=False))
        return repr(text if len(text) <= 60 else f"{text[:28]} … {text[-28:]}")
