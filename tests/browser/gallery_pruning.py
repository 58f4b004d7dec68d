"""The views that the `pruning` page alone has, drawn from simulated runs."""

from __future__ import annotations

from pages import drawn, fold_all
from pruning_answers import EXAMPLE
from pruning_sim import mask
from pruning_sim_runs import words_run

from widgets.pruning.coverage_section import CoverageSection
from widgets.pruning.example_section import STEPS, cells, checked, told
from widgets.pruning.example_view import ExampleView
from widgets.pruning.mask_bits import MaskBits, check_nm
from widgets.pruning.mask_view import MaskView
from widgets.pruning.state import PruningState
from widgets.view import View

SHAPE = (96, 64)


def mask_bits(method: str, shape: tuple[int, int] = SHAPE, *, pattern: str = "") -> MaskBits:
    """A simulated mask."""
    found = MaskBits.of(mask(method, shape=shape, pattern=pattern))
    assert found is not None
    return found


def pruning_views() -> dict[str, View]:
    """A whole matrix alone, a small one beside another, the worked example, the bar of parameters."""
    alone, beside = MaskView(label="Mask of down_proj", picture="mask"), MaskView(label="Two masks", picture="masks")
    alone.show(mask_bits("magnitude", (1536, 576)))
    first, second = mask_bits("magnitude"), mask_bits("wanda")
    beside.show(first, second, groups=check_nm(first, 2, 4).marked[:3])
    matrix = ExampleView(label="The worked example", picture="worked example")
    answer = checked(EXAMPLE)
    matrix.show(cells(answer, len(STEPS) - 1), told(answer, len(STEPS) - 1))
    coverage = drawn(CoverageSection, fold_all(PruningState, words_run()))
    return {"mask": alone, "masks_beside": beside, "small_matrix": matrix, "pruned_coverage": coverage._bar}
