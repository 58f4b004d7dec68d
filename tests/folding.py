"""Which events the fold of a page's state knows, read from its code."""

from __future__ import annotations

from types import FunctionType

from lab.events import event_types


def events_of(*modules: str) -> set[str]:
    """The names of the event classes that these modules of `lab.events` define."""
    return {cls.__name__ for cls in event_types().values() if cls.__module__ in modules}


def names_in(state: type) -> set[str]:
    """Names that stand in the methods of a state and of its bases: what its `match` statements can tell apart."""
    methods = [m for cls in state.__mro__ for m in vars(cls).values() if isinstance(m, FunctionType)]
    return {name for m in methods for name in m.__code__.co_names if name in m.__globals__}
