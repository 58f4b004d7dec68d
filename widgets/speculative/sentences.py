"""Why a token stands or not, in plain sentences built from its numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lab.events.speculative import Judged
from widgets.speculative.state import FIRST, STANDS, SpeculativeState, Spot
from widgets.token_text import quoted

ONE_HOT = 1 - 1e-6
MISTAKES = {
    "no_residual": "Broken on purpose: at a rejection the replacement is drawn from all of p, not from the residual.",
    "wrong_q": "Broken on purpose: the q in the ratio is not the one that the token was drawn from.",
    "processors_skipped": "Broken on purpose: after a rejection temperature, top-k and penalties are left out.",
    "cache_not_cropped": "Broken on purpose: rejected tokens stay in the cache, so later tokens read what was never "
    "written.",
    "top_token_on_rejection": "Broken on purpose: at a rejection the model's most probable token is taken, not a draw.",
}


def share(value: float) -> str:
    """A probability in words: two digits after the point, more for small ones."""
    if not math.isfinite(value):
        return "unknown"
    if value == 0 or value >= 0.9995:
        return "0" if value == 0 else ("1" if value >= 1 else "more than 0.999")
    if value < 0.001:
        return "less than 0.001"
    return f"{value:.3f}" if value < 0.0995 or value >= 0.995 else f"{value:.2f}"


def pair(first: float, second: float) -> tuple[str, str]:
    """Two probabilities with as many digits as it takes to tell them apart."""
    one, two = share(first), share(second)
    if one != two or first == second:
        return one, two
    for digits in range(3, 8):
        one, two = f"{first:.{digits}f}", f"{second:.{digits}f}"
        if one != two:
            break
    return one, two


def heading(state: SpeculativeState, spot: Spot | None) -> str:
    """The question that the sentences answer."""
    if spot is None:
        return "Why was a token accepted or rejected?"
    token = state.token(spot)
    if token is None:
        return f"Where does {quoted(state.first.text)} come from?" if state.first else ""
    name = quoted(token.text)
    return {
        "accepted": f"Why was {name} accepted?",
        "rejected": f"Why was {name} rejected?",
        "unjudged": f"Why was {name} never judged?",
        "resampled": f"Where does {name} come from?",
        "bonus": f"Where does {name} come from?",
        "plain": f"Where does {name} come from?",
    }[token.kind]


def sentences(state: SpeculativeState, spot: Spot | None) -> list[str]:
    """The answer, one to three sentences."""
    if spot is None:
        return ["Press Run. The newest rejected token is explained here; point at any other token to ask about it."]
    if spot.round == FIRST:
        return _first(state)
    token = state.token(spot)
    if token is None:
        return []
    said = {
        "accepted": _accepted,
        "rejected": _rejected,
        "unjudged": _unjudged,
        "resampled": _resampled,
        "bonus": _bonus,
        "plain": _plain,
    }[token.kind](state, spot, token)
    if token.ends:
        said.append("It ends the text.")
    return said


def short(state: SpeculativeState, spot: Spot) -> str:
    """One line for a tooltip."""
    token = state.token(spot)
    if token is None:
        return "new token 1, from the prompt's own pass"
    where = f"new token {token.position + 1}, round {spot.round + 1}"
    if token.kind == "accepted" and math.isfinite(token.u):
        accept, draw = pair(token.accept, token.u)
        return f"{where}: accepted, probability {accept}, draw {draw}"
    if token.kind == "rejected" and math.isfinite(token.u):
        accept, draw = pair(token.accept, token.u)
        return f"{where}: rejected, probability of acceptance {accept}, draw {draw}"
    words = {
        "accepted": "accepted: the model's own top token",
        "rejected": "rejected: not the model's top token",
        "unjudged": "never judged",
        "resampled": "put in by the model after a rejection",
        "bonus": "put in by the model after all were accepted",
        "plain": "a plain step: nothing was proposed",
    }
    return f"{where}: {words[token.kind]}"


def _first(state: SpeculativeState) -> list[str]:
    first = state.first
    if first is None:
        return []
    how = "is the model's top token" if state.greedy else f"was drawn from the model, which gives it {share(first.p)}"
    return [f"Reading the prompt already gives the first token: {quoted(first.text)} {how}. No draft was asked."]


def _offer(token: Judged) -> str:
    """What the draft and the model each say of a token."""
    name = quoted(token.text)
    if token.q >= ONE_HOT:
        return f"The draft proposed {name} and nothing else (q = 1), the model gives it {share(token.p)}."
    return f"The draft gave {name} {share(token.q)}, the model gives it {share(token.p)}."


def _accepted(state: SpeculativeState, _spot: Spot, token: Judged) -> list[str]:
    if state.greedy or not math.isfinite(token.u):
        return [f"The model's top token here is {quoted(token.text)}: just what the draft proposed, so it is accepted."]
    if token.accept >= 1:
        return [_offer(token), "The model wants it at least as much as the draft, so it is always accepted."]
    accept, draw = pair(token.accept, token.u)
    return [
        _offer(token),
        f"So it is accepted with probability p / q = {accept}; the draw was {draw}, below that: accepted.",
    ]


def _stand_in(state: SpeculativeState, spot: Spot, token: Judged) -> Judged | None:
    """The token that stands where `token` was rejected."""
    tokens = state.rounds[spot.round].tokens
    return next((t for t in tokens if t.position == token.position and t.kind in STANDS), None)


def _rejected(state: SpeculativeState, spot: Spot, token: Judged) -> list[str]:
    other = _stand_in(state, spot, token)
    if state.greedy or not math.isfinite(token.u):
        top = f"The model's top token here is {quoted(other.text)}" if other else "The model's top token is another"
        return [f"{top}, so {quoted(token.text)} is rejected.", "Without sampling only the top token is accepted."]
    accept, draw = pair(token.accept, token.u)
    said = [_offer(token), f"So it is accepted with probability p / q = {accept}; the draw was {draw}: rejected."]
    if other is not None and other.kind == "accepted":
        said.append(f"The next guess for the same place, {quoted(other.text)}, was accepted.")
    elif other is not None:
        said.append(f"The replacement {quoted(other.text)} {_drawn(state)}.")
    return said


def _drawn(state: SpeculativeState) -> str:
    match state.param("break_run", "nothing"):
        case "no_residual" | "processors_skipped":
            return "was drawn by the wrong rule"
        case "top_token_on_rejection":
            return "was not drawn at all"
        case _:
            return "was drawn from what the model wants more than the draft"


def _unjudged(state: SpeculativeState, spot: Spot, token: Judged) -> list[str]:
    tokens = state.rounds[spot.round].tokens
    stop = next((t for t in reversed(tokens) if t.kind == "rejected"), None)
    if stop is None or stop.depth > token.depth:
        if any(t.ends for t in tokens):
            return ["Never judged: the text ended before it."]
        if any(t.kind == "accepted" and t.depth == token.depth for t in tokens):
            return ["Never judged: another guess for the same place was accepted first."]
        return ["Never judged: the text was long enough before it, or its branch was not taken."]
    if stop.depth == token.depth:
        return ["Never judged: its branch was not taken."]
    before = "the token before it" if stop.depth == token.depth - 1 else f"{quoted(stop.text)} before it"
    return [f"Never judged: {before} was rejected.", "It was a guess for a text that does not exist."]


def _resampled(state: SpeculativeState, spot: Spot, token: Judged) -> list[str]:
    out = _refused(state.rounds[spot.round].tokens, token)
    name = quoted(token.text)
    if state.greedy:
        top = f"{name} is the model's top token here"
        return [f"{top}; the draft had proposed {quoted(out.text)}." if out else f"{top}."]
    why = f"{quoted(out.text)} was rejected, so" if out else "The draft's token was rejected, so"
    if state.param("break_run", "nothing") in ("no_residual", "processors_skipped", "top_token_on_rejection"):
        return [f"{why} the model put in {name}."]
    row = next((s for s in token.shares if s.token_id == token.token_id), None)
    said = [f"{why} the model put in {name}, drawn from what it wants more than the draft: p - q where p is larger."]
    if row is not None and math.isfinite(row.q):
        said.append(
            f"The model gives it {share(row.p)}, the draft gave it {share(row.q)}; of that surplus it has "
            f"{share(row.residual)}."
        )
    return said


def _refused(tokens: Sequence[Judged], token: Judged) -> Judged | None:
    return next((t for t in reversed(tokens) if t.kind == "rejected" and t.position == token.position), None)


def _bonus(state: SpeculativeState, _spot: Spot, token: Judged) -> list[str]:
    return [f"All proposed tokens were accepted, and the same pass already says what follows: {_own(state, token)}."]


def _plain(state: SpeculativeState, _spot: Spot, token: Judged) -> list[str]:
    return [f"Nothing was proposed, so this was a plain step. {_own(state, token)}."]


def _own(state: SpeculativeState, token: Judged) -> str:
    """How the model came to its own token where no draft was judged."""
    if state.greedy:
        return f"{quoted(token.text)} is the model's top token"
    return f"{quoted(token.text)} was drawn from the model's own distribution, which gives it {share(token.p)}"
