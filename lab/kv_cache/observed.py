"""What a decoding run was seen to do, step by step, and what in it should not have been. No torch here.

The findings come from the tokens and positions fed and the lengths counted in the cache, never from
knowing which mistake was made on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Observation:
    """One pass that made a token.

    Attributes:
        token_id: the token it made.
        fed_token_id: the last token that went through the layers.
        fed_position: the position which that one was given.
        length: tokens that have gone through the layers, this pass included.
        stored: positions that each layer's tensors held after the pass.
        expected: positions that each should hold; -1 where nothing is known.
    """

    token_id: int
    fed_token_id: int
    fed_position: int
    length: int
    stored: tuple[int, ...]
    expected: tuple[int, ...]


@dataclass(frozen=True)
class Finding:
    """Something that should not have been.

    Attributes:
        kind: "token", "position" or "cache".
        index: the new token at which it was seen first.
        words: what was seen, for a person.
    """

    kind: str
    index: int
    words: str


def findings(observed: Sequence[Observation], name_token: Callable[[int], str] = str) -> list[Finding]:
    """What was wrong, each kind once, where it was seen first.

    Args:
        observed: the passes in order; the first came out of the prefill.
        name_token: shows a token to a person.

    Words count new tokens from 1, as a page does; `Finding.index` counts from 0.
    """
    found = [_tokens(observed, name_token), _positions(observed), _stored(observed)]
    return sorted((f for f in found if f is not None), key=lambda f: f.index)


def _tokens(observed: Sequence[Observation], name_token: Callable[[int], str]) -> Finding | None:
    for index in range(1, len(observed)):
        due, fed = observed[index - 1].token_id, observed[index].fed_token_id
        if due != fed:
            again = " the last prompt token a second time," if index == 1 and fed == observed[0].fed_token_id else ""
            words = (
                f"the pass for new token {index + 1} was fed {name_token(fed)},{again} where the token chosen just "
                f"before, {name_token(due)}, was due"
            )
            return Finding("token", index, words)
    return None


def _positions(observed: Sequence[Observation]) -> Finding | None:
    wrong = [(i, o) for i, o in enumerate(observed) if o.fed_position != o.length - 1]
    if not wrong:
        return None
    index, seen = wrong[0]
    due = seen.length - 1
    offsets = {o.fed_position - (o.length - 1) for _, o in wrong}
    if len(offsets) > 1:
        others = ""
    else:
        others = f", {seen.fed_position - due:+d}, and so in {_times(len(wrong), len(observed) - index)}"
    words = (
        f"the pass for new token {index + 1} was given position {seen.fed_position} where {due} was due: "
        f"{due} positions (0 to {due - 1}) had gone before{others}"
    )
    return Finding("position", index, words)


def _times(wrong: int, passes: int) -> str:
    return "every pass from there on" if wrong == passes else f"{wrong} of the {passes} passes from there on"


def _stored(observed: Sequence[Observation]) -> Finding | None:
    for index, seen in enumerate(observed):
        off = [k for k, (n, due) in enumerate(zip(seen.stored, seen.expected, strict=True)) if due not in (-1, n)]
        if not off:
            continue
        layer = off[0]
        held, due = seen.stored[layer], seen.expected[layer]
        which = f"layer {layer}" if len(off) == 1 else f"{len(off)} layers (the first is layer {layer})"
        holds = "holds" if len(off) == 1 else "hold"
        rest = len(seen.stored) - len(off)
        others = f"; the other {rest} hold all that is due" if rest else ""
        how = "fewer" if held < due else "more"
        words = (
            f"after new token {index + 1} {which} {holds} {held} positions, {abs(due - held)} {how} than the {due} "
            f"that {seen.length} tokens fed leave there{others}"
        )
        return Finding("cache", index, words)
    return None
