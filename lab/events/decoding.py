"""Events that every decoding run has: its prompt, its prefill, and the candidates for a token."""

from __future__ import annotations

from dataclasses import dataclass

from lab.events.base import Event


@dataclass(frozen=True)
class Candidate:
    """A token that could have come next, with its log-probability over the whole vocabulary."""

    token_id: int
    text: str
    log_prob: float


@dataclass(frozen=True, kw_only=True)
class PromptEncoded(Event):
    """The prompt as the model reads it. `texts[i]` is what token i adds to the decoded text.

    A character spread over several tokens belongs to the last of them; the earlier ones add "". `chat` says
    whether the model's chat template was put around it.
    """

    token_ids: tuple[int, ...]
    texts: tuple[str, ...]
    chat: bool


@dataclass(frozen=True, kw_only=True)
class PrefillChunk(Event):
    """Prompt positions start..stop-1 went through the model in one pass of `ms` milliseconds."""

    start: int
    stop: int
    ms: float
