"""The first part of every decoding run: the prompt as token ids, and as an event."""

from __future__ import annotations

from collections.abc import Generator

from lab.errors import BadInput
from lab.events import Event
from lab.events.decoding import PromptEncoded
from lab.experiments.fields import PromptParams
from lab.models.loading import LoadedModel
from lab.models.prompts import TextStream, encode_prompt

_TEXTS_A_SLICE = 256


def read_prompt(
    loaded: LoadedModel, params: PromptParams, stream: TextStream
) -> Generator[Event | None, None, list[int]]:
    """Encode the prompt, tell it, and leave `stream` at its end.

    Yields:
        None after each slice of a long prompt, then `PromptEncoded`.

    Returns:
        The prompt's token ids.

    Raises:
        BadInput: see `encode_prompt`; or prompt and new tokens pass the model's context.
    """
    facts, new = loaded.facts, params.max_new_tokens
    ids = encode_prompt(loaded, params.prompt, params.chat)
    if facts.context and len(ids) + new > facts.context:
        raise BadInput(
            f"{len(ids):,} prompt tokens and {new:,} new ones pass {facts.name}'s context of {facts.context:,}.",
            remedy="Shorten the prompt or ask for fewer tokens.",
        )
    texts: list[str] = []
    for index, token in enumerate(ids):
        texts.append(stream.add(token))
        if index % _TEXTS_A_SLICE == _TEXTS_A_SLICE - 1:
            yield None
    yield PromptEncoded(token_ids=tuple(ids), texts=tuple(texts), chat=params.chat)
    return ids
