"""peft's adapter_config.json: what of it is plain LoRA, and what is refused by its name.

Version 0.21 of peft is what is known here. A setting that is not known and not empty is refused: new settings of peft
have changed what is computed more than once (DoRA, aLoRA, QALoRA). Nothing in the file is run, imported or fetched.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from lab.errors import BadInput, ModelError, shown
from lab.lora.adapter import MAX_RANK, Adapter, LoraConfig
from lab.lora.regular import read_regular

CONFIG = "adapter_config.json"
MAX_CONFIG_BYTES = 1 << 20
MAX_PATTERNS = 1_000
MAX_TARGETS = 10_000

_HARMLESS = {
    "auto_mapping", "base_model_name_or_path", "exclude_modules", "fan_in_fan_out", "inference_mode", "layers_pattern",
    "layers_to_transform", "lora_alpha", "lora_dropout", "megatron_core", "peft_type", "peft_version",
    "qalora_group_size", "r", "rank_pattern", "alpha_pattern", "revision", "runtime_config", "target_modules",
    "use_rslora", "eva_config", "velora_config",
}  # fmt: skip
"""They choose which tensors there are, or how they were trained; the tensors say the rest."""

_REFUSED = {
    "use_dora": "is a DoRA adapter, which rescales the weights' columns and is no low-rank update",
    "modules_to_save": "brings whole trained modules besides (modules_to_save)",
    "lora_bias": "trained biases (lora_bias)",
    "trainable_token_indices": "trained embeddings of single tokens (trainable_token_indices)",
    "target_parameters": "adapts bare parameters (target_parameters), as of fused experts",
    "layer_replication": "repeats layers (layer_replication)",
    "alora_invocation_tokens": "is an activated LoRA, on from some token only (alora_invocation_tokens)",
    "use_qalora": "is a QALoRA adapter, whose inputs are pooled",
    "use_bdlora": "is a block-diagonal adapter (use_bdlora)",
    "loftq_config": "was made beside weights that LoftQ changed",
    "corda_config": "was made beside weights that CorDA changed",
    "lora_ga_config": "was made beside weights that LoRA-GA changed",
    "megatron_config": "is for Megatron's parallel modules",
    "ensure_weight_tying": "ties its head's update to the embedding (ensure_weight_tying)",
}
_CHANGES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Initializations that also change the base's weights: the factors alone are not the difference."""

_TASKS = (None, "CAUSAL_LM")
_LITERAL = re.compile(r"\^?(?:[A-Za-z0-9_.-]|\\\.){1,200}\$?")
"""A name or the end of one; its dots may be written as `\\.`, and it may be tied to the ends of the name."""
V = TypeVar("V")


@dataclass(frozen=True)
class PeftConfig:
    """What is taken from the file.

    Attributes:
        rank, alpha, rslora: the usual ones.
        targets: as listed; () where the file has a pattern instead.
        ranks, alphas: of modules whose name ends in a key, in the file's order.
        model_id: the base that it names, "" if none. Never fetched.
        transposed: its `fan_in_fan_out`.
    """

    rank: int
    alpha: float
    rslora: bool
    targets: tuple[str, ...]
    ranks: dict[str, int]
    alphas: dict[str, float]
    model_id: str
    transposed: bool

    def ranks_of(self, modules: Collection[str]) -> dict[str, int]:
        """r of each module.

        Raises:
            BadInput: a key of `rank_pattern` that fits none of them.
        """
        return _each("rank_pattern", self.ranks, modules, self.rank)

    def alphas_of(self, modules: Collection[str]) -> dict[str, float]:
        """Alpha of each module.

        Raises:
            BadInput: a key of `alpha_pattern` that fits none of them.
        """
        return {name: float(alpha) for name, alpha in _each("alpha_pattern", self.alphas, modules, self.alpha).items()}

    def unmet_targets(self, modules: Collection[str]) -> list[str]:
        """Those of `targets` that are neither a module's name nor the end of one."""
        most = max((target.count(".") for target in self.targets), default=0)
        ends = {end for module in modules for end in name_ends(module, most)}
        return [target for target in self.targets if target not in ends]


