"""How many tokens to propose next: more after a round accepted whole, fewer after a rejection.

transformers' heuristic (`generation/candidate_generator.py`, `num_assistant_tokens_schedule="heuristic"`): two more
after full acceptance, one fewer after a rejection. It climbs faster than it falls, since a round that ends too
early loses a whole pass, and one token proposed too many costs a share of one.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.errors import BadInput

LEAST, MOST = 1, 16
UP, DOWN = 2, 1


def next_gamma(gamma: int, proposed: int, accepted: int) -> int:
    """The gamma after a round.

    Args:
        gamma: tokens asked for in that round.
        proposed: length of the longest path proposed: a chain's tokens, a tree's levels. 0 (look-up found nothing)
            says nothing about acceptance: gamma stays.
        accepted: tokens of it accepted.
    """
    if proposed == 0:
        return gamma
    return min(gamma + UP, MOST) if accepted >= proposed else max(gamma - DOWN, LEAST)


@dataclass
class AdaptiveGamma:
    """The gamma of the next round.

    Attributes:
        gamma: from 1 to 16; starts where it is told to.

    Raises:
        BadInput: a start outside 1 to 16.
    """

    gamma: int = 4

    def __post_init__(self) -> None:
        if not LEAST <= self.gamma <= MOST:
            raise BadInput(f"gamma starts at {self.gamma}.", remedy=f"Start with {LEAST} to {MOST} tokens.")

    def after(self, proposed: int, accepted: int) -> int:
        """Hear of a round, see `next_gamma`; returns the new gamma."""
        self.gamma = next_gamma(self.gamma, proposed, accepted)
        return self.gamma
