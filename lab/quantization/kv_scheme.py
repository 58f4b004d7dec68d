"""How a key/value cache is quantized, and the bytes that it then takes. No torch here.

After KIVI (Liu et al., 2024): keys by channel (a scale for each channel of a key/value head over some neighbouring
positions, since a few channels are large at every position), values by token (scales within one vector). The newest
positions stay dense. Codes are made once, of whole groups of positions, and never made again from what codes say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from lab.errors import BadInput, shown
from lab.quantization.grid import SCALE_BITS, ScaleFormat

Along = Literal["channel", "token"]
"""Who shares a scale: the same channel of neighbouring positions, or neighbouring channels of one position."""

BITS = (2, 4, 8)
LEAST_GROUP, MOST_GROUP = 8, 256


@dataclass(frozen=True)
class KvScheme:
    """Settings of a quantized cache.

    Attributes:
        bits: of a code, 2, 4 or 8.
        group: numbers that share a scale and a minimum, a multiple of 8 from 8 to 256: positions for "channel",
            channels for "token" (of a head_dim below it, all of a vector). Positions leave the window in groups.
        window: so many newest positions are always dense.
        keys, values: see `Along`.
        scale_format: of scales and minima.

    Raises:
        BadInput: outside these limits.
    """

    bits: int = 4
    group: int = 32
    window: int = 128
    keys: Along = "channel"
    values: Along = "token"
    scale_format: ScaleFormat = "float16"

    def __post_init__(self) -> None:
        if isinstance(self.bits, bool) or self.bits not in BITS:
            raise BadInput(
                f"A key/value cache is not quantized to {shown(self.bits)} bits.", remedy="Choose 2, 4 or 8 bits."
            )
        group = self.group
        if isinstance(group, bool) or not isinstance(group, int) or not LEAST_GROUP <= group <= MOST_GROUP or group % 8:
            raise BadInput(
                f"Groups of a key/value cache have {LEAST_GROUP} to {MOST_GROUP} numbers, a multiple of 8, not "
                f"{shown(group)}.",
                remedy="Choose 32 or 64.",
            )
        if isinstance(self.window, bool) or not isinstance(self.window, int) or self.window < 0:
            raise BadInput(
                f"The dense window has 0 positions or more, not {shown(self.window)}.", remedy="Choose 0, 32 or 128."
            )
        for along in (self.keys, self.values):
            if along not in get_args(Along):
                raise BadInput(f"Nothing is quantized along {shown(along)}.", remedy="Choose 'channel' or 'token'.")
        if self.scale_format not in SCALE_BITS:
            raise BadInput(
                f"There is no scale format {shown(self.scale_format)}.",
                remedy=f"Choose one of {', '.join(SCALE_BITS)}.",
            )

    def quantized_positions(self, length: int, already: int = 0) -> int:
        """How many of `length` positions have codes: whole groups, the newest `window` never among them.

        Args:
            already: positions that have codes; they keep them.
        """
        return max(already, (length - self.window) // self.group * self.group)

    def group_of(self, along: Along, head_dim: int) -> int:
        """Numbers that share a scale.

        Raises:
            BadInput: the group does not divide the head_dim.
        """
        if along == "channel":
            return self.group
        size = min(self.group, head_dim)
        if head_dim % size:
            fitting = [n for n in range(LEAST_GROUP, MOST_GROUP + 1, 8) if head_dim % n == 0 or n >= head_dim]
            raise BadInput(
                f"Groups of {size} do not divide key/value vectors of {head_dim} numbers.",
                remedy=f"Choose {' or '.join(map(str, fitting[:4]))}." if fitting else "Quantize along channels.",
            )
        return size

    def code_bytes(self, positions: int, head_dim: int) -> int:
        """Of the codes of `positions` keys or values of one head."""
        return positions * head_dim * self.bits // 8

    def scale_bytes(self, along: Along, positions: int, head_dim: int) -> int:
        """Of the scales and minima of `positions` keys or values of one head."""
        return positions * head_dim // self.group_of(along, head_dim) * 2 * SCALE_BITS[self.scale_format] // 8

    def layer_bytes(self, length: int, kv_heads: int, head_dim: int, item_bytes: int, batch: int = 1) -> KvBytes:
        """What one layer's cache takes by formula once `length` positions are in it and nothing more is due.

        Args:
            item_bytes: of one dense number.
        """
        coded = self.quantized_positions(length)
        heads = kv_heads * batch
        scales = sum(self.scale_bytes(along, coded, head_dim) for along in (self.keys, self.values))
        return KvBytes(
            codes=2 * heads * self.code_bytes(coded, head_dim),
            scales=heads * scales,
            dense=2 * heads * (length - coded) * head_dim * item_bytes,
            plain=2 * heads * length * head_dim * item_bytes,
        )


@dataclass(frozen=True)
class KvBytes:
    """Bytes of a cache or a part of one.

    Attributes:
        codes: of codes.
        scales: of scales and minima.
        dense: of the positions kept dense.
        plain: of the same positions in a cache that is not quantized.
    """

    codes: int = 0
    scales: int = 0
    dense: int = 0
    plain: int = 0

    @property
    def total(self) -> int:
        """What is held."""
        return self.codes + self.scales + self.dense

    def __add__(self, other: KvBytes) -> KvBytes:
        return KvBytes(
            self.codes + other.codes, self.scales + other.scales, self.dense + other.dense, self.plain + other.plain
        )
