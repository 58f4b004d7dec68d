"""What a method makes of one weight matrix: codes, scales, zero points, and the bits that all of it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Storage:
    """Bits of one quantized matrix, everything counted.

    Attributes:
        weights: weights of the matrix.
        code_bits: of all codes.
        scale_bits: of all scales, with what quantized scales need themselves.
        zero_bits: of all zero points or minima.
        other_bits: channel scales that are not folded away, group indices of reordered columns, values kept dense.
    """

    weights: int
    code_bits: int
    scale_bits: int = 0
    zero_bits: int = 0
    other_bits: int = 0

    @property
    def bits(self) -> int:
        """All of them."""
        return self.code_bits + self.scale_bits + self.zero_bits + self.other_bits

    @property
    def bytes(self) -> int:
        """Whole bytes that hold them."""
        return -(-self.bits // 8)

    @property
    def bits_per_weight(self) -> float:
        """With all overhead."""
        return self.bits / self.weights


class Quantized(Protocol):
    """The result of a method.

    Attributes:
        storage: bits, everything counted.
        notes: what a reader must know of this matrix: a fallback taken, damping used, groups that were kept at zero.
    """

    @property
    def storage(self) -> Storage: ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    def tensors(self) -> dict[str, Tensor]:
        """What a file holds, by name: "codes" and the rest. Codes are integers, one a weight, (out, in)."""
        ...

    def dequantize(self) -> Tensor:
        """(out, in) fp32: the weights as they now count."""
        ...
