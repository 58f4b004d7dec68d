"""The words of the base and of a changed model side by side: pairs, verdict, figures, candidates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lab.events.decoding import Candidate
from lab.events.words import WordCompared, WordsCompared, WordToken
from widgets.bar_table import Bar, BarRow, Series
from widgets.format import NOTHING, format_number, typeset_share
from widgets.token_text import quoted, visible
from widgets.word_pairs import Pair, Word
from widgets.words.naming import Naming
from widgets.words.state import WordsState

P: Series = 1
Q: Series = 2
"""Series of the base's probabilities and of the changed model's."""
MOST_SHOWN = 12
MOST_CANDIDATES = 8


def probability(value: float) -> str:
    """A probability as it is written: "0.81", "<0.001"."""
    if not math.isfinite(value):
        return NOTHING
    return "<0.001" if 0 < value < 0.001 else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def pairs(state: WordsState, name: str, upto: int) -> list[Pair]:
    """Both rows up to new token `upto`, place by place."""
    base, other = state.both(name, upto)
    compared = {w.index: w for w in state.compared[name].words} if name in state.compared else {}
    most = max((w.kl for w in compared.values() if math.isfinite(w.kl)), default=0.0)
    found = []
    for place in range(max(len(base), len(other))):
        upper = base[place] if place < len(base) else None
        lower = other[place] if place < len(other) else None
        seen = compared.get(place)
        same = upper.token_id == lower.token_id if upper and lower else None
        found.append(
            Pair(
                Word(upper.text, probability(upper.p)) if upper else None,
                Word(lower.text, probability(lower.p)) if lower else None,
                same,
                seen.kl / most if seen and most > 0 and math.isfinite(seen.kl) else None,
                _pair_words(state.naming, place, upper, lower, seen),
            )
        )
    return found


def _pair_words(
    naming: Naming, place: int, upper: WordToken | None, lower: WordToken | None, seen: WordCompared | None
) -> str:
    parts = [f"new token {place + 1}"]
    parts += [
        f"{who} {quoted(t.text)} p {probability(t.p)}"
        for who, t in ((naming.base, upper), (naming.changed, lower))
        if t
    ]
    if upper and lower:
        parts.append("the same token" if upper.token_id == lower.token_id else "another token")
    if seen:
        parts.append(f"{naming.kl} {format_number(seen.kl)} nats on the {naming.base} text")
    return ", ".join(parts)


def first_difference(state: WordsState, name: str, upto: int) -> int | None:
    """The first place at which both rows differ up to `upto`; None where there is none so far."""
    base, other = state.both(name, upto)
    for place, (a, b) in enumerate(zip(base, other, strict=False)):
        if a.token_id != b.token_id:
            return place
    return None


def verdict(state: WordsState, name: str, upto: int, *, live: bool) -> tuple[str, str, list[str]]:
    """Tone, heading and notes of one variant."""
    variant = state.variants.get(name)
    base, other = state.both(name, upto)
    both = min(len(base), len(other))
    notes = [state.naming.truth(variant)] + (list(variant.notes) if variant else [])
    if not both:
        text = f"The {state.naming.base} model writes first." if live else "No words to compare."
        return "pending" if live else "none", text, notes
    at = first_difference(state, name, upto)
    if at is not None:
        text = f"First other word at new token {at + 1}: {quoted(other[at].text)} instead of {quoted(base[at].text)}"
        notes.insert(0, "From there on the rows have different texts before them and need not meet again.")
        return "pending" if live else "bad", text, notes
    some = f"{both:,} new token{'s' if both != 1 else ''}"
    if live:
        return "pending", f"The same words so far, {some}", notes
    return "good", f"The same words, {some}", notes


def figures(found: WordsCompared | None, naming: Naming) -> list[dict[str, Any]]:
    """What the base's text is worth to the other model."""
    words = found.words if found else ()
    flips = sum(w.flipped for w in words)
    ratios = [math.log(w.q / w.p) for w in words if w.p > 0 and w.q > 0]
    ratio = math.exp(sum(ratios) / len(ratios)) if ratios else None
    worst = words[found.order[0]] if found and found.order and found.order[0] < len(words) else None
    return [
        {
            "id": "words_kl",
            "value": format_number(found.mean_kl) if found else "",
            "unit": f"nats, {naming.kl}",
            "badge": "MEASURED",
            "note": f"most at {quoted(worst.text, 20)}: {format_number(worst.kl)}" if worst else "",
            "title": f"Mean over the positions of the {naming.base} text, which both models read.",
        },
        {
            "id": "words_flips",
            "value": f"{flips:,}" if found else "",
            "unit": f"flips of {len(words):,}" if found else "flips",
            "badge": "MEASURED",
            "note": typeset_share(flips / len(words)) if words else "",
            "title": "Positions at which the most probable next token is another one.",
        },
        {
            "id": "words_ratio",
            "value": f"{ratio:.2f}" if ratio is not None else "",
            "unit": "× as probable",
            "badge": "DERIVED",
            "note": f"each {naming.base} token, geometric mean" if ratio is not None else "",
            "title": f"How probable the {naming.base} model's own words are to the other one.",
        },
    ]


