"""What can be set in the histograms' section: its form, presets, what a link may hold, and what a run would take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lab.events import ModelFacts
from lab.experiments.quantization.choices import FORMATS, GRIDDED, GROUP_SIZES, KINDS, METHODS, PROJECTIONS
from lab.experiments.quantization.params import missing_projections
from widgets.action_row import Action
from widgets.quantization.group_sizes import fitting
from widgets.quantization.sentences import method_words, share_words
from widgets.quantization.state import QuantizationState

QUICK = ("nearest", "nf4", *FORMATS)
"""Methods that answer while a slider moves; the others take a run."""
Values = dict[str, Any]
PRESETS: tuple[tuple[str, Values], ...] = (
    (
        "On a Q4_1 grid: float minimum, groups of 32",
        {"method": "nearest", "bits": 4, "kind": "float_minimum", "group_size": "32"},
    ),
    ("2 bits", {"method": "nearest", "bits": 2}),
    ("8 bits", {"method": "nearest", "bits": 8}),
)


def values_of(state: QuantizationState) -> Values:
    """The run's own values."""
    layers = state.param("layers", (0,))
    return {
        "layer": layers[0] if isinstance(layers, list | tuple) and layers else 0,
        "projection": str(state.param("projection", "q_proj")),
        "method": str(state.param("method", "nearest")),
        "bits": state.param("bits", 4),
        "kind": str(state.param("kind", "absmax")),
        "group_size": str(state.param("group_size", "64")),
        "scale_format": str(state.param("scale_format", "float16")),
    }


def schema_of(facts: ModelFacts | None, values: Values, columns: int | None) -> dict[str, Any]:
    """The form for a model.

    Args:
        columns: weights of a row of the matrix on screen, as far as they are known.
    """
    missing = missing_projections(facts) if facts else {}
    last = len(facts.layers) - 1 if facts and facts.layers else 29
    have = [name for name in PROJECTIONS if name not in missing]
    methods = list(dict.fromkeys((*QUICK, *METHODS, values["method"])))
    titles = [method_words(m) if m in QUICK else f"{method_words(m)} (takes a run)" for m in methods]
    sizes = list(dict.fromkeys((*fitting(columns or (facts.hidden if facts else 576)), values["group_size"])))
    counted = [size if size in ("row", "tensor") else f"{size} weights" for size in sizes]
    on_grid = {"method": list(GRIDDED)}
    return {
        "properties": {
            "layer": _field("integer", "Layer", "slider", minimum=0, maximum=last),
            "projection": _field("string", "Projection", "select", enum=have),
            "method": _field("string", "Method", "select", enum=methods, labels=titles),
            "bits": _field("integer", "Bits", "slider", minimum=2, maximum=8, unit="bits", when=on_grid),
            "group_size": _field("string", "Group size", "slider", enum=sizes, labels=counted, when=on_grid),
            "kind": _field("string", "Levels", "select", enum=list(KINDS), labels=list(KINDS.values()), when=on_grid),
            "log": _field("string", "Heights", "segmented", enum=["linear", "log"], labels=["counts", "logarithms"]),
        }
    }


def presets_of(run: Values) -> list[dict[str, Any]]:
    """The run's own values, then those worth trying."""
    first = {"question": "As the run", "params": dict(run)}
    return [first, *({"question": words, "params": params} for words, params in PRESETS)]


def from_link(found: Mapping[str, Any]) -> Values:
    """Of a link's values those that could have been chosen here."""
    return {name: found[name] for name, fits in _FITS.items() if name in found and fits(found[name])}


def to_run(values: Values, card: Mapping[str, Any]) -> Values:
    """The parameters of a run of the values on screen; all else is as in the run on screen."""
    layers = list(card.get("layers", ()))
    same = values["layer"] in layers and values["projection"] == card.get("projection")
    names = ("projection", "method", "bits", "kind", "group_size", "scale_format")
    asked = {name: values[name] for name in names}
    return {**card, **asked, "task": "layer", "layers": layers if same else [values["layer"]]}


def run_button(values: Values, run: Values) -> Action:
    """The button that starts it: "Run GPTQ at groups of 32, 4 bits"."""
    said = f"Run {method_words(values['method'])}"
    if values["method"] in GRIDDED:
        said += f" at {share_words(values['group_size'], short=True)}, {values['bits']} bits"
        said += f", {KINDS[values['kind']]}" if values["kind"] != run.get("kind") and values["kind"] in KINDS else ""
    if any(values[name] != run.get(name) for name in ("layer", "projection")):
        said += f" on layer {values['layer']} {values['projection']}"
    return Action("run", said, "A new run with these values; all else is as in this one")


def _field(kind: str, title: str, hint: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "title": title, "hint": hint, "group": "main", **more}


def _whole(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


_FITS: dict[str, Callable[[Any], bool]] = {
    "layer": lambda v: _whole(v, 0, 999),
    "projection": lambda v: v in PROJECTIONS,
    "method": lambda v: isinstance(v, str) and v in METHODS,
    "bits": lambda v: _whole(v, 2, 8),
    "kind": lambda v: isinstance(v, str) and v in KINDS,
    "group_size": lambda v: v in GROUP_SIZES,
}
