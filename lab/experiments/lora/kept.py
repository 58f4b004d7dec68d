"""What a run leaves behind for questions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from lab.errors import Unavailable
from lab.experiments.base import RunContext

if TYPE_CHECKING:
    from lab.decoding.passes import Pass
    from lab.lora.adapter import Adapter
    from lab.lora.attach import Attached

_KEY = "lora"


@dataclass(eq=False)
class Kept:
    """Of one run.

    Attributes:
        adapter: the one that runs, in a training the best so far; None before there is one. whole: the same with all
            its singular values, None where nothing was cut.
        about: of which step of a training it is, to be said after its name; "" without a training.
        prompt: token ids.
        rows: new tokens of the rows so far, by the variant's name.
        spectrum: (layer, projection, singular values) of each adapted module; layer -1 is outside the layers.
    """

    adapter: Adapter | None = None
    whole: Adapter | None = None
    about: str = ""
    prompt: tuple[int, ...] = ()
    rows: dict[str, tuple[int, ...]] = field(default_factory=dict)
    spectrum: list[tuple[int, str, tuple[float, ...]]] = field(default_factory=list)


@dataclass(eq=False)
class Reader:
    """What reads a text with a run's adapter on, at any scale.

    Attributes:
        attached: a shell of the run's model with the adapter active.
        runner: a pass through that shell; making one takes as long as some layers do.
    """

    adapter: Adapter
    attached: Attached
    runner: Pass


_READERS: WeakKeyDictionary[Kept, Reader] = WeakKeyDictionary()
"""They share the model's tensors, so they are none of what the run keeps."""


def keep(context: RunContext) -> Kept:
    """The run's own, made when missing."""
    kept: Kept = context.kept.setdefault(_KEY, Kept())
    return kept


def kept_of(context: RunContext | None) -> Kept:
    """What a run left.

    Raises:
        Unavailable: there is no run, or it has nothing yet.
    """
    kept = None if context is None else context.kept.get(_KEY)
    if not isinstance(kept, Kept):
        raise Unavailable("This question needs a run of the adapter.", remedy="Run it first, then ask.")
    return kept


def adapter_of(kept: Kept) -> Adapter:
    """The run's adapter.

    Raises:
        Unavailable: there is none yet.
    """
    if kept.adapter is None:
        raise Unavailable("The run has no adapter yet.", remedy="Ask again when it was read, or a step was trained.")
    return kept.adapter


def reader_of(context: RunContext, kept: Kept, positions: int) -> Reader:
    """The reader of the run's adapter, made when missing.

    Args:
        positions: that it has room for, the same at each call.
    """
    from lab.decoding.choose_pass import choose_pass
    from lab.lora.attach import Attached
    from lab.models.shell import make_shell

    adapter = adapter_of(kept)
    found = _READERS.get(kept)
    if found is None or found.adapter is not adapter:
        attached = Attached(make_shell(context.model.model), [adapter])
        attached.active = adapter.name
        runner = choose_pass(attached.shell, positions, layers=(), fast=None, mistake="nothing")
        _READERS[kept] = found = Reader(adapter, attached, runner)
    return found
