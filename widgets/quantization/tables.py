"""The data behind the pictures of `quantization`, as rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lab.events.evaluation import Divergence
from lab.events.quantization import ErrorHistogram
from widgets.experiment import Table
from widgets.quantization.sentences import shares_of
from widgets.quantization.state import QuantizationState


def rounded(value: float | None, digits: int = 6) -> float | None:
    """So many significant digits; None where there is no finite number."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.{digits}g}")


def histogram_table(histograms: Sequence[ErrorHistogram]) -> Table:
    """Every histogram's figures; the counts themselves are in the events."""
    head = ["layer", "projection", "setting", "chosen", "largest error", "largest s / 2", "mean square", "SNR dB"]
    head += ["bits a weight", "scales", "clipped", "exact share", "ms", "notes"]
    rows: list[list[Any]] = [
        [
            h.layer,
            h.projection,
            h.setting.label,
            h.chosen,
            rounded(h.max_error),
            rounded(h.half_step),
            rounded(h.mean_square),
            rounded(h.snr_db, 4) if math.isfinite(h.snr_db) else "infinite",
            rounded(h.bits_per_weight),
            h.groups,
            h.clipped,
            rounded(h.exact),
            rounded(h.ms, 3),
            " ".join(h.notes),
        ]
        for h in histograms
    ]
    return Table("error_histograms", head, rows)


def layer_table(state: QuantizationState) -> Table:
    """The errors of each matrix at each setting."""
    head = ["layer", "projection", "setting", "weight error", "output error, calibration", "output error, held-out"]
    head += ["of round to nearest", "bits a weight", "ms", "notes"]
    rows: list[list[Any]] = [
        [
            e.layer,
            e.projection,
            e.setting.label,
            rounded(e.weight_error),
            rounded(e.calibration_error),
            rounded(e.heldout_error),
            rounded(e.to_nearest, 4),
            rounded(e.bits_per_weight),
            rounded(e.ms, 3),
            " ".join(e.notes),
        ]
        for e in state.layer_errors
    ]
    return Table("layer_errors", head, rows)


def model_table(state: QuantizationState) -> Table:
    """What each setting does to the whole model."""
    head = [
        "setting",
        "quantized",
        "weight error",
        "output error",
        "KL(dense ‖ quantized), nats",
        "worst KL, nats",
        "flips",
        "positions",
    ]
    head += ["perplexity", "dense", "bits a byte", "dense", "bits a weight", "activations", "cache", "text"]
    rows: list[list[Any]] = [
        [
            e.setting.label,
            e.scope,
            rounded(e.mean_weight_error),
            rounded(e.mean_output_error),
            *divergence_cells(e.divergence),
            rounded(e.bits_per_weight),
            e.activations,
            e.cache,
            e.divergence.text_hash,
        ]
        for e in state.model_errors
    ]
    return Table("model_errors", head, rows)


def divergence_cells(divergence: Divergence) -> list[Any]:
    """KL, worst KL, flips, positions, perplexity and bits a byte, each with the dense model's; n/a: there is none."""

    def known(value: float | None) -> float | str | None:
        return "n/a" if value is None else rounded(value)

    return [
        rounded(divergence.kl),
        rounded(divergence.worst_kl),
        divergence.flips,
        divergence.positions,
        known(divergence.perplexity),
        known(divergence.dense_perplexity),
        known(divergence.bits_per_byte),
        known(divergence.dense_bits_per_byte),
    ]


def levels_table(state: QuantizationState) -> Table:
    """Every level and the weights that it takes."""
    rows = [
        [s.layer, s.projection, s.label, i, rounded(level), used, rounded(share)]
        for s in state.levels
        for i, (level, used, share) in enumerate(zip(s.levels, s.used, shares_of(s.used), strict=False))
    ]
    return Table(
        "levels",
        ["layer", "projection", "levels of", "index", "level / largest |w|", "weights", "share of weights, 0 to 1"],
        rows,
    )


def coverage_table(state: QuantizationState) -> Table:
    """Every kind of matrix and what became of it."""
    rows = [
        [r.name, r.modules, r.parameters, r.quantized, r.reason, r.bytes]
        for r in (state.coverage.rows if state.coverage else ())
    ]
    return Table("coverage", ["what", "modules", "parameters", "quantized", "why not", "size, bytes"], rows)


def format_table(state: QuantizationState) -> Table:
    """Number formats: what they can hold, and their error on the matrix."""
    head = ["layer", "projection", "format", "bits", "largest", "smallest normal", "smallest", "epsilon"]
    head += ["weight error", "beyond the largest", "scaled to fit"]
    rows = [
        [
            t.layer,
            t.projection,
            f.name,
            f.bits,
            rounded(f.largest),
            rounded(f.smallest_normal),
            rounded(f.smallest),
            rounded(f.epsilon),
            rounded(f.weight_error),
            f.beyond,
            f.scaled,
        ]
        for t in state.formats
        for f in t.formats
    ]
    return Table("number_formats", head, rows)
