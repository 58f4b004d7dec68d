"""Errors that a person reads.

Every error raised for bad input says what was wrong (with the value), what the limit is and
what to do. The command line exits with `exit_code`, the HTTP app answers with `http_status`,
the page shows `message` and `remedy` in its error panel.
"""

from __future__ import annotations

from typing import ClassVar


class LabError(Exception):
    """Base of all errors meant for a person.

    Args:
        message: what happened, naming the value and the limit. No paths of the server's own
            files and no traceback.
        remedy: what to do about it, one sentence.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".strip()


def shown(value: object, limit: int = 60) -> str:
    """`value` for a message: its `repr`, cut after `limit` characters. What a caller gave may have megabytes."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


class BadInput(LabError):
    """A value that the caller gave is outside what is allowed."""

    code = "bad_input"
    exit_code = 2
    http_status = 422


class ModelError(BadInput):
    """A model cannot be found, read or used as asked."""

    code = "model"


class NotEnoughMemory(ModelError):
    """The model needs more memory than is free; both numbers are in the message."""

    code = "memory"
    http_status = 507


class RecordingError(BadInput):
    """A recording is corrupt, truncated, foreign or written by a newer version."""

    code = "recording"


class Busy(LabError):
    """Too many runs wait already.

    Args:
        retry_after_s: when to try again, seconds.
    """

    code = "busy"
    http_status = 503

    def __init__(self, message: str, *, remedy: str = "", retry_after_s: int = 10) -> None:
        super().__init__(message, remedy=remedy)
        self.retry_after_s = retry_after_s


class TooMany(Busy):
    """One visitor asked too often; others are served."""

    code = "rate"
    http_status = 429


class DeadlineExceeded(LabError):
    """A run took longer than its deadline."""

    code = "deadline"
    http_status = 504


class BackendUnavailable(LabError):
    """The model process cannot be reached or went away in the middle of a run."""

    code = "backend"
    http_status = 502


class Unauthorized(LabError):
    """The token is missing or wrong."""

    code = "unauthorized"
    http_status = 401


class NotFound(BadInput):
    """No experiment, model, run or inspection has that name."""

    code = "not_found"
    http_status = 404


class Unavailable(LabError):
    """A question that cannot be answered here: the run's state is gone, or a replay never asked it."""

    code = "unavailable"
    http_status = 410


BY_CODE: dict[str, type[LabError]] = {
    cls.code: cls
    for cls in (
        LabError,
        BadInput,
        ModelError,
        NotEnoughMemory,
        RecordingError,
        Busy,
        TooMany,
        DeadlineExceeded,
        BackendUnavailable,
        Unauthorized,
        NotFound,
        Unavailable,
    )
}
