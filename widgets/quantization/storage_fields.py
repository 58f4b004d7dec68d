"""The storage calculator's form: a known model, a number of weights, a pasted config, or sizes by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.experiments.quantization.choices import KINDS
from lab.models.architecture import MAX_LAYERS, MAX_VOCAB, MAX_WIDTH
from lab.quantization.given_config import MOST_CHARACTERS

MODELS = {
    "this": "this one",
    "llama-2-7b": "Llama 2 7B",
    "count": "any number of weights",
    "config": "a config.json",
    "sizes": "sizes by hand",
}
SIZES = ("hidden", "intermediate", "layers", "heads", "kv_heads", "head_dim", "vocab")
DEFAULTS: dict[str, Any] = {
    "model": "count",
    "billions": 7.0,
    "config": "",
    "hidden": 4096,
    "intermediate": 11008,
    "layers": 32,
    "heads": 32,
    "kv_heads": 32,
    "head_dim": 0,
    "vocab": 32000,
    "tied": False,
    "bits": 4,
    "group_size": "128",
    "kind": "absmax",
    "scale_format": "float16",
    "dense_bits": "16",
}
MOST_IN_LINK = 2_000
"""Characters of a config that a link holds."""
PASTE = "Paste the text of a config.json: its numbers are counted here, and no file is opened."


def question_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """What is asked of the backend for these values: what does not matter for the model is left out."""
    asked: dict[str, Any] = {
        "model": values["model"],
        "bits": int(values["bits"]),
        "group_size": int(values["group_size"]),
        "kind": values["kind"],
        "scale_format": values["scale_format"],
        "dense_bits": int(values["dense_bits"]),
    }
    match values["model"]:
        case "count":
            asked["weights"] = round(values["billions"] * 1e9)
        case "config":
            asked["config"] = values["config"]
        case "sizes":
            asked |= {name: values[name] for name in (*SIZES, "tied")}
    return asked


def from_link(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Of a link's settings those values that are within the limits."""
    found = {}
    for name, field in SCHEMA["properties"].items():
        value = settings.get(f"size_{name}")
        if "enum" in field:
            fits = isinstance(value, str) and value in field["enum"]
        elif field["type"] == "boolean":
            fits = isinstance(value, bool)
        elif field["type"] == "string":
            fits = isinstance(value, str) and len(value) <= field["maxLength"]
        else:
            number_like = isinstance(value, int | float) and not isinstance(value, bool)
            fits = number_like and field["minimum"] <= value <= field["maximum"]
            fits = fits and (field["type"] == "number" or isinstance(value, int))
        if fits:
            found[name] = value
    return found


def _choose(title: str, values: dict[str, str], default: str, hint: str = "segmented") -> dict[str, Any]:
    return {
        "type": "string",
        "title": title,
        "enum": list(values),
        "labels": list(values.values()),
        "default": default,
        "hint": hint,
        "group": "main",
    }


def _slide(title: str, kind: str, low: float, high: float, default: float, **more: Any) -> dict[str, Any]:
    field = {"type": kind, "title": title, "minimum": low, "maximum": high, "default": default, "hint": "slider"}
    return {**field, "group": "main", **more}


def _size(name: str, title: str, limit: int, description: str, least: int = 1) -> dict[str, Any]:
    field = _slide(title, "integer", least, limit, DEFAULTS[name], when={"model": "sizes"})
    return {**field, "hint": "number", "description": description}


SCHEMA: dict[str, Any] = {
    "properties": {
        "model": _choose("Model", MODELS, "count", "select"),
        "billions": _slide(
            "Weights, billions", "number", 0.1, 100.0, 7.0, step=0.1, unit="billion", when={"model": "count"}
        ),
        "config": {
            "type": "string",
            "title": "The text of a config.json",
            "description": PASTE,
            "default": "",
            "maxLength": MOST_CHARACTERS,
            "hint": "text",
            "group": "main",
            "when": {"model": "config"},
        },
        "hidden": _size("hidden", "Hidden size", MAX_WIDTH, "hidden_size: width of the stream."),
        "intermediate": _size("intermediate", "Intermediate size", MAX_WIDTH, "intermediate_size: width of the MLP."),
        "layers": _size("layers", "Layers", MAX_LAYERS, "num_hidden_layers."),
        "heads": _size("heads", "Heads", MAX_WIDTH, "num_attention_heads: query heads of a layer."),
        "kv_heads": _size("kv_heads", "Key/value heads", MAX_WIDTH, "num_key_value_heads; they divide the heads."),
        "head_dim": _size("head_dim", "Width of a head", MAX_WIDTH, "head_dim; 0: hidden size / heads.", 0),
        "vocab": _size("vocab", "Vocabulary", MAX_VOCAB, "vocab_size: tokens."),
        "tied": {
            "type": "boolean",
            "title": "The head is the embedding (tied)",
            "description": "tie_word_embeddings: the matrix is there once.",
            "default": False,
            "hint": "toggle",
            "group": "main",
            "when": {"model": "sizes"},
        },
        "bits": _slide("Bits of a code", "integer", 2, 8, 4, unit="bits"),
        "group_size": _choose(
            "Group size", {s: f"{s} weights" for s in ("16", "32", "64", "128", "256", "512")}, "128", "slider"
        ),
        "kind": _choose("Levels", {str(k): v for k, v in KINDS.items()}, "absmax", "select")
        | {"when": {"model": [name for name in MODELS if name != "count"]}},
        "scale_format": _choose("Scales", {"float16": "2 bytes", "float32": "4 bytes"}, "float16"),
        "dense_bits": _choose("Dense", {"8": "8 bits", "16": "16 bits", "32": "32 bits"}, "16"),
    }
}
