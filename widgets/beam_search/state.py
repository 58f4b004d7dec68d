"""What the events of a `beam_search` run say so far. Live, replay and scrubbing read the same state."""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.events import Event
from lab.events.beam_search import BeamResult, BeamStep, Hypothesis, Node, PathFollowed
from lab.events.decoding import PrefillChunk
from widgets.run_state import RunState


@dataclass
class BeamState(RunState):
    """The run, indexed for the pictures. Everything here comes from an event; nodes are named by their id.

    `step_of` gives a node's step; `cut` holds the finished nodes that the length limit ended; `shelved`, all texts that
    ever stood on the shelf, in the order of their coming, each with the step after which it first did.
    """

    chunks: list[PrefillChunk] = field(default_factory=list)
    steps: list[BeamStep] = field(default_factory=list)
    nodes: dict[int, Node] = field(default_factory=dict)
    step_of: dict[int, int] = field(default_factory=dict)
    cut: set[int] = field(default_factory=set)
    shelved: dict[int, tuple[int, Hypothesis]] = field(default_factory=dict)
    paths: dict[str, PathFollowed] = field(default_factory=dict)
    result: BeamResult | None = None

    def take(self, event: Event) -> None:
        """Take in an event of this experiment."""
        match event:
            case PrefillChunk():
                self.chunks.append(event)
            case BeamStep():
                for node in event.nodes:
                    self.nodes[node.id] = node
                    self.step_of[node.id] = len(self.steps)
                for hypothesis in event.shelf:
                    self.shelved.setdefault(hypothesis.node, (len(self.steps), hypothesis))
                self.cut.update(h.node for h in event.shelf if not h.is_end)
                self.steps.append(event)
            case PathFollowed():
                self.paths[event.kind] = event
            case BeamResult():
                self.result = event
            case _:
                pass

    @property
    def num_beams(self) -> int:
        """Running texts kept after each step."""
        return int(self.started.card.params.get("num_beams", 1)) if self.started else 1

    @property
    def length_penalty(self) -> float:
        """The exponent of the length in a finished text's score."""
        return float(self.started.card.params.get("length_penalty", 1.0)) if self.started else 1.0

    @property
    def max_new_tokens(self) -> int:
        """Steps at most, 0 before the run is known."""
        return int(self.started.card.params.get("max_new_tokens", 0)) if self.started else 0

    def path(self, node: int) -> list[Node]:
        """The nodes from the first new token to `node`, empty for the prompt or a node that is not there."""
        out: list[Node] = []
        while node in self.nodes:
            out.append(self.nodes[node])
            node = self.nodes[node].parent
        return out[::-1]

    def over_at(self, step: int) -> bool:
        """Whether the search had stopped after `step`."""
        return 0 <= step < len(self.steps) and bool(self.steps[step].stop)

    def best_at(self, step: int) -> int:
        """The node that leads after `step`: the best finished text once the search is over, else the best running."""
        if not 0 <= step < len(self.steps):
            return -1
        at = self.steps[step]
        if at.shelf and (at.stop or not at.running):
            return at.shelf[0].node
        return at.running[0] if at.running else -1

    def pushed_at(self, step: int) -> list[Hypothesis]:
        """The texts that better ones had pushed off the shelf by `step`, best first."""
        if not 0 <= step < len(self.steps):
            return []
        here = {h.node for h in self.steps[step].shelf}
        gone = [h for since, h in self.shelved.values() if since <= step and h.node not in here]
        return sorted(gone, key=lambda h: -h.score)

    def fork(self) -> int | None:
        """The first token in which the winner's text differs from greedy's; None where they are the same or missing."""
        greedy, best = self.paths.get("greedy"), self.path(self.best_at(len(self.steps) - 1))
        if greedy is None or not best:
            return None
        ids = [n.token_id for n in best]
        shared = next((i for i, (a, b) in enumerate(zip(ids, greedy.token_ids, strict=False)) if a != b), None)
        shorter = min(len(ids), len(greedy.token_ids))
        return shorter if shared is None and len(ids) != len(greedy.token_ids) else shared

    def onward(self, node: int, step: int) -> int:
        """Where the path through `node` leads by `step`: to the best text through it, else to what was kept last."""
        at = self.steps[step]
        for head in (*(h.node for h in at.shelf), *at.running):
            if any(n.id == node for n in self.path(head)):
                return head
        last = node
        for later in self.steps[self.step_of[node] + 1 : step + 1]:
            last = next((n.id for n in later.nodes if n.parent == last and n.fate == "kept"), last)
        return last

    def best_hypothesis(self) -> Hypothesis | None:
        """The winner, once there is a result."""
        return self.result.hypotheses[0] if self.result and self.result.hypotheses else None

    def left_at(self, kind: str) -> int | None:
        """The step at which the path of `kind` left the beams; None if it never did or is not there."""
        path = self.paths.get(kind)
        if path is None:
            return None
        for i, node in enumerate(path.nodes):
            if node not in self.nodes or self.nodes[node].fate == "pruned":
                return i
        return None

    def rate_at(self, step: int) -> float | None:
        """Steps a second up to `step`, the first left out (its pass is the prefill): tokens/s of one text."""
        times = [s.ms for s in self.steps[1 : step + 1]]
        return 1000 * len(times) / sum(times) if times and sum(times) > 0 else None