def different_rows(found: WordsCompared | None, naming: Naming) -> list[BarRow]:
    """The most different tokens first."""
    if found is None:
        return []
    shown = [found.words[i] for i in found.order if 0 <= i < len(found.words)][:MOST_SHOWN]
    return [
        BarRow(
            label=visible(w.text),
            mono=True,
            bars=[Bar(w.p, P), Bar(w.q, Q)],
            cells=[
                probability(w.p),
                probability(w.q),
                format_number(w.kl),
                visible(w.top[0].text)[:14] if w.flipped and w.top else "the same",
            ],
            title=f"new token {w.index + 1}, id {w.token_id}: {naming.kl} {format_number(w.kl)} nats",
        )
        for w in shown
    ]


def candidate_rows(base: WordToken | None, other: WordCompared | None) -> list[BarRow]:
    """The most probable tokens of both models at one place; "–" where a model does not name it among its own."""
    if base is None or other is None:
        return []
    p, q = _chances(base.top), _chances(other.top)
    p.setdefault(other.token_id, (other.text, other.p))
    q.setdefault(other.token_id, (other.text, other.q))
    texts = {token: text for token, (text, _) in {**q, **p}.items()}
    ranked = sorted(texts, key=lambda t: -max(p.get(t, ("", 0.0))[1], q.get(t, ("", 0.0))[1]))[:MOST_CANDIDATES]
    return [
        BarRow(
            label=visible(texts[t]),
            mono=True,
            bars=[Bar(p.get(t, ("", 0.0))[1], P), Bar(q.get(t, ("", 0.0))[1], Q)],
            cells=[probability(p[t][1]) if t in p else NOTHING, probability(q[t][1]) if t in q else NOTHING],
            title=f"token {t}",
        )
        for t in ranked
    ]


def _chances(top: Sequence[Candidate]) -> dict[int, tuple[str, float]]:
    return {c.token_id: (c.text, math.exp(min(c.log_prob, 0.0))) for c in top}


def variant_rows(state: WordsState) -> list[BarRow]:
    """Every variant with its mean divergence and where its words part from the base's."""
    rows = []
    for variant in state.others:
        found: WordsCompared | None = state.compared.get(variant.name)
        if found is None:
            rows.append(BarRow(label=variant.label, note="not compared yet"))
            continue
        at = found.first_difference
        rows.append(
            BarRow(
                label=variant.label,
                bars=[Bar(found.mean_kl, Q)],
                cells=[format_number(found.mean_kl), "never" if at < 0 else f"token {at + 1}"],
                title=variant.truth,
            )
        )
    return rows


def by_index(words: Sequence[WordCompared]) -> Mapping[int, WordCompared]:
    """The compared words by the index of their new token."""
    return {w.index: w for w in words}
