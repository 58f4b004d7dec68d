"""Tokens as chips: the index of every picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

from widgets.view import Message, View, integer

Kind = Literal["prompt", "new", "newest", "accepted", "rejected", "resampled", "bonus", "plain", "unjudged"]

LIMIT = 600
BLOCK = 100


class TokenStrip(View):
    """Token chips with hover, lock and weights. A long beginning is folded, and not sent while it is.

    In the state, `tokens` and `weights` begin at position `start`; `selected` and `locked` are positions.
    """

    module: ClassVar[str] = "token_strip"
    defaults: ClassVar[Mapping[str, Any]] = {
        "tokens": [],
        "start": 0,
        "limit": LIMIT,
        "weights": None,
        "selected": None,
        "locked": None,
        "follow": True,
        "empty": "",
    }

    def __init__(self, *, empty: str = "") -> None:
        super().__init__(empty=empty)
        self._expanded = False
        self._tokens: Sequence[Mapping[str, Any]] = ()
        self._weights: Sequence[float | None] = ()
        self._listen("expand", self._expand)

    def show(
        self,
        tokens: Sequence[Mapping[str, Any]],
        *,
        weights: Sequence[float | None] | None = None,
        selected: int | None = None,
        locked: int | None = None,
        follow: bool = True,
    ) -> None:
        """Show these tokens.

        Args:
            tokens: `{"text": ..., "kind": Kind}` with optionally `id` and `title`.
            weights: one in 0..1 for each token, as shade and underline; None or empty for none.
            selected: the position that a picture points at.
            locked: the position that a click holds.
            follow: keep the newest line in sight, as while tokens come; else a long strip opens at its top.
        """
        self._tokens, self._weights = tokens, weights or ()
        self._put(**self._window(), selected=selected, locked=locked, follow=follow)

    def _window(self) -> dict[str, Any]:
        start = 0
        if not self._expanded and len(self._tokens) > LIMIT:
            start = -(-(len(self._tokens) - LIMIT) // BLOCK) * BLOCK
        weights = [None if w is None else round(w, 3) for w in self._weights[start:]] if self._weights else None
        return {"tokens": self._tokens[start:], "start": start, "weights": weights}

    def _expand(self, message: Message) -> None:
        self._expanded = message.get("expanded") is True
        self._put(**self._window())

    def on_hover(self, callback: Callable[[int | None], None]) -> None:
        """Call `callback(position)` as the pointer or the focus moves, None when it leaves."""
        self._listen("hover", lambda message: callback(self._position(message)))

    def on_lock(self, callback: Callable[[int | None], None]) -> None:
        """Call `callback(position)` when a chip is clicked, None when the lock is taken off."""
        self._listen("lock", lambda message: callback(self._position(message)))

    def _position(self, message: Message) -> int | None:
        index = integer(message, "index")
        return index if index is not None and 0 <= index < len(self._tokens) else None
