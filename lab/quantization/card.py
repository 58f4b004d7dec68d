"""What lies beside quantized weights: which model, how it was quantized, on which text, and what came of it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from lab.errors import ModelError
from lab.events import LayerFacts, ModelFacts

CARD, WEIGHTS = "lab-quantized.json", "quantized.safetensors"
FORMAT = 1
MAX_CARD_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Card:
    """The card of a quantized model.

    Attributes:
        model: facts of the dense model, its weight hash among them.
        method: its name; `settings` are those that it reads.
        calibration: text hash, source, tokens and way; empty where none was read.
        figures: measured, with the hash of the held-out text; null where there is nothing to tell ("n/a") or the
            number is not finite. `bits_per_weight` counts codes as packed bits, `file_bits_per_weight` as this file
            stores them, two to a byte or one.
        modules: for each quantized module how its tensors are read; see `lab.quantization.packed_file`.
        skipped: parameters that stayed dense, with reasons.
        file_sha256: of the weight file, hex.
    """

    format: int = FORMAT
    model: ModelFacts
    method: str
    settings: dict[str, Any]
    calibration: dict[str, Any]
    figures: dict[str, Any]
    modules: dict[str, dict[str, Any]]
    skipped: dict[str, str]
    file_sha256: str
    versions: dict[str, str] = field(default_factory=dict)


def finite(value: Any) -> Any:
    """The same with null for numbers that are not finite: JSON has none."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_card(directory: Path, card: Card) -> None:
    """Write `card` into `directory`."""
    body = json.dumps(asdict(card), indent=1, ensure_ascii=False, allow_nan=False)
    (directory / CARD).write_text(body, encoding="utf-8")


def is_quantized(directory: Path) -> bool:
    """Whether a directory was written by `lab quantize`."""
    return (directory / CARD).is_file()


def facts_of_quantized(directory: Path) -> ModelFacts:
    """The facts of a quantized directory as a model of its own. No weights are read.

    Raises:
        ModelError: see `read_card`.
    """
    card, file = read_card(directory), directory / WEIGHTS
    if not file.is_file():
        raise ModelError(f"{directory.name} has a card but no {WEIGHTS}.", remedy="Copy the directory again.")
    return replace(
        card.model,
        id=str(directory),
        name=f"{card.model.name} ({card.method})",
        source="directory",
        weight_hash=card.file_sha256,
        weight_bytes=file.stat().st_size,
        grid=None,
    )


def read_card(directory: Path) -> Card:
    """The card of a quantized model.

    Raises:
        ModelError: there is none, or it is damaged or of a newer version.
    """
    remedy = "Quantize the model again: lab quantize MODEL --out DIR."
    try:
        with (directory / CARD).open("rb") as file:
            text = file.read(MAX_CARD_BYTES + 1)
        body: Any = json.loads(text) if len(text) <= MAX_CARD_BYTES else None
        if not isinstance(body, dict):
            raise ValueError
        if body.get("format") != FORMAT:
            raise ModelError(
                f"The card of {directory.name} has format {str(body.get('format'))[:20]}; this lab reads {FORMAT}.",
                remedy="Update the lab, or quantize the model again.",
            )
        layers = tuple(LayerFacts(**layer) for layer in body["model"].pop("layers"))
        facts = ModelFacts(**{**body.pop("model"), "layers": layers})
        card = Card(**{**body, "model": facts})
        if not all(
            isinstance(part, dict) for part in (card.modules, card.settings, card.figures, *card.modules.values())
        ):
            raise ValueError
        return card
    except FileNotFoundError:
        raise ModelError(f"{directory.name} holds no quantized model: it has no {CARD}.", remedy=remedy) from None
    except OSError as error:
        raise ModelError(f"The card of {directory.name} cannot be read: {error.strerror}.", remedy=remedy) from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ModelError(f"The card of {directory.name} is damaged.", remedy=remedy) from None
