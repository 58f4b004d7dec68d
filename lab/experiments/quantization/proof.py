"""The verdict on a run: its weights computed again, its model untouched, its words those of `generate()`."""

from __future__ import annotations

from lab.experiments.compared import finding
from lab.experiments.compared.finding import Counted, Finding
from lab.experiments.compared.progress import Made
from lab.experiments.quantization.checked import Checked
from lab.experiments.quantization.setup import Setup

WEIGHTS = "the weights that run are the values of their codes, computed again in plain Python"


def proving(setup: Setup, others: tuple[Finding, ...] = ()) -> Made[None]:
    """Yield the proof."""
    mistake = setup.params.break_run != "nothing"
    yield from finding.proving(setup.loaded, setup.before, counted(setup.checked), others, mistake=mistake)


def counted(checked: Checked) -> Counted:
    """Groups that were computed again."""
    return Counted(
        claim=WEIGHTS,
        compared=checked.groups,
        matched=checked.right,
        unit="groups of weights" if "group" in checked.seen or not checked.seen else "weights",
        words=checked.words,
        detail={
            "groups": checked.groups,
            "matrices": checked.matrices,
            "dtype": str(checked.dtype).removeprefix("torch."),
            "rounding": checked.rounding,
        },
    )
