"""Tiny seeded random models, saved as directories in transformers format with a real tokenizer beside."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

VOCAB = 320
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_TEXT = ["the cache keeps the keys and the values of all the tokens that the model has read so far, one a layer"] * 4

_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {**_COMMON, "tie_word_embeddings": True}),
    "gpt2": (
        "gpt2",
        {
            "vocab_size": VOCAB,
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 512,
            "initializer_range": 0.3,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 0,
        },
    ),
    "qwen2": ("qwen2", {**_COMMON, "tie_word_embeddings": False}),
    # head_dim is its own on purpose: hidden / heads would be 8
    "qwen3": ("qwen3", {**_COMMON, "head_dim": 16, "tie_word_embeddings": True}),
    "gemma2": (
        "gemma2",
        {**_COMMON, "num_hidden_layers": 4, "head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 16},
    ),
    "gemma3": (
        "gemma3_text",
        {
            **_COMMON,
            "num_hidden_layers": 6,
            "head_dim": 16,
            "num_key_value_heads": 1,
            "sliding_window": 8,
            "query_pre_attn_scalar": 16,
        },
    ),
    "mistral": ("mistral", {**_COMMON, "sliding_window": 8, "tie_word_embeddings": False}),
    "mixtral": (
        "mixtral",
        {
            **_COMMON,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": None,
            "tie_word_embeddings": False,
        },
    ),
}


def build_tokenizer(*, chat: bool = True) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer: every text can be written, some words are one token.

    It knows 317 tokens, and the models have 320 embeddings: padded, as real models often are.
    """
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.train_from_iterator(
        _TEXT,
        trainers.BpeTrainer(
            vocab_size=VOCAB,
            special_tokens=SPECIAL,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token=SPECIAL[1], eos_token=SPECIAL[2], pad_token=SPECIAL[0]
    )
    if chat:
        tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def save_tiny(directory: Path, kind: str = "llama", *, seed: int = 0, chat: bool = True, **overrides: Any) -> Path:
    """Write a tiny model of `kind` (a key of `CONFIGS`) into `directory`.

    Args:
        seed: of its random weights.
        chat: whether the tokenizer has a chat template.
        overrides: config values.
    """
    model_type, values = CONFIGS[kind]
    config = CONFIG_MAPPING[model_type](**{**values, **overrides})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    directory.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(directory)
    build_tokenizer(chat=chat).save_pretrained(directory)
    return directory


def tiny_name(kind: str, seed: int, chat: bool, overrides: dict[str, Any]) -> str:
    """A directory name for one tiny model: the same for the same settings."""
    key = json.dumps([kind, seed, chat, sorted(overrides.items())], default=str)
    return f"tiny-{kind}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"
