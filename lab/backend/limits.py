"""What a backend allows, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lab.errors import BadInput

MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds that keep one visitor from taking everything. Seconds, bytes, counts.

    Attributes:
        active_runs: runs that take turns at one time; further ones wait.
        waiting_runs: runs that may wait; beyond them `Busy`.
        waiting_inspections: questions that may wait; beyond them `Busy`.
        deadline_s: how long a run may take from its first slice, other runs' slices included.
        prompt_characters, new_tokens: the operator's own caps, below those of the schema; None for no further cap.
        models: models kept in memory.
        kept_bytes: memory for the state that finished runs leave behind for `inspect`.
        stored_bytes: disk space for recordings of finished runs.
        answer_bytes: size of one answer to `inspect`, as JSON.
        inspect_s: how long a caller waits for an answer.
        body_bytes, json_depth: size and nesting of a request's body.
        heartbeat_s: after so long without an event, a stream says that it still lives.
    """

    active_runs: int = 4
    waiting_runs: int = 16
    waiting_inspections: int = 64
    deadline_s: float = 900.0
    prompt_characters: int | None = None
    new_tokens: int | None = None
    models: int = 2
    kept_bytes: int = 256 * MIB
    stored_bytes: int = 1024 * MIB
    answer_bytes: int = 256 * 1024
    inspect_s: float = 60.0
    body_bytes: int = 1 * MIB
    json_depth: int = 16
    heartbeat_s: float = 3.0

    def check(self, params: dict[str, Any]) -> None:
        """Refuse what the operator does not allow, though the schema does.

        Raises:
            BadInput: the prompt is too long, or too many tokens are asked for.
        """
        prompt = params.get("prompt")
        if self.prompt_characters is not None and isinstance(prompt, str) and len(prompt) > self.prompt_characters:
            raise BadInput(
                f"The prompt has {len(prompt):,} characters; this backend allows {self.prompt_characters:,}.",
                remedy="Shorten it.",
            )
        tokens = params.get("max_new_tokens")
        if self.new_tokens is not None and isinstance(tokens, int) and tokens > self.new_tokens:
            raise BadInput(
                f"max_new_tokens is {tokens:,}; this backend allows {self.new_tokens:,}.", remedy="Ask for fewer."
            )
