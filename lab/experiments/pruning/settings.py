"""From parameters to a method with its settings, and to the words for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, get_args

from lab.events.pruning import PruneSetting
from lab.experiments.pruning.choices import METHODS, ONE_MATRIX, MethodName, PatternName, ScopeName
from lab.experiments.pruning.params import PruningParams
from lab.pruning.methods import Settings, make_method
from lab.pruning.pattern import Pattern, Scope

if TYPE_CHECKING:
    from lab.pruning.method import Method

_SCOPES = {"global_magnitude": "model", "rows": "heads and channels", "wanda": "row"}


@dataclass(frozen=True)
class Scheme:
    """One way to prune: what a method is built from. See `PruningParams` for the fields."""

    method: MethodName
    sparsity: float = 0.5
    pattern: PatternName = "none"
    scope: ScopeName = "matrix"
    damping: float = 0.01
    seed: int = 0

    @classmethod
    def of(cls, params: PruningParams) -> Scheme:
        """What a run was asked for. A pattern counts only where single weights of one matrix are compared."""
        patterned = params.method in ONE_MATRIX
        return cls(
            params.method,
            params.sparsity,
            params.pattern if patterned else "none",
            params.scope,
            params.damping,
            params.seed,
        )

    def by(self, method: MethodName) -> Scheme:
        """The same by another method."""
        return replace(self, method=method, pattern=self.pattern if method in ONE_MATRIX else "none")

    @property
    def n_of_m(self) -> tuple[int, int]:
        """(0, 0) for none."""
        if self.pattern == "none":
            return 0, 0
        n, m = self.pattern.split(":")
        return int(n), int(m)

    @property
    def among(self) -> str:
        """Among which weights they are compared; see `PruneSetting.scope`."""
        if self.pattern != "none":
            return "row"
        return _SCOPES.get(self.method, "matrix" if self.method == "sparsegpt" else self.scope)

    @property
    def spec(self) -> Pattern:
        """Which and how many weights of one matrix go."""
        n, m = self.n_of_m
        among: Scope = "row" if self.among == "row" else "matrix"
        return Pattern(self.sparsity, among, n, m)

    @property
    def setting(self) -> PruneSetting:
        """As it travels."""
        name = METHODS[self.method]
        parts = [name[0].upper() + name[1:], self.spec.label]
        if self.among == "row" and self.method in ("random", "magnitude") and self.pattern == "none":
            parts.append("each row")
        pattern = "" if self.pattern == "none" else self.pattern
        return PruneSetting(self.method, ", ".join(parts), self.spec.sparsity, pattern, self.among)

    @property
    def calibrated(self) -> bool:
        """Whether the method reads text."""
        return self.method in ("wanda", "sparsegpt", "rows")

    def make(self, name: str = "") -> Method:
        """The method of one matrix, which `name` tells from others: random masks are drawn anew for each.

        Raises:
            NotFound: the method cannot prune a matrix by itself.
        """
        return make_method(self.method, Settings(self.spec, seed=self.seed, matrix=name, damping=self.damping))


NAMES: tuple[MethodName, ...] = get_args(MethodName)
