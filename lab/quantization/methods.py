"""The methods by name: one table for the command line, the experiment and the tests. No torch until one is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab.errors import BadInput, NotFound, shown
from lab.quantization.grid import Grid, Kind, ScaleFormat, Share

if TYPE_CHECKING:
    from lab.quantization.clipping import How
    from lab.quantization.method import Method


@dataclass(frozen=True)
class Settings:
    """What can be set of any method, as plain values; each method reads those that are named in its `uses`.

    Attributes:
        bits, kind, share, ragged, scale_format: see `Grid`. Of NF4, `share` is the block.
        clip, clip_amount: see `lab.quantization.clipping.Clip`.
        act_order, static_groups, damping: see `lab.quantization.gptq.Gptq`.
        awq_clip: whether AWQ searches a clipping range too.
        double_quant: see `lab.quantization.nf4.Nf4`.
    """

    bits: int = 4
    kind: Kind = "absmax"
    share: Share = 64
    ragged: bool = False
    scale_format: ScaleFormat = "bfloat16"
    clip: How = "none"
    clip_amount: float = 1.0
    act_order: bool = True
    static_groups: bool = True
    damping: float = 0.01
    awq_clip: bool = True
    double_quant: bool = False

    @property
    def grid(self) -> Grid:
        """The grid they describe.

        Raises:
            BadInput: see `Grid`.
        """
        return Grid(self.bits, self.kind, self.share, self.ragged, self.scale_format)


@dataclass(frozen=True)
class Entry:
    """One method of the table.

    Attributes:
        label: as on screen.
        summary: one sentence.
        uses: names of the settings that it reads.
        make: the method with its settings; raises BadInput for those outside their limits.
        calibrated: whether it needs calibration text in any setting.
    """

    label: str
    summary: str
    uses: tuple[str, ...]
    make: Callable[[Settings], Method]
    calibrated: bool


_GRID = ("bits", "kind", "share", "ragged", "scale_format")


def _nearest(given: Settings) -> Method:
    from lab.quantization.clipping import Clip
    from lab.quantization.nearest import Nearest

    return Nearest(given.grid, Clip(given.clip, given.clip_amount))


def _gptq(given: Settings) -> Method:
    from lab.quantization.gptq import Gptq

    return Gptq(given.grid, act_order=given.act_order, static_groups=given.static_groups, damping=given.damping)


def _awq(given: Settings) -> Method:
    from lab.quantization.awq import Awq

    return Awq(given.grid, clip=given.awq_clip)


def _nf4(given: Settings) -> Method:
    from lab.quantization.nf4 import Nf4

    if given.bits != 4:
        raise BadInput(f"NF4 has 4 bits, not {shown(given.bits)}.", remedy="Choose 4 bits, or another method.")
    if isinstance(given.share, str):
        raise BadInput(f"NF4 has blocks, not one scale a {given.share}.", remedy="Choose a group size such as 64.")
    return Nf4(given.share, given.double_quant)


METHODS: dict[str, Entry] = {
    "nearest": Entry(
        "Round to nearest", "Each weight becomes the closest level of its group.",
        (*_GRID, "clip", "clip_amount"), _nearest, calibrated=False,
    ),
    "gptq": Entry(
        "GPTQ", "Columns are rounded one after another, and those that are left make up for the error.",
        (*_GRID, "act_order", "static_groups", "damping"), _gptq, calibrated=True,
    ),
    "awq": Entry(
        "AWQ", "Channels with large inputs are scaled up before rounding, so that they lose less.",
        (*_GRID, "awq_clip"), _awq, calibrated=True,
    ),
    "nf4": Entry(
        "NF4", "Sixteen levels that lie where normally distributed weights lie.",
        ("bits", "share", "double_quant"), _nf4, calibrated=False,
    ),
}  # fmt: skip


def make_method(name: str, settings: Settings | None = None) -> Method:
    """The method `name` with its settings.

    Raises:
        NotFound: there is none of that name; all names are given.
        BadInput: a setting outside its limits.
    """
    if name not in METHODS:
        raise NotFound(f"There is no method {shown(name)}.", remedy=f"Choose one of {', '.join(METHODS)}.")
    return METHODS[name].make(settings or Settings())
