"""The tree of a beam search: every candidate of every step, the running texts strong, the losers behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import traitlets

from widgets.view import Message, View, clean, integer

FATES = ("kept", "finished", "pruned")
VIEW = {"losers": None, "shared": False, "greedy": True, "sampled": True, "zoom": 1.0}
"""What the page alone decides. `losers`: show those that lost (None: as many as there is room for); `shared`: open the
stretches that all running texts share; `greedy`, `sampled`: lay these paths over the tree; `zoom`: 1 is life size."""


class BeamTree(View):
    """Depth to the right, one column a step; fold, zoom, follow one path.

    The nodes travel apart from the state, as `tree`, once a step:
    `{"nodes": [[parent, step, text, log_prob, score, rank, fate, key of its sentence], ...],
    "steps": [[running, shelf], ...], "paths": [{"kind", "texts", "log_probs", "nodes"}]}`. Nodes are named by their
    place in the list, -1 is the prompt; fates are places in `FATES`; a path's nodes are -1 where the tree has none.
    """

    module: ClassVar[str] = "beam_tree"
    defaults: ClassVar[Mapping[str, Any]] = {
        "step": -1,
        "width": 1,
        "planned": 0,
        "over": False,
        "prompt": "",
        "pointed": None,
        "locked": None,
        "best": -1,
        "sentences": {},
        "view": VIEW,
        "empty": "",
    }
    changing: ClassVar[tuple[str, ...]] = ("state", "tree")
    tree = traitlets.Dict().tag(sync=True)

    def __init__(self, *, sentences: Mapping[str, str] | None = None, empty: str = "") -> None:
        super().__init__(sentences=sentences or {}, empty=empty)
        self._listen("view", self._view)
        self._heard: list[Callable[[], None]] = []

    def grow(
        self,
        nodes: Sequence[Sequence[Any]],
        steps: Sequence[tuple[Sequence[int], Sequence[int]]],
        paths: Sequence[Mapping[str, Any]],
        *,
        target: int = -1,
        run: str = "",
    ) -> None:
        """Replace the nodes; see the class for their form.

        Args:
            target: the node whose line runs straight along the top.
            run: another run's tree forgets what was folded and where it stood.
        """
        self.tree = clean({"nodes": nodes, "steps": steps, "paths": paths, "target": target, "run": run})

    def show(
        self,
        *,
        step: int,
        width: int,
        over: bool,
        best: int,
        planned: int = 0,
        prompt: str = "",
        pointed: int | None = None,
        locked: int | None = None,
    ) -> None:
        """Show the tree after `step` (-1: nothing yet).

        Args:
            width: running texts kept.
            over: the search has stopped by then, so that the best finished text has won.
            best: the node that leads.
            planned: candidates that the whole search may have: with few, those that lost are shown at first.
            prompt: the prompt's text.
            pointed, locked: the nodes that another picture points at, and that a click holds.
        """
        self._put(
            step=step,
            width=width,
            planned=planned,
            over=over,
            best=best,
            prompt=prompt,
            pointed=pointed,
            locked=locked,
        )

    @property
    def view(self) -> dict[str, Any]:
        """What the page decided, for the link."""
        return dict(self.state["view"])

    def set_view(self, settings: Mapping[str, Any]) -> None:
        """Take what fits of `settings`: names and kinds as in `VIEW`."""
        good = dict(self.state["view"])
        for name in VIEW:
            value = settings.get(name)
            if name == "zoom":
                if isinstance(value, int | float) and not isinstance(value, bool) and 0.05 <= value <= 2.5:
                    good[name] = float(value)
            elif isinstance(value, bool) or (name == "losers" and name in settings and value is None):
                good[name] = value
        self._put(view=good)

    def on_view(self, callback: Callable[[], None]) -> None:
        """Call `callback()` when the page changed what it shows."""
        self._heard.append(callback)

    def on_hover(self, callback: Callable[[int | None], None]) -> None:
        """Call `callback(node)` as the pointer or the keyboard moves, None when it leaves."""
        self._listen("hover", lambda message: callback(self._node(message)))

    def on_lock(self, callback: Callable[[int | None], None]) -> None:
        """Call `callback(node)` when a node is clicked, None when the lock is taken off."""
        self._listen("lock", lambda message: callback(self._node(message)))

    def _view(self, message: Message) -> None:
        settings = message.get("view")
        if isinstance(settings, dict):
            self.set_view(settings)
            for callback in tuple(self._heard):
                callback()

    def _node(self, message: Message) -> int | None:
        node = integer(message, "node")
        return node if node is not None and 0 <= node < len(self.tree.get("nodes", ())) else None
