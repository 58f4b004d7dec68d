"""The head's file: bf16 safetensors with what it is and for which target, and the checks when it is read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from lab.decoding.drafts.eagle.head import EagleHead, attached
from lab.errors import ModelError, shown

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

FORMAT = "inference-lab eagle head 1"
PACKAGED = Path(__file__).parent / "weights" / "smollm2-135m-instruct.safetensors"
_ROWS = "rows"


@dataclass(frozen=True)
class HeadCard:
    """What a head's file says of itself.

    Attributes:
        target: id of the model that it drafts for.
        weight_hash: of that model's stored weights.
        recipe: how it was trained: steps, rates, tokens, seed.
        versions: of the libraries that trained it.
        figures: held-out figures; see `evaluate`.
    """

    target: str
    weight_hash: str
    recipe: dict[str, Any]
    versions: dict[str, str]
    figures: dict[str, Any]


def save_head(head: EagleHead, card: HeadCard, file: Path) -> None:
    """Write the head as bf16. The file is replaced in one step."""
    tensors = {name: weight.detach().to(torch.bfloat16).contiguous() for name, weight in head.named_parameters()}
    tensors[_ROWS] = head.rows.to(torch.int32)
    metadata = {
        "format": FORMAT,
        "target": card.target,
        "weight_hash": card.weight_hash,
        "recipe": json.dumps(card.recipe),
        "versions": json.dumps(card.versions),
        "figures": json.dumps(card.figures),
    }
    part = file.with_suffix(".part")
    save_file(tensors, part, metadata)
    part.replace(file)


def read_card(file: Path) -> HeadCard:
    """What the file says of itself.

    Raises:
        ModelError: it is not there, damaged, or no head.
    """
    try:
        with safe_open(str(file), "pt") as stored:
            said = stored.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise _unreadable(file, error) from None
    if said.get("format") != FORMAT:
        raise ModelError(
            f"{file.name} is no draft head of this version: its format is {shown(said.get('format', 'missing'))}, "
            f"expected {FORMAT!r}.",
            remedy="Train one: python -m lab.decoding.drafts.eagle.train --help",
        )
    try:
        recipe, versions, figures = (json.loads(said[key]) for key in ("recipe", "versions", "figures"))
        return HeadCard(said["target"], said["weight_hash"], recipe, versions, figures)
    except (KeyError, ValueError) as error:
        raise _unreadable(file, error) from None


def why_not(loaded: LoadedModel, file: Path = PACKAGED) -> str:
    """Empty if the head in `file` drafts for this model, else why not, naming both."""
    card = read_card(file)
    if loaded.facts.weight_hash != card.weight_hash:
        return (
            f"The draft head {file.name} was trained for {card.target} "
            f"(weights {card.weight_hash[:12]}); {loaded.facts.name} has the weights "
            f"{loaded.facts.weight_hash[:12] or 'unknown'}."
        )
    return ""


def load_head(loaded: LoadedModel, file: Path = PACKAGED) -> EagleHead:
    """The head for a loaded target, in the dtype and on the device that the target runs in.

    It shares the target's embedding; the target is not changed.

    Raises:
        ModelError: the file is not there, damaged or no head, or was trained for another model (both are named).
    """
    reason = why_not(loaded, file)
    if reason:
        raise ModelError(reason, remedy="Choose another draft, or train a head for this model.")
    try:
        with safe_open(str(file), "pt") as stored:
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError) as error:
        raise _unreadable(file, error) from None
    rows = tensors.pop(_ROWS, None)
    if rows is None or rows.dtype != torch.int32 or rows.dim() != 1 or not len(rows):
        raise _unreadable(file, "it names no rows of the output matrix")
    model: Any = loaded.model
    vocab = model.lm_head.weight.shape[0]
    rows = rows.long()
    if int(rows[0]) < 0 or int(rows[-1]) >= vocab or bool((rows.diff() <= 0).any()):
        raise _unreadable(file, f"its rows are not ascending token ids below {vocab}")
    head = attached(model, rows)
    parameters = dict(head.named_parameters())
    wrong = sorted(set(parameters) ^ set(tensors))
    wrong += [
        name
        for name, stored_tensor in tensors.items()
        if name in parameters
        and (stored_tensor.shape != parameters[name].shape or stored_tensor.dtype != torch.bfloat16)
    ]
    if wrong:
        raise _unreadable(file, f"{wrong[0]!r} is missing, unknown, of another shape or not bfloat16")
    if not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
        raise _unreadable(file, "it holds numbers that are not finite")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[name])
    head.requires_grad_(False)
    return head.eval()


def _unreadable(file: Path, why: object) -> ModelError:
    return ModelError(
        f"The draft head {file.name} cannot be used: {why}.", remedy="Restore the file, or train it again."
    )
