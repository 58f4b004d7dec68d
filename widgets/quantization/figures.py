"""The numbers of the page, each with its badge and its definition: one home for each."""

from __future__ import annotations

from typing import Any

from lab.events.quantization import Coverage
from widgets.format import format_bytes, split_bytes
from widgets.numbers import number, percent
from widgets.quantization.sentences import bits
from widgets.quantization.state import QuantizationState

MEASURED, DERIVED, SIMULATED = "MEASURED", "DERIVED", "SIMULATED"
PACKED = "codes are what memory holds"
NO_MEMORY = "dequantized weights run: no memory is saved"
Figure = dict[str, Any]


def error_figures(state: QuantizationState) -> list[Figure]:
    """The three errors of the run's own setting, means over its matrices, and what they do to the words."""
    own = [e for e in state.layer_errors if e.setting == state.setting]
    whole = next((e for e in state.model_errors if e.setting == state.setting), None)
    weight = sum(e.weight_error for e in own) / len(own) if own else whole.mean_weight_error if whole else None
    heldout = _mean([e.heldout_error for e in own])
    calibration = _mean([e.calibration_error for e in own])
    nearest = _mean([e.to_nearest for e in own])
    beside = [f"{percent(calibration)} on calibration text" if calibration is not None else ""]
    if nearest is not None:
        beside.append(f"{number(nearest, 2)} × round to nearest")
    divergence = whole.divergence if whole else None
    return [
        {
            "id": "weight_error",
            **_percent(weight, "weight error"),
            "badge": MEASURED,
            "note": "|W′ − W| / |W|",
            "title": "Frobenius norm of the errors of all weights, divided by that of the weights.",
        },
        {
            "id": "output_error",
            **_percent(heldout, "output error"),
            "badge": MEASURED,
            "note": ", ".join(b for b in beside if b),
            "title": "|X (W′ − W)ᵀ| / |X Wᵀ| over the inputs X that held-out text sends into the layer.",
        },
        {
            "id": "kl",
            **_scaled(divergence.kl if divergence else None, "nats, KL(dense ‖ quantized)"),
            "badge": MEASURED,
            "note": f"at most {number(divergence.worst_kl)} at a position" if divergence else "",
            "title": "Over the vocabulary, mean over the positions of the held-out text.",
        },
        {
            "id": "flips",
            "value": f"{divergence.flips:,}" if divergence else "",
            "unit": f"flips of {divergence.positions:,}" if divergence else "flips",
            "badge": MEASURED,
            "note": percent(divergence.flips / divergence.positions) if divergence and divergence.positions else "",
            "title": "Positions at which the most probable next token is another one than the dense model's.",
        },
        {
            "id": "perplexity",
            "value": _or_not(divergence.perplexity, 2) if divergence else "",
            "unit": "perplexity",
            "badge": MEASURED,
            "note": _beside(divergence.perplexity, divergence.dense_perplexity) if divergence else "",
            "title": "exp of the mean of −log p of the held-out text's own tokens; n/a if no token has one before it.",
        },
        {
            "id": "bits_per_byte",
            "value": _or_not(divergence.bits_per_byte) if divergence else "",
            "unit": "bits a byte of text",
            "badge": MEASURED,
            "note": f"{_or_not(divergence.dense_bits_per_byte)} dense" if divergence else "",
            "title": "The same as bits for each UTF-8 byte: comparable between tokenizers.",
        },
    ]


def _mean(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def _or_not(value: float | None, digits: int = 3) -> str:
    return "n/a" if value is None else f"{value:.{digits}f}" if 0.01 < value < 1000 else number(value)


def _beside(value: float | None, dense: float | None) -> str:
    return f"{_or_not(value)} against {_or_not(dense)} dense" if value is not None else f"{_or_not(dense)} dense"


def _percent(share: float | None, unit: str) -> Figure:
    """Value and unit of a share: the sign stands with the unit, so that the figure stays narrow."""
    value, _, sign = percent(share).partition(" ")
    return {"value": value, "unit": f"{sign} {unit}".strip()}


def _scaled(value: float | None, unit: str) -> Figure:
    """Value and unit of a small number: the power of ten stands with the unit."""
    mantissa, _, power = number(value).partition(" × ")
    return {"value": mantissa, "unit": f"× {power} {unit}" if power else unit}


def coverage_figures(coverage: Coverage | None) -> list[Figure]:
    """How much is quantized, at what cost, and what the whole model then takes."""
    if coverage is None:
        return []
    packed = coverage.truth == "packed"
    share = coverage.quantized_parameters / coverage.parameters if coverage.parameters else 0.0
    size, unit = split_bytes(coverage.model_bytes)
    return [
        {
            "id": "covered",
            **_percent(share, "quantized"),
            "badge": MEASURED if packed else SIMULATED,
            "note": f"of {coverage.parameters:,} parameters; {PACKED if packed else NO_MEMORY}",
            "title": "Parameters of quantized matrices, of all; tied ones once.",
        },
        {
            "id": "bits",
            "value": bits(coverage.bits_per_weight),
            "unit": "bits a weight",
            "badge": DERIVED,
            "note": f"where quantized; {bits(coverage.model_bits)} over all parameters",
            "title": "Codes, scales, zero points and all else, divided by the weights.",
        },
        {
            "id": "file",
            "value": size,
            "unit": f"{unit} as a file",
            "badge": DERIVED,
            "note": f"{format_bytes(coverage.dense_bytes)} dense",
            "title": "The whole model, what stays dense included.",
        },
    ]