def read_peft_config(directory: Path) -> PeftConfig:
    """Read and check the config of an adapter's directory.

    Raises:
        ModelError: it is missing, too large, broken, or of another kind than plain LoRA; the kind is named.
    """
    name, path = folder_in_words(directory), directory / CONFIG
    try:
        text = read_regular(path, MAX_CONFIG_BYTES)
        if text is None:
            raise ModelError(f"The {CONFIG} of {name} has more than {MAX_CONFIG_BYTES >> 20} MiB.", remedy=_AGAIN)
        raw: Any = json.loads(text.decode("utf-8-sig"))  # some editors put a byte order mark before it
    except FileNotFoundError:
        raise ModelError(
            f"{name} is no adapter: it holds no {CONFIG}.", remedy="Point to a directory that peft or the lab wrote."
        ) from None
    except (OSError, ValueError, RecursionError):
        raise ModelError(f"The {CONFIG} of {name} is not readable JSON.", remedy=_AGAIN) from None
    if not isinstance(raw, dict):
        raise ModelError(f"The {CONFIG} of {name} is not an object.", remedy=_AGAIN)
    _refuse_kind(name, raw)
    try:
        return _config(raw)
    except BadInput as error:
        raise ModelError(f"The {CONFIG} of {name}: {error.message}", remedy=error.remedy or _AGAIN) from None


def folder_in_words(directory: Path) -> str:
    """A directory's name for a message."""
    return shown(directory.name) if directory.name else "the root directory"


def peft_config(adapter: Adapter) -> dict[str, Any]:
    """The config that peft reads for `adapter`. Targets are written so that they fit the adapter's modules alone.

    Raises:
        BadInput: more modules, or more ranks or alphas of their own, than would be read again.
    """
    config = adapter.config
    ranks = {name: a.shape[0] for name, (a, _) in adapter.tensors.items() if a.shape[0] != config.rank}
    alphas = {name: alpha for name, alpha in adapter.alphas.items() if alpha != config.alpha}
    counts = (
        ("modules", len(adapter.tensors), MAX_TARGETS),
        ("ranks of their own", len(ranks), MAX_PATTERNS),
        ("alphas of their own", len(alphas), MAX_PATTERNS),
    )
    for what, found, most in counts:
        if found > most:
            raise BadInput(f"The adapter has {found:,} {what}; at most {most:,} are kept.", remedy="Adapt fewer.")
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": adapter.base.model_id or None,
        "inference_mode": True,
        "r": config.rank,
        "lora_alpha": _plain(config.alpha),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": adapter.base.transposed,
        "use_rslora": config.rslora,
        "init_lora_weights": True,
        # Whole names: an ending such as "q_proj" might fit modules that this adapter leaves alone.
        "target_modules": list(adapter.tensors),
        "modules_to_save": None,
        "rank_pattern": {_anchored(name): rank for name, rank in ranks.items()},
        "alpha_pattern": {_anchored(name): _plain(alpha) for name, alpha in alphas.items()},
    }


_AGAIN = "Copy the adapter again."


def _refuse_kind(name: str, raw: dict[str, Any]) -> None:
    kind = raw.get("peft_type")
    if kind != "LORA":
        raise ModelError(f"{name} is of the type {shown(kind)}, no plain LoRA.", remedy=_CONVERT)
    if raw.get("task_type") not in _TASKS:
        raise ModelError(
            f"{name} is for the task {shown(raw['task_type'])}, not for a causal language model.",
            remedy="Use an adapter of the type CAUSAL_LM.",
        )
    for key, why in _REFUSED.items():
        if raw.get(key):
            raise ModelError(f"{name} {why}.", remedy=_CONVERT)
    if raw.get("bias", "none") != "none":
        raise ModelError(f"{name} trained biases (bias = {shown(raw['bias'])}).", remedy=_CONVERT)
    start = raw.get("init_lora_weights", True)
    if isinstance(start, str) and start.lower().startswith(_CHANGES_BASE):
        raise ModelError(f"{name} was made beside weights that {shown(start)} changed.", remedy=_CONVERT)
    known = {*_HARMLESS, *_REFUSED, "bias", "init_lora_weights", "task_type"}
    for key, value in raw.items():
        if key not in known and value:
            raise ModelError(
                f"{name} has the setting {shown(key)} = {shown(value)}, which is not known here.", remedy=_CONVERT
            )


