"""The same study on another model: which ones are at hand, and what of the parameters cannot be the same there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lab.events import ModelFacts
from lab.experiments.quantization.choices import PROJECTIONS, why_not
from lab.experiments.quantization.params import missing_projections
from widgets.action_row import Action

MOST = 6
NONE_HERE = (
    "No model off a grid is on this machine yet: `lab models HuggingFaceTB/SmolLM2-135M-Instruct --fetch` gets one "
    "from the hub, and `lab up --model DIRECTORY` takes one of your own."
)
OFFER = "The same study on weights that lie on no known grid:"


def actions_of(models: Sequence[ModelFacts], params: Mapping[str, Any]) -> list[Action]:
    """A button for each model, `MOST` of them; what changes there is its title."""
    names = [m.name for m in models]
    labels = [f"Run on {m.name}" if names.count(m.name) == 1 else f"Run on {m.name}, {m.id}" for m in models]
    return [
        Action(m.id, label, "; ".join(("the same parameters", *fitted(params, m)[1])))
        for m, label in zip(models[:MOST], labels, strict=False)
    ]


def fitted(params: Mapping[str, Any], facts: ModelFacts) -> tuple[dict[str, Any], list[str]]:
    """The parameters as a model can have them, and in words what is another there."""
    made, said = dict(params), []
    count = len(facts.layers)
    layers = [int(layer) for layer in params.get("layers", ())]
    kept = sorted({min(layer, count - 1) for layer in layers}) if count else layers
    if kept != layers:
        made["layers"] = kept
        said.append(f"layers {', '.join(map(str, kept))}: it has {count}")
    missing = missing_projections(facts)
    if params.get("projection") in missing:
        made["projection"] = next(name for name in PROJECTIONS if name not in missing)
        said.append(f"projection {made['projection']}: it has no {params['projection']}")
    size = str(params.get("group_size", "row"))
    if why_not(size, facts.hidden):
        made["group_size"] = next((s for s in ("64", "32", "16") if not why_not(s, facts.hidden)), "row")
        said.append(f"group size {made['group_size']}: its rows have {facts.hidden} weights")
    return made, said
