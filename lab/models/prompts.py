"""From a text to token ids, and from token ids to what each one adds to the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lab.errors import BadInput, ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from lab.models.loading import LoadedModel

_REPLACEMENT = "\ufffd"
_REPLACEMENT_BYTES = "\u00ef\u00bf\u00bd"  # its three bytes, as byte-level tokenizers write them


def encode_prompt(loaded: LoadedModel, text: str, chat: bool = False) -> list[int]:
    """Token ids of a prompt, as the model was trained to see them.

    Special tokens written in the prompt (`<|im_end|>`) are kept as what they are.

    Args:
        text: the prompt, or the user's message where `chat` is set.
        chat: put the model's chat template around the text, ready for the answer.

    Raises:
        ModelError: `chat` is set and the model has no chat template.
        BadInput: the prompt is not valid text, has no tokens, or is as long as the model's context.
    """
    tokenizer, facts = loaded.tokenizer, loaded.facts
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadInput(
            f"The prompt has half a character at position {error.start} (a lone surrogate).", remedy="Remove it."
        ) from None
    ids = _encode_chat(tokenizer, facts.name, text) if chat else [int(i) for i in tokenizer(text)["input_ids"]]
    if not ids:
        raise BadInput("The prompt has 0 tokens; at least 1 is needed.", remedy="Write something.")
    if facts.context and len(ids) >= facts.context:
        raise BadInput(
            f"The prompt has {len(ids):,} tokens; {facts.name} reads at most {facts.context:,}, "
            "and at least one must be left for the answer.",
            remedy="Shorten it.",
        )
    return ids


def _encode_chat(tokenizer: PreTrainedTokenizerBase, name: str, text: str) -> list[int]:
    if not tokenizer.chat_template:
        raise ModelError(f"{name} has no chat template, so it cannot be asked as a chat.", remedy="Switch chat off.")
    try:
        rendered = tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
        )
    except Exception as error:
        # Templates are small programs from the model's files: they can fail in any way.
        raise ModelError(
            f"The chat template of {name} fails: {str(error).splitlines()[0][:200] if str(error) else error!r}",
            remedy="Switch chat off.",
        ) from error
    return [int(i) for i in tokenizer(str(rendered), add_special_tokens=False)["input_ids"]]


def token_texts(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """What each token adds to the decoded text.

    A character whose bytes are spread over several tokens belongs to the last of them; the earlier ones
    add "". Joined, the texts are the decoded text, special tokens included. Bytes that never become a
    character show as U+FFFD at the token where that is certain.
    """
    stream = TextStream(tokenizer)
    texts = [stream.add(int(token)) for token in ids]
    if texts:
        texts[-1] += stream.finish()
    return texts


def text_of(tokenizer: PreTrainedTokenizerBase, token: int) -> str:
    """A token by itself."""
    return str(tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False))


class TextStream:
    """Decodes tokens one by one, right for characters whose bytes span tokens."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._start = 0  # tokens before this are settled; one settled stretch stays as context for the next
        self._settled = 0  # tokens before this have given all their text
        self._given = 0  # characters already given of the text of the tokens from _start on

    def add(self, token: int) -> str:
        """What `token` adds to the text so far."""
        self._ids.append(token)
        # Decoded with the tokens before: a tokenizer may write a token differently at the start of a text.
        text = self._decode(self._start)
        ready = len(text) - self._unfinished(text)
        new = text[self._given : ready]
        self._given = max(self._given, ready)
        if ready == len(text):
            self._start, self._settled = self._settled, len(self._ids)
            self._given = len(self._decode(self._start))
        return new

    def finish(self) -> str:
        """What is left at the end: the bytes of an unfinished character, as U+FFFD."""
        return self._decode(self._start)[self._given :]

    def branch(self) -> TextStream:
        """A stream that goes on from here by itself, as often as wanted; this one stays where it is."""
        other = TextStream(self._tokenizer)
        other._ids = self._ids[self._start :]
        other._settled = self._settled - self._start
        other._given = self._given
        return other

    def _unfinished(self, text: str) -> int:
        """How many characters at the end of `text` may still become another one: at most three bytes shown as U+FFFD.

        A real U+FFFD in the text looks the same, but the token that ends it holds its last byte.
        """
        trailing = len(text) - len(text.rstrip(_REPLACEMENT))
        if not trailing:
            return 0
        pieces = self._tokenizer.convert_ids_to_tokens(self._ids[self._settled :])
        if "".join(str(piece) for piece in pieces).endswith((_REPLACEMENT, _REPLACEMENT_BYTES)):
            return 0
        return min(trailing, 3)

    def _decode(self, start: int) -> str:
        text = self._tokenizer.decode(self._ids[start:], skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return str(text)
