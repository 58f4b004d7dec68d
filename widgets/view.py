"""The base of all views: one synchronised JSON state, messages to Python, unknown names refused."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import anywidget
import traitlets

from widgets.assets import css, esm

Message = dict[str, Any]


def clean(value: Any) -> Any:
    """`value` as JSON that any browser reads: non-finite floats become None, lone surrogates U+FFFD.

    Raises:
        TypeError: something that is no number, text, list or mapping.
    """
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    raise TypeError(f"{type(value).__name__} does not travel to the page; use numbers, text, lists or mappings")


class View(anywidget.AnyWidget):
    """A widget whose picture is a pure function of `state`.

    Subclasses name their front end with `module` (the file in `static/`) and the keys of their state with
    `defaults`; `changing` names the traits that change while the page lives. The page never writes `state`: it sends
    messages, so that a late one cannot undo a newer state.

    Args:
        state: initial values for some of the keys in `defaults`.

    Raises:
        TypeError: a key that the view does not have.
    """

    module: ClassVar[str] = ""
    defaults: ClassVar[Mapping[str, Any]] = {}
    changing: ClassVar[tuple[str, ...]] = ("state",)

    state = traitlets.Dict().tag(sync=True)

    def __init_subclass__(cls, **keywords: Any) -> None:
        if "module" in vars(cls):  # not for the class that anywidget derives at each instance
            cls._esm = esm(cls.module)
            cls._css = css(cls.module)
        super().__init_subclass__(**keywords)

    def __init__(self, **state: Any) -> None:
        self._listeners: dict[str, list[Callable[[Message], None]]] = {}
        self._writing = threading.RLock()
        self._check(state)
        super().__init__(state=clean({**self.defaults, **state}))
        self.on_msg(self._receive)

    def _check(self, changes: Mapping[str, Any]) -> None:
        unknown = sorted(changes.keys() - self.defaults.keys())
        if unknown:
            raise TypeError(f"{type(self).__name__} has no {', '.join(unknown)}; it has {', '.join(self.defaults)}")

    def _put(self, **changes: Any) -> None:
        """Change some keys of the state; nothing is sent when all are as they were."""
        self._check(changes)
        with self._writing:  # the kernel's thread and the page's own write different keys
            new = {**self.state, **clean(changes)}
            if new != self.state:
                self.state = new

    def _listen(self, kind: str, callback: Callable[[Message], None]) -> None:
        """Call `callback` with each message of this `type` from the page."""
        self._listeners.setdefault(kind, []).append(callback)

    def _listen_plain(self, kind: str, callback: Callable[[], object]) -> None:
        """The same for a callback that takes nothing."""

        def heard(_message: Message) -> None:
            callback()

        self._listen(kind, heard)

    def _receive(self, _widget: Any, content: Any, _buffers: Any) -> None:
        """Hand a message from the page to its listeners; anything else is ignored."""
        if not isinstance(content, dict):
            return
        for callback in tuple(self._listeners.get(str(content.get("type")), ())):
            callback(content)


def integer(message: Message, key: str) -> int | None:
    """The whole number under `key`, or None where there is none."""
    value = message.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
