"""The centre of the `kv_cache` page: tokens, figures, ledger, race, attention, what if."""

from __future__ import annotations

import math
from typing import Any

import ipywidgets as ipw

from lab.events import Event, ModelFacts
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.figure import FigureRow
from widgets.format import format_bytes
from widgets.kv_cache import lesson
from widgets.kv_cache.attention_plot import Reading
from widgets.kv_cache.attention_section import AttentionSection
from widgets.kv_cache.figures import headline, race_figures
from widgets.kv_cache.ledger_plot import LedgerPlot
from widgets.kv_cache.race_plot import RacePlot
from widgets.kv_cache.state import KVCacheState
from widgets.kv_cache.tables import attention_table, candidate_table, ledger_table, race_table, token_table
from widgets.kv_cache.what_if_section import WhatIfSection
from widgets.layer_strip import LayerStrip
from widgets.text import Words
from widgets.token_strip import TokenStrip


class KVCacheViews:
    """All pictures of one run, drawn from one state."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.state = KVCacheState()
        self._example: dict[str, Any] | None = None
        self._strip = TokenStrip()
        self._strip.on_hover(self._hover)
        self._strip.on_lock(self._lock)
        self._figures, self._race_figures = FigureRow(), FigureRow()
        self._ledger, self._race = LedgerPlot(), RacePlot()
        self._layers = LayerStrip()
        self._layers.on_select(self._select_layer)
        self._ledger_words, self._race_words = Words(css_class="lab-caption"), Words(css_class="lab-caption")
        self._race_heading = Words(css_class="lab-heading")
        self._candidates = DataTable(summary="What else could have come next")
        self._ledger_table, self._race_table = DataTable(), DataTable()
        self._attention = AttentionSection(desk)
        self._what_if = WhatIfSection(desk)
        self.widget = ipw.VBox(
            [
                _section(self._strip, self._candidates, self._figures),
                _section(
                    Words(
                        ("h2", "The ledger"),
                        ("p", "Bytes counted from the tensors of every layer, beside the formula (the small dashes)."),
                        css_class="lab-heading",
                    ),
                    self._ledger,
                    self._layers,
                    self._ledger_words,
                    self._ledger_table,
                ),
                _section(
                    self._race_heading,
                    self._race_figures,
                    self._race,
                    self._race_words,
                    self._race_table,
                ),
                self._attention.widget,
                self._what_if.widget,
            ]
        )

    def reset(self) -> None:
        """Forget the run."""
        self.state = KVCacheState()
        self._attention.reset()

    def fold(self, event: Event) -> None:
        """Take one event in."""
        self.state.fold(event)

    def settle(self) -> None:
        """Ask for the worked example and the curves; both are recorded with the run."""
        self._desk.ask("worked_example", {}, self._take_example, of_run=False)
        self._what_if.ask_again()

    def _take_example(self, answer: dict[str, Any] | None, why: str) -> None:
        del why
        if answer is not None:
            with self._desk.lock:
                self._example = answer
            self._desk.touch()

    def steps(self) -> int:
        """New tokens so far."""
        return self.state.steps

    def planned_steps(self) -> int:
        """New tokens asked for."""
        return int(self.state.started.card.params.get("max_new_tokens", 0)) if self.state.started else 0

    def note(self) -> str:
        """Where the run is: the token, of how many, and how fast the cached steps are."""
        started = self.state.started
        if started is None or not self.state.tokens:
            return ""
        times = sorted(t.ms for t in self.state.tokens[1:])
        rate = f" · {1000 / times[len(times) // 2]:.1f} tokens/s" if times and times[len(times) // 2] > 0 else ""
        return f"token {self.state.steps} of {started.card.params.get('max_new_tokens', '?')}{rate}"

    def _hover(self, index: int | None) -> None:
        with self._desk.lock:
            self._desk.cursor.hover = self._step_of(index)
        self._desk.touch()

    def _lock(self, index: int | None) -> None:
        with self._desk.lock:
            self._desk.cursor.locked = self._step_of(index)
        self._desk.touch()

    def _select_layer(self, layer: int | None) -> None:
        if layer is not None:
            with self._desk.lock:
                self._attention.choose_layer(layer)

    def _step_of(self, index: int | None) -> int | None:
        """The new token that a chip stands for; a chip of the prompt stands for the first."""
        if index is None or not self.state.steps:
            return None
        return max(0, min(index - self.state.prompt_length, self.state.steps - 1))

    def render(self, *, live: bool) -> None:
        """Draw everything as it is now; the tables behind the pictures wait for the end of a living run."""
        cursor, state = self._desk.cursor, self.state
        upto = state.steps - 1 if cursor.step is None else min(cursor.step, state.steps - 1)
        pointed = cursor.pointed if cursor.pointed is not None and cursor.pointed <= upto else None
        at = upto if pointed is None else pointed
        reading = self._attention.render(state, at)
        self._render_strip(upto, at, pointed, reading)
        self._figures.show(headline(state, at))
        self._race_figures.show(race_figures(state, at))
        self._ledger.show(state, upto, pointed)
        self._race.show(state, upto, pointed)
        self._render_words(at)
        if not live:
            self._candidates.show(candidate_table(state, at))
            self._ledger_table.show(ledger_table(state, upto))
            self._race_table.show(race_table(state, upto))
        self._what_if.render()

    def _render_strip(self, upto: int, at: int, pointed: int | None, reading: Reading | None) -> None:
        state = self.state
        tokens: list[dict[str, Any]] = []
        if state.prompt:
            for i, text in enumerate(state.prompt.texts):
                title = f"prompt position {i}, token {state.prompt.token_ids[i]}"
                tokens.append({"text": text, "kind": "prompt", "title": title})
        for token in state.tokens[: upto + 1]:
            newest = token.index == upto
            probability = "?" if math.isnan(token.log_prob) else f"{100 * math.exp(token.log_prob):.1f}%"
            title = f"new token {token.index + 1}, id {token.token_id}, probability {probability}, {token.ms:.0f} ms"
            tokens.append({"text": token.text, "kind": "newest" if newest else "new", "title": title})
        self._strip.show(
            tokens,
            weights=_per_position(reading, len(tokens)),
            selected=None if pointed is None else state.prompt_length + at,
            locked=None if self._desk.cursor.locked is None else state.prompt_length + self._desk.cursor.locked,
        )

    def _render_words(self, at: int) -> None:
        twice = "Each new token is really made twice: once with the cache, once with nothing remembered."
        once = "How long a new token takes with the cache."
        self._race_heading.say(("h2", "With and without"), ("p", twice if self.state.compares else once))
        ledger = self.state.ledger_at(at)
        facts = self.state.started.facts if self.state.started else None
        if ledger is None or facts is None:
            self._layers.show([], None)
            self._ledger_words.say()
            self._race_words.say()
            return
        self._layers.show(
            [
                {"bytes": size, "kind": layer.kind, "positions": positions}
                for size, positions, layer in zip(
                    ledger.layer_bytes, ledger.layer_positions, facts.layers, strict=False
                )
            ],
            self._attention.layer,
        )
        kinds = sorted({layer.kind for layer in facts.layers})
        each = format_bytes(ledger.layer_bytes[self._attention.layer]) if ledger.layer_bytes else ""
        ends = (
            "All keep every position; a sliding layer would stop growing at its window."
            if kinds == ["full"]
            else ("Layers: " + ", ".join(f"{sum(1 for x in facts.layers if x.kind == k)} {k}" for k in kinds) + ".")
        )
        reserved = ledger.reserved_bytes - sum(ledger.layer_bytes)
        room = f" {format_bytes(reserved)} more are reserved for tokens to come." if reserved > 0 else ""
        self._ledger_words.say(("p", f"Layer {self._attention.layer} holds {each}. {ends}{room}"))
        same = all(
            self.state.tokens[i].token_id == u.token_id for i, u in self.state.uncached.items() if i < self.state.steps
        )
        if self.state.uncached:
            words = "The tokens are identical." if same else "The tokens differ: see the proof below."
            self._race_words.say(("p", f"MEASURED, one after the other for each token. {words}"))
        else:
            self._race_words.say(
                (
                    "p",
                    "Only the cached run was made. Under Compare stands how many tokens to make without it too.",
                )
            )

    def lesson(self, facts: ModelFacts | None) -> list[dict[str, Any]]:
        """The lesson's sections for the model on screen."""
        dtype = self.state.started.card.dtype if self.state.started else "float32"
        return lesson.sections(self._desk.words, facts, dtype, self._example)

    def tables(self) -> list[Table]:
        """The data behind the pictures."""
        upto = self.state.steps - 1
        return [
            token_table(self.state),
            ledger_table(self.state, upto),
            race_table(self.state, upto),
            attention_table(self.state),
        ]

    def link(self) -> dict[str, Any]:
        """Layer, head and the what-if values."""
        return {"layer": self._attention.layer, "head": self._attention.head, **self._what_if.values}

    def restore(self, settings: dict[str, Any]) -> None:
        """Take view settings from a link; what does not fit is ignored."""
        for name in ("layer", "head"):
            value = settings.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1024:
                setattr(self._attention, name, value)
        self._what_if.restore(settings)


def _section(*children: ipw.Widget) -> ipw.VBox:
    box = ipw.VBox(list(children))
    box.add_class("lab-section")
    return box


def _per_position(reading: Reading | None, length: int) -> list[float]:
    """Weights stretched over the chips, the strongest as 1; positions that were not read are 0."""
    if reading is None:
        return []
    values = [0.0] * length
    top = max(reading.weights) or 1.0
    for start, weight in zip(reading.starts, reading.weights, strict=True):
        for position in range(start, min(start + reading.size, length)):
            values[position] = weight / top
    return values
