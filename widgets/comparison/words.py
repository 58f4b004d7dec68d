"""What runs that compare words of several models have in common: the rows, and how far each is from the base's."""

from __future__ import annotations

from lab.events.evaluation import Divergence
from widgets.comparison.told import COUNT, MEASURED, SHARE, SIZE, Line, Measure, Quantity, Text, Token, figure
from widgets.run_state import RunState
from widgets.words.state import WordsState


def word_figures(state: WordsState) -> list[Quantity | None]:
    """For each variant the mean divergence and the flips on the base's text, and where the rows part."""
    found: list[Quantity | None] = []
    for variant in state.others:
        compared = state.compared.get(variant.name)
        if compared is None:
            continue
        words, what = compared.words, f": {variant.label}" if len(state.others) > 1 else ""
        flips = sum(w.flipped for w in words) / len(words) if words else None
        at = compared.first_difference + 1 if compared.first_difference >= 0 else None
        text = _text_basis(state)
        found += [
            figure(f"kl {variant.name}", f"{state.naming.kl}, nats{what}", compared.mean_kl, SIZE, basis=text),
            figure(f"flips {variant.name}", f"flips of words{what}", flips, SHARE, basis=text),
            figure(f"part {variant.name}", f"words part at token{what}", at, COUNT, basis=text),
        ]
    return found


def word_lines(state: WordsState) -> list[Line]:
    """For each variant the divergence by place of the base's text."""
    return [
        Line(
            f"kl {variant.name}",
            f"{state.naming.kl} by place" + (f": {variant.label}" if len(state.others) > 1 else ""),
            "new token",
            "nats",
            tuple((w.index + 1, w.kl) for w in state.compared[variant.name].words),
            basis=_text_basis(state),
        )
        for variant in state.others
        if variant.name in state.compared
    ]


def word_texts(state: WordsState) -> list[Text]:
    """The rows, the base's first."""
    base = state.naming.base
    return [
        Text(
            f"row {name}", f"The {base} row" if name == base else f"The {_label(state, name)} row", _tokens(state, name)
        )
        for name in state.words
    ]


def _label(state: WordsState, name: str) -> str:
    return (state.label(name) or name) if len(state.others) > 1 else state.naming.changed


def _tokens(state: WordsState, name: str) -> tuple[Token, ...]:
    return tuple(Token(t.token_id, t.text) for t in state.words[name])


def _text_basis(state: WordsState) -> str:
    """The text that all variants read: other prompts or other models have others."""
    row = state.words.get(state.naming.base, [])
    text = "".join(t.text for t in row)
    return f"on “{text[:24]}…”" if len(text) > 24 else f"on “{text}”"


def held_out(state: RunState) -> str:
    """The held-out text of the run; runs with other ones are not comparable in what was measured on it."""
    used = next((t for t in state.texts.texts if t.role == "held-out"), None) if state.texts else None
    return _held_out(used.hash) if used else ""


def _held_out(digest: str) -> str:
    return f"held-out text {digest[:6]}"


def divergence_figures(key: str, what: str, found: Divergence | None) -> list[Quantity | None]:
    """Figures of a changed model on held-out text: comparable where that text is the same."""
    if found is None:
        return []
    text = _held_out(found.text_hash)
    flips = found.flips / found.positions if found.positions else None
    values: tuple[tuple[str, float | None, Measure], ...] = (
        ("KL, nats", found.kl, SIZE),
        ("flips", flips, SHARE),
        ("perplexity", found.perplexity, SIZE),
    )
    return [figure(f"{key} {name}", f"{name}: {what}", v, measure, MEASURED, text) for name, v, measure in values]
