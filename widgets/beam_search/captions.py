"""The few words under the pictures."""

from __future__ import annotations

from widgets.beam_search.state import BeamState
from widgets.beam_search.words import signed

Lines = list[tuple[str, str]]


def text_lines(state: BeamState, step: int, *, followed: bool) -> Lines:
    """Whose tokens the strip shows after `step`."""
    if step < 0:
        return []
    if followed:
        which = "The text through the token that you follow; Escape or a second click lets it go."
    elif state.over_at(step):
        which = "The best text."
    else:
        which = "The leading text so far."
    return [("p", f"{which} The bar under a token is its probability.")]


def shelf_lines(state: BeamState, step: int) -> Lines:
    """Why the search stopped, and what a dashed edge means where there is one."""
    if step < 0:
        return []
    at, lines = state.steps[step], []
    if at.stop:
        lines.append(("p", f"The search stopped: {at.stop.rstrip('.')}."))
    if any(not h.is_end for h in at.shelf):
        lines.append(("p", "A dashed edge: the length limit cut the text, no end token ended it."))
    return lines


def plot_lines(state: BeamState, step: int) -> Lines:
    """Where the other paths left the beams."""
    if step < 0:
        return []
    said = []
    for kind, path in state.paths.items():
        name = "Greedy's path" if kind == "greedy" else "The sampled path"
        left, total = state.left_at(kind), signed(sum(path.log_probs), 2)
        if left is None:
            said.append(f"{name} stays within the beams to its end, at {total}.")
        else:
            said.append(f"{name} leaves at token {left + 1} and ends at {total}.")
    return [("p", " ".join(said) or "Greedy's path comes after the search.")]