_CONVERT = "Convert it to plain LoRA first, or merge it with peft and load the merged model."


def _config(raw: dict[str, Any]) -> PeftConfig:
    targets = _targets(raw.get("target_modules"))
    rank, alpha, rslora = raw.get("r", 8), raw.get("lora_alpha", 8), raw.get("use_rslora", False)
    transposed, base = raw.get("fan_in_fan_out", False), raw.get("base_model_name_or_path")
    for key, value in (("use_rslora", rslora), ("fan_in_fan_out", transposed)):
        if not isinstance(value, bool):
            raise BadInput(f"{key} is {shown(value)}, neither true nor false.")
    if base is not None and not isinstance(base, str):
        raise BadInput(f"base_model_name_or_path is {shown(base)}, no text.")
    _refuse_point("r", rank)
    LoraConfig(rank, alpha, targets or ("any",), rslora)
    ranks = _patterns("rank_pattern", raw.get("rank_pattern"))
    alphas = _patterns("alpha_pattern", raw.get("alpha_pattern"))
    for module, value in ranks.items():
        _refuse_point(f"rank_pattern of {shown(module)}", value)
        LoraConfig(value, 1, ("any",))
    for value in alphas.values():
        LoraConfig(1, value, ("any",))
    return PeftConfig(rank, float(alpha), rslora, targets, ranks, alphas, (base or "")[:200], transposed)


def _refuse_point(key: str, value: Any) -> None:
    """A whole number that is written with a point."""
    if isinstance(value, float) and value.is_integer() and 1 <= value <= MAX_RANK:
        raise BadInput(f"{key} is {value}; a rank has no point.", remedy=f"Write {value:.0f} in its place.")


def _targets(value: Any) -> tuple[str, ...]:
    if value is None or isinstance(value, str):
        return ()  # a pattern, or peft's own choice for the architecture: the tensors say which modules it fitted
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise BadInput(f"target_modules is {shown(value)}, no list of names.")
    if len(value) > MAX_TARGETS:
        raise BadInput(f"target_modules has {len(value):,} names; at most {MAX_TARGETS:,} are read.")
    return tuple(dict.fromkeys(value))


def _patterns(key: str, value: Any) -> dict[str, Any]:
    """A pattern's names. peft takes any regular expression; here only names, or their ends, are taken."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadInput(f"{key} is {shown(value)}, no object of names.")
    if len(value) > MAX_PATTERNS:
        raise BadInput(f"{key} has {len(value):,} names; at most {MAX_PATTERNS:,} are read.")
    for name in value:
        if not _LITERAL.fullmatch(name):
            raise BadInput(
                f"{key} has the pattern {shown(name)}; only module names are taken, no regular expressions.",
                remedy="Write a name of each module there; a backslash may stand before a dot only.",
            )
    return value


def _each(key: str, patterns: dict[str, V], modules: Collection[str], otherwise: V) -> dict[str, V]:
    """As peft does: of each module that of the first pattern that is its name or the end of it after a dot."""
    if not patterns:
        return dict.fromkeys(modules, otherwise)
    names = [pattern.removesuffix("$").replace("\\.", ".") for pattern in patterns]
    values = list(patterns.values())
    places: dict[str, int] = {}
    for place, name in enumerate(names):
        places.setdefault(name, place)
    most = max(name.count(".") for name in names)
    fitted: set[str] = set()
    found = {}
    for module in modules:
        fitting = [end for end in (f"^{module}", *name_ends(module, most)) if end in places]
        fitted.update(fitting)
        found[module] = values[min(places[end] for end in fitting)] if fitting else otherwise
    for pattern, name in zip(patterns, names, strict=True):
        if name not in fitted:
            raise BadInput(f"{key} has {shown(pattern)}, which fits none of its modules.", remedy="Take it out.")
    return found


def name_ends(name: str, dots: int) -> Iterator[str]:
    """The ends of a module's name that begin at one of its parts, the shortest first, with at most so many dots."""
    start = len(name)
    for _ in range(dots + 1):
        start = name.rfind(".", 0, start)
        yield name[start + 1 :]
        if start < 0:
            return


def _anchored(name: str) -> str:
    return f"^{name}"


def _plain(number: float) -> int | float:
    return int(number) if math.isfinite(number) and number == int(number) else number
