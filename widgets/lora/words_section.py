"""Before and after: base, adapter on and merged, three rows on one axis; and the proof that the last two agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ipywidgets as ipw

from widgets.experiment import Desk
from widgets.figure import FigureRow
from widgets.lora.proof import proof_figures
from widgets.lora.state import ADAPTER, BASE, MERGED, NAMING, LoraState
from widgets.section import heading, section
from widgets.shown import show_if
from widgets.token_text import quoted
from widgets.word_pairs import Pair, Word, WordPairs
from widgets.words import section as words
from widgets.words.rows import first_difference, pairs, probability


class WordsSection(words.WordsSection[LoraState]):
    """The shared section with a third row. What differs from the base is what was wanted; what differs between the
    adapter on and merged is a fault or a rounding."""

    naming = NAMING

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._proof = FigureRow()
        self._proven = section(
            heading(
                "Merged is the same model",
                "W + s B A, once beside and once inside the weights, on the prompt and the base's words.",
            ),
            self._proof,
        )

    @classmethod
    def present(cls, state: LoraState) -> bool:
        return state.task == "compare" or bool(state.words)

    def make_pairs(self) -> WordPairs:
        label = "Base row above, adapter row in the middle, merged row below"
        return WordPairs(label=label, empty="No tokens yet. Press Run.", rows=3)

    def shown(self, state: LoraState) -> str:
        """The adapter's row stands in the middle, whatever a link says; the merged one below it."""
        return ADAPTER if ADAPTER in state.variants else super().shown(state)

    def _show_choice(self, state: LoraState, name: str) -> None:
        del state, name
        show_if(False, self._choice)

    def render(self, state: LoraState, upto: int, *, live: bool) -> None:
        if state.task != "compare":  # steps are not tokens there
            upto = state.word_steps - 1
        self._proof.show(proof_figures(state))
        super().render(state, upto, live=live)

    def more(self, state: LoraState, name: str) -> Sequence[ipw.Widget]:
        del name
        return (self._proven,) if state.proof is not None else ()

    def verdict_of(self, state: LoraState, name: str, upto: int, *, live: bool) -> tuple[str, str, list[str]]:
        del name
        return before_after(state, upto, live=live)

    def pairs_of(self, state: LoraState, name: str, upto: int) -> list[Pair]:
        merged = state.words.get(MERGED, [])[: upto + 1]
        base = state.words.get(BASE, [])[: upto + 1]
        found = []
        for place, pair in enumerate(_as_long(pairs(state, name, upto), len(merged))):
            third = merged[place] if place < len(merged) else None
            same = third.token_id == base[place].token_id if third and place < len(base) else None
            said = f", merged {quoted(third.text)} p {probability(third.p)}" if third else ""
            word = Word(third.text, probability(third.p)) if third else None
            found.append(replace(pair, title=pair.title + said, third=word, third_same=same))
        return found

    def rows_of(self, state: LoraState, name: str) -> Sequence[str]:
        del name
        return (BASE, *(row for row in (ADAPTER, MERGED) if row in state.variants))

    def legend_of(self, state: LoraState, name: str) -> str:
        del name
        if not state.words:
            return ""
        on = state.label(ADAPTER) or "adapter on"
        return (
            f"MEASURED, greedy. Above: base. Middle: {on}. Below: merged. ≠: another token than the base's. Small "
            "figures: the token's own probability. Green line: how far base and adapted model are apart at this place "
            "of the base's text."
        )


def _as_long(found: list[Pair], length: int) -> list[Pair]:
    missing = range(len(found), length)
    return [*found, *(Pair(None, None, None, None, f"new token {place + 1}") for place in missing)]


def before_after(state: LoraState, upto: int, *, live: bool) -> tuple[str, str, list[str]]:
    """Tone, heading and notes: what the adapter changed, and whether the merged row is the adapter's."""
    base, other = state.both(ADAPTER, upto)
    both = min(len(base), len(other))
    variant = state.variants.get(ADAPTER)
    notes = list(variant.notes) if variant else []
    if not both:
        going = "The base has written; the adapter follows" if state.training else "The base writes first"
        return ("pending", going, []) if live else ("none", "No words to compare", [])
    notes.insert(0, merged_words(state, upto, live=live))
    own = state.own
    if own is not None and own.effectless:
        notes.insert(0, f"The adapter has no effect: {own.effectless}.")
    wrong = _parted(state, upto) is not None
    at = first_difference(state, ADAPTER, upto)
    if at is None:
        some = f"{both:,} new token{'s' if both != 1 else ''}"
        tone = "pending" if live else "bad" if wrong else "even"
        return tone, f"The same words{' so far' if live else ''}, {some}", notes
    text = f"Other words from new token {at + 1} on: {quoted(other[at].text)} instead of {quoted(base[at].text)}"
    return "pending" if live else "bad" if wrong else "good", text, notes


def _parted(state: LoraState, upto: int) -> int | None:
    """The first place at which merged and adapter row differ."""
    merged = state.words.get(MERGED, [])[: upto + 1]
    on = state.words.get(ADAPTER, [])[: upto + 1]
    return next((i for i, (a, b) in enumerate(zip(on, merged, strict=False)) if a.token_id != b.token_id), None)


def merged_words(state: LoraState, upto: int, *, live: bool) -> str:
    """Whether merging changed a word."""
    merged = state.words.get(MERGED, [])[: upto + 1]
    if not merged:
        return "" if live else "No merged row was written."
    at = _parted(state, upto)
    if at is None:
        return "Merged: the same words as with the adapter on."
    on = state.words[ADAPTER][at]
    close = f"; there the two largest logits are {on.gap:.3g} apart" if on.gap < 1e-2 else ""
    return f"Merged: another word at new token {at + 1}, {quoted(merged[at].text)} for {quoted(on.text)}{close}."


def change_of(state: LoraState) -> dict[str, Any]:
    """The mean divergence from the base, for the poster."""
    found = state.compared.get(ADAPTER)
    return {"kl": found.mean_kl if found else None, "flips": sum(w.flipped for w in found.words) if found else None}
