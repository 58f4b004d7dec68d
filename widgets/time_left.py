"""How long a stage of a run still takes, from what it took so far; nothing where that would be a guess."""

from __future__ import annotations

LEAST_S, LEAST_SHARE = 2.0, 0.08
"""Before so much of a stage was seen, nothing is said."""


class TimeLeft:
    """The pace of one stage at a time. Times are of any monotonic clock, in seconds."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Another run begins."""
        self._stage: str | None = None
        self._began = (0.0, 0.0)
        self._share = 0.0

    def at(self, stage: str, share: float, now: float) -> float | None:
        """Seconds that are left of the stage, at the pace since it was first heard of; None where none can be derived.

        Args:
            stage: where the run is; a stage that begins again, or another one, has a pace of its own.
            share: of the stage, 0 to 1.
        """
        if stage != self._stage or share < self._share:
            self._stage, self._began = stage, (now, share)
        self._share = share
        began, first = self._began
        took, done = now - began, share - first
        if took < LEAST_S or done < LEAST_SHARE or share >= 1:
            return None
        return took / done * (1 - share)


def in_words(seconds: float | None) -> str:
    """A rough time: "about 40 s left"; rounded so that it does not pretend; "" for none."""
    if seconds is None:
        return ""
    if seconds < 5:
        return "a few seconds left"
    if seconds < 57.5:
        return f"about {5 * round(seconds / 5)} s left"
    if seconds < 105:
        return f"about {10 * round(seconds / 10)} s left"
    return f"about {round(seconds / 60)} min left"
