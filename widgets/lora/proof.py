"""The proof's own figure: how far merged and unmerged logits are apart."""

from __future__ import annotations

import math
from typing import Any

from widgets.format import format_number
from widgets.lora.state import LoraState
from widgets.numbers import number

_END = "_max_logit_difference"


def differences(state: LoraState) -> list[tuple[str, float]]:
    """For each adapter that the proof names: max |logit difference|, merged against unmerged."""
    detail = state.proof.detail if state.proof else {}
    return [
        (key.removesuffix(_END), value)
        for key in detail
        if key.endswith(_END) and _of_merge(key, detail) and (value := _float(detail.get(key))) is not None
    ]


def _of_merge(key: str, detail: dict[str, Any]) -> bool:
    return f"{key.removesuffix(_END)}_tolerance" in detail


def _float(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _beside(inside: bool, limit: float | None) -> str:
    where = f", {'within' if inside else 'above'} the limit {number(limit, 1)}" if limit is not None else ""
    return f"difference / largest |logit|{where}"


def proof_figures(state: LoraState) -> list[dict[str, Any]]:
    """The largest difference, the largest logit, and their ratio beside its limit, for the first adapter."""
    detail = state.proof.detail if state.proof else {}
    name, difference = next(iter(differences(state)), ("adapter", None))
    largest, limit = _float(detail.get(f"{name}_largest_logit")), _float(detail.get(f"{name}_tolerance"))
    places = _float(detail.get(f"{name}_places"))
    ratio = difference / largest if difference is not None and largest else None
    inside = ratio is not None and limit is not None and ratio <= limit
    return [
        {
            "id": "logit_difference",
            "value": number(difference, 2) if difference is not None else "",
            "unit": "",
            "badge": "MEASURED",
            "note": f"max |logit difference|, merged against unmerged{f', {places:,.0f} places' if places else ''}",
            "title": "The largest difference of any logit of the vocabulary, at any of the places.",
        },
        {
            "id": "largest_logit",
            "value": format_number(largest) if largest is not None else "",
            "unit": "largest |logit|",
            "badge": "MEASURED",
            "note": "what the difference is measured against",
            "title": "Over the same places.",
        },
        {
            "id": "relative_difference",
            "value": number(ratio, 2) if ratio is not None and math.isfinite(ratio) else "",
            "unit": "",
            "badge": "DERIVED",
            "note": _beside(inside, limit),
            "title": "Sums in another order are rounded differently; a wrong scale or a wrong matrix is far above it.",
        },
    ]
