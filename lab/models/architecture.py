"""What a config says of a model's layers: heads, windows, ties. The one place that knows config names."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.errors import ModelError
from lab.events import LayerFacts

if TYPE_CHECKING:
    from transformers import PretrainedConfig

MAX_LAYERS, MAX_WIDTH, MAX_VOCAB, MAX_NAME = 2_000, 1_000_000, 20_000_000, 120
_OURS = ("_attn_implementation", "attn_implementation", "_experts_implementation", "experts_implementation")
"""Not believed: the lab chooses the kernels, and a config may name some on the hub, with code of their own."""
_UNKNOWN_REMEDY = "Use a causal language model whose code is part of transformers."


@dataclass(frozen=True)
class Shape:
    """A model's shape as its config gives it. `kv_heads` is the most common over the layers."""

    architecture: str
    layers: tuple[LayerFacts, ...]
    hidden: int
    query_heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int
    tied: bool


def read_config(directory: Path) -> PretrainedConfig:
    """The config of a model directory, if it is one that the lab can run.

    Raises:
        ModelError: no or broken config.json, an unknown architecture, one that needs code from the
            repository, an encoder-decoder or another model that is no causal language model.
    """
    path = directory / "config.json"
    name = directory.name or "the root directory"
    try:
        raw: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(
            f"{name} is not a model directory: it holds no config.json.",
            remedy="Point to a directory that save_pretrained() wrote, or to a GGUF file.",
        ) from None
    except (OSError, ValueError, RecursionError):
        raise ModelError(f"The config.json of {name} is not readable JSON.", remedy="Copy the model again.") from None
    if not isinstance(raw, dict):
        raise ModelError(f"The config.json of {name} is not an object.", remedy="Copy the model again.")
    return _config_from(name, raw)


def _config_from(name: str, raw: dict[str, Any]) -> PretrainedConfig:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

    from lab.models.quiet import quiet_transformers

    kind = raw.get("model_type")
    kind = kind if isinstance(kind, str) else ""
    known = kind in CONFIG_MAPPING
    if raw.get("auto_map") and not known:
        raise ModelError(
            f"{name} needs code from its own repository (auto_map in config.json), which the lab never runs.",
            remedy=_UNKNOWN_REMEDY,
        )
    if not known:
        raise ModelError(
            f"{name} is of the unknown architecture {kind[:60]!r}.", remedy=_UNKNOWN_REMEDY + " Is it up to date?"
        )
    if raw.get("is_encoder_decoder"):
        raise ModelError(
            f"{name} ({kind}) is an encoder-decoder; the lab runs causal language models only.", remedy=_UNKNOWN_REMEDY
        )
    if raw.get("quantization_config"):
        raise ModelError(
            f"{name} is stored quantized ({_method(raw['quantization_config'])}), which the lab cannot open.",
            remedy="Use the plain model; the lab quantizes by itself.",
        )
    try:
        with quiet_transformers():
            config: PretrainedConfig = CONFIG_MAPPING[kind].from_dict({k: v for k, v in raw.items() if k not in _OURS})
    except Exception as error:
        raise ModelError(
            f"The config.json of {name} does not fit a {kind} model: {_first_line(error)}",
            remedy="Copy the model again.",
        ) from error
    if config.is_encoder_decoder or kind not in CAUSAL:
        raise ModelError(f"{name} ({kind}) is not a causal language model.", remedy=_UNKNOWN_REMEDY)
    return config


def shape_of(config: PretrainedConfig, name: str) -> Shape:
    """Heads, windows, ties of a config.

    Raises:
        ModelError: a size is missing, not positive or absurd.
    """
    text = config.get_text_config()
    layers = _size(text, name, ("num_hidden_layers", "n_layer", "n_layers"), MAX_LAYERS)
    hidden = _size(text, name, ("hidden_size", "n_embd", "d_model"), MAX_WIDTH)
    vocab = _size(text, name, ("vocab_size",), MAX_VOCAB)
    heads = _optional(text, "num_attention_heads", "n_head", "n_heads") or 0
    kv_heads = _kv_heads(text, heads)
    head_dim = _optional(text, "head_dim") or (hidden // heads if heads else 0)
    if max(heads, kv_heads, head_dim) > MAX_WIDTH or min(heads, kv_heads, head_dim) < 0:
        raise ModelError(f"The config of {name} has {heads} heads, {kv_heads} key/value heads of {head_dim}.")
    if heads and kv_heads and heads % kv_heads:
        raise ModelError(f"The config of {name} has {heads} query heads for {kv_heads} key/value heads.")
    if heads and not _optional(text, "head_dim") and hidden % heads:
        raise ModelError(f"The config of {name} has a hidden size of {hidden} for {heads} heads.")
    return Shape(
        architecture=_architecture(config),
        layers=tuple(_layer(text, i, kv_heads, head_dim) for i in range(layers)),
        hidden=hidden,
        query_heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=vocab,
        context=max(0, _optional(text, "max_position_embeddings", "n_positions", "max_seq_len", "seq_length") or 0),
        tied=bool(getattr(text, "tie_word_embeddings", False) or getattr(config, "tie_word_embeddings", False)),
    )


def _architecture(config: PretrainedConfig) -> str:
    """The class that the config names, if that is a name at all; else the one that goes with its model type."""
    named = config.architectures
    first = named[0] if isinstance(named, list) and named else None
    if isinstance(first, str) and first.isidentifier() and len(first) <= MAX_NAME:
        return first
    return type(config).__name__.replace("Config", "ForCausalLM")


def _layer(text: PretrainedConfig, index: int, kv_heads: int, head_dim: int) -> LayerFacts:
    """The kind of one layer, as transformers' own cache would build it."""
    types = getattr(text, "layer_types", None)
    window = _optional(text, "sliding_window")
    if types is not None and index < len(types):
        kind = {"full_attention": "full", "sliding_attention": "sliding"}.get(str(types[index]), "other")
    elif getattr(text, "attention_chunk_size", None):
        kind = "other"
    else:
        kind = "sliding" if window and getattr(text, "use_sliding_window", True) else "full"
    latent = getattr(text, "kv_lora_rank", None) is not None
    recurrent = kv_heads == 0 or any(hasattr(text, key) for key in ("state_size", "mamba_d_state", "time_step_rank"))
    if latent or (recurrent and types is None) or (kind == "sliding" and not window):
        kind = "other"
    return LayerFacts(kind=kind, window=window if kind == "sliding" else None, kv_heads=kv_heads, head_dim=head_dim)


def _kv_heads(text: PretrainedConfig, heads: int) -> int:
    if text.model_type == "falcon":
        if text.new_decoder_architecture:
            return int(text.num_kv_heads or heads)
        return 1 if text.multi_query else heads
    if text.model_type == "gpt_bigcode":
        return 1 if text.multi_query else heads
    given = _optional(text, "num_key_value_heads")
    return heads if given is None else given


def _size(text: PretrainedConfig, name: str, keys: tuple[str, ...], limit: int) -> int:
    value = _optional(text, *keys)
    if value is None or not 1 <= value <= limit:
        raise ModelError(
            f"The config of {name} has {keys[0]} = {value}; the lab takes 1 to {limit:,}.",
            remedy="Is it a language model?",
        )
    return value


def _optional(text: PretrainedConfig, *keys: str) -> int | None:
    for key in keys:
        value = getattr(text, key, None)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _method(quantization: Any) -> str:
    return str(quantization.get("quant_method", "?"))[:40] if isinstance(quantization, dict) else "?"


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__
