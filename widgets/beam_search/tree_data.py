"""The nodes as the tree widget takes them: by place in a list, sent once a step."""

from __future__ import annotations

from typing import Any, overload

from lab.events.beam_search import Node
from widgets.beam_search.state import BeamState
from widgets.beam_search.words import key_of
from widgets.beam_tree import FATES, BeamTree


class TreeData:
    """Maps node ids to places in the tree widget's list and back."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._places: dict[int, int] = {}
        self._sent: tuple[Any, ...] = ()

    def node(self, place: int | None) -> int | None:
        """The id of the node at a place."""
        return self._ids[place] if place is not None and 0 <= place < len(self._ids) else None

    @overload
    def place(self, node: int | None) -> int | None: ...
    @overload
    def place(self, node: int | None, default: int) -> int: ...
    def place(self, node: int | None, default: int | None = None) -> int | None:
        """The place of a node, `default` where it has none."""
        return default if node is None else self._places.get(node, default)

    def feed(self, tree: BeamTree, state: BeamState) -> None:
        """Send the nodes if there are new ones."""
        run = state.started.run_id if state.started else ""
        version = (run, len(state.steps), *state.paths)
        if version == self._sent:
            return
        self._sent = version
        self._ids = list(state.nodes)
        self._places = {node: i for i, node in enumerate(self._ids)}
        tree.grow(
            [self._row(state, node) for node in state.nodes.values()],
            [(self._known(step.running), self._known([h.node for h in step.shelf])) for step in state.steps],
            [
                {
                    "kind": path.kind,
                    "texts": path.texts,
                    "log_probs": [round(p, 5) for p in path.log_probs],
                    "nodes": [self.place(n, -1) for n in path.nodes],
                }
                for path in state.paths.values()
            ],
            target=self.place(state.best_at(len(state.steps) - 1), -1),
            run=run,
        )

    def _known(self, nodes: Any) -> list[int]:
        return [self._places[n] for n in nodes if n in self._places]

    def _row(self, state: BeamState, node: Node) -> list[Any]:
        return [
            self.place(node.parent, -1),
            state.step_of[node.id],
            node.text,
            round(node.log_prob, 5),
            round(node.score, 4),
            node.rank,
            FATES.index(node.fate),
            key_of(state, node.id),
        ]
