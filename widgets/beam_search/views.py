"""The centre of the `beam_search` page: text, figures, tree, shelf, where greedy left, what it cost."""

from __future__ import annotations

import math
from typing import Any

import ipywidgets as ipw

from lab.events import Event, ModelFacts
from widgets.beam_search import captions, lesson
from widgets.beam_search.figures import costs, headline
from widgets.beam_search.score_plot import COLOURS, ScorePlot
from widgets.beam_search.shelf import bound_row, pushed_rows, shelf_rows
from widgets.beam_search.state import BeamState
from widgets.beam_search.tables import candidate_table, hypothesis_table, path_table, step_table
from widgets.beam_search.tree_data import TreeData
from widgets.beam_search.words import SENTENCES
from widgets.beam_shelf import BeamShelf
from widgets.beam_tree import BeamTree
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.figure import FigureRow
from widgets.text import Words
from widgets.token_strip import TokenStrip

TABLE_ROWS = 400
"""Candidates up to which the table behind the tree shows those of all steps."""


class BeamSearchViews:
    """All pictures of one search, drawn from one state. `locked` is the node whose path is followed."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.state = BeamState()
        self.locked: int | None = None
        self._linked: int | None = None
        self._pointed: int | None = None
        self._tree_hover: int | None = None
        self._data = TreeData()
        self._tabled: tuple[Any, ...] = ()
        self._example: dict[str, Any] | None = None
        self._strip = TokenStrip(empty="No text yet.")
        self._figures, self._costs = FigureRow(), FigureRow()
        self._tree = BeamTree(sentences=SENTENCES, empty="No candidates yet. They come with the first step.")
        self._shelf = BeamShelf(empty="Nothing has finished yet.")
        self._plot = ScorePlot()
        self._strip_words, self._shelf_words = Words(css_class="lab-caption"), Words(css_class="lab-caption")
        self._plot_words, self._fork_words = Words(css_class="lab-caption"), Words(css_class="lab-caption")
        self._nodes_table, self._shelf_table, self._steps_table = DataTable(), DataTable(), DataTable()
        self._paths_table = DataTable()
        self._wire()
        self.widget = ipw.VBox(self._sections())

    def _wire(self) -> None:
        self._strip.on_hover(lambda position: self._point(self._node_at(position)))
        self._strip.on_lock(lambda position: self._lock(self._node_at(position)))
        self._tree.on_hover(self._hover_tree)
        self._tree.on_lock(lambda place: self._lock(self._data.node(place)))
        self._tree.on_view(self._desk.touch)
        self._shelf.on_hover(self._point)
        self._shelf.on_lock(self._lock)

    def _sections(self) -> list[ipw.Widget]:
        return [
            _section(self._strip, self._strip_words, self._figures),
            _section(
                _heading(
                    "The tree",
                    "A column is one new token, a thicker line a more probable one. Point at a token to see why it was "
                    "kept or lost; a click follows its path.",
                ),
                self._fork_words,
                self._tree,
                self._nodes_table,
            ),
            _section(
                _heading(
                    "The shelf",
                    "Finished texts, each from where it leaves the best. Score: summed log-probability over a power of "
                    "the length.",
                ),
                self._shelf,
                self._shelf_words,
                self._shelf_table,
            ),
            _section(
                _heading(
                    "Where greedy leaves",
                    "The band is what the beams keep. A path that falls out of it is lost: once out, it never returns, "
                    "even if its sum comes back into the band.",
                ),
                self._plot,
                self._plot_words,
                self._paths_table,
            ),
            _section(
                _heading(
                    "What it costs",
                    "The cache holds the keys and values of every beam; what beams have in common may be held once.",
                ),
                self._costs,
                self._steps_table,
            ),
        ]

    def reset(self) -> None:
        """Forget the run."""
        self.state = BeamState()
        self._data = TreeData()
        self._tabled = ()
        self.locked, self._pointed, self._tree_hover = self._linked, None, None

    def fold(self, event: Event) -> None:
        """Take one event in."""
        self.state.fold(event)

    def settle(self) -> None:
        """Ask for the worked example; it is recorded with the run."""
        self._desk.ask("worked_example", {}, self._take_example, of_run=False)

    def _take_example(self, answer: dict[str, Any] | None, why: str) -> None:
        del why
        if answer is not None:
            with self._desk.lock:
                self._example = answer
            self._desk.touch()

    def steps(self) -> int:
        """Steps of the search so far."""
        return len(self.state.steps)

    def planned_steps(self) -> int:
        """Steps at most: the search may stop earlier."""
        return self.state.max_new_tokens

    def note(self) -> str:
        """Where the run is: the step, of how many at most, and how fast."""
        steps = len(self.state.steps)
        if not steps:
            return ""
        rate = self.state.rate_at(steps - 1)
        return f"token {steps} of {self.state.max_new_tokens or '?'}" + (f" · {rate:.1f} tokens/s" if rate else "")

    # what a visitor points at

    def _shown(self) -> int:
        """The step on screen, -1 before the first."""
        last, step = len(self.state.steps) - 1, self._desk.cursor.step
        return last if step is None else min(step, last)

    def _selected(self) -> int:
        """The node whose path the strip shows: where the one that a click holds leads to, else the leading one."""
        step = self._shown()
        held = self._held()
        return self.state.best_at(step) if held is None else self.state.onward(held, step)

    def _held(self) -> int | None:
        """The node that a click holds, if the step on screen has it."""
        step = self._shown()
        known = self.locked is not None and self.state.step_of.get(self.locked, step + 1) <= step
        return self.locked if known else None

    def _node_at(self, position: int | None) -> int | None:
        """The node behind a chip of the strip; None for the prompt's."""
        if position is None or position < self.state.prompt_length:
            return None
        path = self.state.path(self._selected())
        at = position - self.state.prompt_length
        return path[at].id if at < len(path) else None

    def _point(self, node: int | None) -> None:
        with self._desk.lock:
            self._pointed = node
        self._desk.touch()

    def _hover_tree(self, place: int | None) -> None:
        with self._desk.lock:
            self._tree_hover = self._data.node(place)
        self._desk.touch()

    def _lock(self, node: int | None) -> None:
        with self._desk.lock:
            self.locked = None if node == self.locked else node
            self._linked = None
        self._desk.touch()

    # pictures

    def render(self, *, live: bool) -> None:
        """Draw everything as it is now; the tables behind the pictures wait for the end of a living run."""
        state, step = self.state, self._shown()
        selected, best = self._selected(), state.best_at(step)
        locked = self._held()
        self._render_strip(selected, step)
        self._figures.show(headline(state, step))
        self._costs.show(costs(state, step))
        self._data.feed(self._tree, state)
        self._tree.show(
            step=step,
            width=state.num_beams,
            planned=2 * state.num_beams * state.max_new_tokens,
            over=state.over_at(step),
            best=self._data.place(best, -1),
            prompt="".join(state.prompt.texts)[-400:] if state.prompt else "",
            pointed=self._data.place(self._pointed),
            locked=self._data.place(locked),
        )
        self._shelf.show(
            shelf_rows(state, step),
            pushed=pushed_rows(state, step),
            places=state.num_beams,
            over=state.over_at(step),
            bound=bound_row(state, step),
            pointed=self._tree_hover if self._pointed is None else self._pointed,
            locked=locked,
        )
        pointed = self._tree_hover if self._pointed is None else self._pointed
        self._plot.show(state, step, selected, None if pointed is None else state.step_of.get(pointed))
        self._render_words(step)
        if not live:
            self._render_tables(step)

    def _render_tables(self, step: int) -> None:
        """The tables of the step on screen, made anew only where there is something new in them."""
        state = self.state
        version = (state.started.run_id if state.started else "", len(state.steps), step, *state.paths)
        if version == self._tabled:
            return
        self._tabled = version
        every = sum(len(s.nodes) for s in state.steps[: step + 1]) <= TABLE_ROWS
        caption = "All candidates" if every else f"The candidates of token {step + 1}"
        note = "" if every else "The export has those of all tokens."
        self._nodes_table.show(candidate_table(state, step, 0 if every else step), caption=caption, note=note)
        self._shelf_table.show(hypothesis_table(state, step))
        self._paths_table.show(path_table(state))
        self._steps_table.show(step_table(state, step))

    def _render_strip(self, selected: int, step: int) -> None:
        state = self.state
        path = state.path(selected)
        tokens: list[dict[str, Any]] = []
        if state.prompt:
            for i, text in enumerate(state.prompt.texts):
                title = f"prompt position {i}, token {state.prompt.token_ids[i]}"
                tokens.append({"text": text, "kind": "prompt", "title": title})
        for i, node in enumerate(path):
            chance = "?" if math.isnan(node.log_prob) else f"{100 * math.exp(min(0.0, node.log_prob)):.1f}%"
            title = f"new token {i + 1}, id {node.token_id}, probability {chance}, ranked {node.rank + 1}"
            newest = i == len(path) - 1 and i == step and not state.over_at(step)
            tokens.append({"text": node.text, "kind": "newest" if newest else "new", "title": title})
        ids = [node.id for node in path]
        hovered = self._tree_hover if self._pointed is None else self._pointed
        weights: list[float | None] = [None] * state.prompt_length
        weights += [0.0 if math.isnan(n.log_prob) else math.exp(min(0.0, n.log_prob)) for n in path]
        self._strip.show(
            tokens,
            weights=weights if path else None,
            selected=state.prompt_length + ids.index(hovered) if hovered in ids else None,
            locked=state.prompt_length + ids.index(self.locked) if self.locked in ids else None,
        )

    def _render_words(self, step: int) -> None:
        state = self.state
        self._strip_words.say(*captions.text_lines(state, step, followed=self._held() is not None))
        self._fork_words.say(*captions.fork_lines(state, step))
        self._shelf_words.say(*captions.shelf_lines(state, step))
        self._plot_words.say(*captions.plot_lines(state, step))
        legend = [("the text above", COLOURS["best"], False)] if step >= 0 else []
        names = {"greedy": "greedy's path", "sampled": "sampled path"}
        self._plot_words.legend([*legend, *((names[kind], COLOURS[kind], True) for kind in state.paths)])

    def lesson(self, facts: ModelFacts | None) -> list[dict[str, Any]]:
        """The lesson's sections for the run on screen."""
        del facts
        return lesson.sections(self._desk.words, self.state, self._example)

    def tables(self) -> list[Table]:
        """The data behind the pictures."""
        last = len(self.state.steps) - 1
        return [
            candidate_table(self.state, last),
            hypothesis_table(self.state, last),
            step_table(self.state, last),
            path_table(self.state),
        ]

    def link(self) -> dict[str, Any]:
        """The node that is followed, and what the tree shows."""
        return {"node": self.locked, **self._tree.view}

    def restore(self, settings: dict[str, Any]) -> None:
        """Take view settings from a link; what does not fit is ignored."""
        node = settings.get("node")
        if isinstance(node, int) and not isinstance(node, bool) and 0 <= node < 10**6:
            self.locked = self._linked = node
        self._tree.set_view(settings)


def _heading(title: str, words: str) -> Words:
    return Words(("h2", title), ("p", words), css_class="lab-heading")


def _section(*children: ipw.Widget) -> ipw.VBox:
    box = ipw.VBox(list(children))
    box.add_class("lab-section")
    return box
