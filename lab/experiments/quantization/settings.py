"""From parameters to a method with its settings, and to the words for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lab.errors import BadInput
from lab.events.quantization import Setting
from lab.experiments.quantization.choices import (
    FORMATS,
    GRIDDED,
    GROUP_SIZES,
    KINDS,
    METHODS,
    REST,
    KindName,
    MethodName,
)
from lab.experiments.quantization.mixed import DENSE
from lab.experiments.quantization.params import QuantizationParams
from lab.quantization.clipping import Clip
from lab.quantization.grid import Grid, Share

_CLIPS = {"least_weight_error": "weight_error", "least_output_error": "output_error"}


@dataclass(frozen=True)
class Scheme:
    """One way to quantize: what a method is built from.

    Attributes:
        share: as in the parameters: "64", "128+rest", "row", "tensor".
    """

    method: MethodName
    params: QuantizationParams
    bits: int = 4
    kind: KindName = "absmax"
    share: str = "64"

    @classmethod
    def of(cls, params: QuantizationParams) -> Scheme:
        """The one that the parameters ask for."""
        bits = FORMATS.get(params.method, {"nf4": 4, "llm_int8": 8}.get(params.method, params.bits))
        return cls(params.method, params, bits, params.kind, params.group_size)

    @property
    def gridded(self) -> bool:
        """Whether it is on an affine grid."""
        return self.method in GRIDDED

    @property
    def grid(self) -> Grid:
        """Its levels and groups."""
        return Grid(
            bits=self.bits,
            kind=self.kind,
            share=share_of(self.share),
            ragged=self.share.endswith(REST),
            scale_format=self.params.scale_format,
        )

    @property
    def clip(self) -> Clip:
        """How much of each range is covered; of round to nearest alone."""
        how, p = self.params.clip, self.params
        if self.method != "nearest" or how == "none":
            return Clip.none
        if how == "ratio":
            return Clip("ratio", p.clip_ratio)
        if how == "percentile":
            return Clip("percentile", p.clip_percentile)
        return Clip("weight_error" if how == "least_weight_error" else "output_error")

    @property
    def nearest(self) -> Scheme:
        """Round to nearest on the same grid, nothing clipped."""
        return replace(self, method="nearest", params=self.params.model_copy(update={"clip": "none"}))

    @property
    def setting(self) -> Setting:
        """Its words."""
        if not self.gridded:
            label = METHODS[self.method]
            if self.method == "nf4":
                label += ", blocks of 64" + (", double quantization" if self.params.double_quant else "")
            if self.method == "llm_int8":
                label += f", threshold {self.params.threshold:g}"
            return Setting(self.method, label, self.bits, "", "")
        parts = [METHODS[self.method], f"{self.bits} bits", share_words(self.share)]
        if self.kind != "absmax":
            parts.append(KINDS[self.kind])
        if self.method == "nearest" and self.params.clip != "none":
            parts.append(f"clipped ({_clip_words(self.params)})")
        if self.params.layer_bits and self.params.task != "layer":  # which studies matrices at the bits asked for
            parts.append("some layers otherwise")
        if self.method == "gptq" and not self.params.act_order:
            parts.append("columns in order")
        return Setting(self.method, ", ".join(parts), self.bits, self.kind, self.share)

    def bits_of(self, layer: int) -> int:
        """Of a layer: its own where mixed precision gives it some."""
        return self.params.bits_of_layer.get(layer, self.bits) if self.gridded else self.bits

    def at(self, layer: int) -> Scheme | None:
        """The scheme of a layer; None where it stays dense."""
        bits = self.bits_of(layer)
        if bits == DENSE and self.gridded:
            return None
        return replace(self, bits=bits, params=self.params.model_copy(update={"layer_bits": ""}))

    def check(self, columns: int) -> None:
        """Refuse groups that do not fit rows of `columns` weights.

        Raises:
            BadInput: with the sizes that do.
        """
        if not self.gridded:
            return
        try:
            self.grid.group_size(columns)
        except BadInput as error:
            size = self.share.removesuffix(REST)
            smaller = (
                f"{size}{REST}" if size.isdigit() and int(size) < columns and f"{size}{REST}" in GROUP_SIZES else ""
            )
            by_name = f" or {smaller} for a smaller last group" if smaller else ""
            remedy = error.remedy.replace(", or allow a smaller last group (ragged)", by_name)
            raise BadInput(error.message, remedy=remedy) from None


def share_of(share: str) -> Share:
    """Of the parameters' word."""
    if share == "row":
        return "row"
    return "tensor" if share == "tensor" else int(share.removesuffix(REST))


def share_words(share: str) -> str:
    """For a label: "groups of 64"."""
    if share in ("row", "tensor"):
        return f"one scale a {share}"
    return f"groups of {share.removesuffix(REST)}" + (", the last smaller" if share.endswith(REST) else "")


def _clip_words(params: QuantizationParams) -> str:
    match params.clip:
        case "ratio":
            return f"{params.clip_ratio:g}"
        case "percentile":
            return f"{params.clip_percentile:g} %"
        case "least_weight_error":
            return "least weight error"
        case _:
            return "least output error"
