"""An exception in a run, in words for its reader; the traceback stays in the server's log."""

from __future__ import annotations

from lab.errors import LabError
from lab.events import RunFailed


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that memory ran out: Python's own, or torch's on any device."""
    if isinstance(error, MemoryError):
        return True
    if type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and ("out of memory" in text or "can't allocate memory" in text)


def failure(error: BaseException) -> RunFailed:
    """The final event of a run that raised `error`. Names no path and shows no traceback."""
    if isinstance(error, LabError):
        return RunFailed(code=error.code, message=error.message, remedy=error.remedy)
    if is_out_of_memory(error):
        return RunFailed(
            code="memory",
            message="The run needed more memory than is free.",
            remedy="Ask for fewer tokens or a smaller model, or close other programs.",
        )
    return RunFailed(
        code="error",
        message=f"The run failed with an internal error ({type(error).__name__}).",
        remedy="The log of the model process has the details.",
    )
