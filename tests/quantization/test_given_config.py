"""Configs that somebody gives: counted as transformers builds them, and refused in words where they cannot be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lab.errors import BadInput
from lab.quantization.families import FAMILIES, Sizes
from lab.quantization.given_config import MOST_CHARACTERS, of_config, of_sizes
from lab.quantization.storage import LLAMA_7B

SEVEN_B: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}
SMALL: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
VARIANTS: dict[str, dict[str, Any]] = {
    **{kind: {} for kind in FAMILIES},
    "llama+bias": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    "qwen2+tied": {"tie_word_embeddings": True},
    "gemma2+untied": {"tie_word_embeddings": False},
    "gpt2": {},
    "gpt2+inner": {"n_inner": 72, "tie_word_embeddings": False},
    "mixtral": {"num_local_experts": 3},
}


def parameters(kind: str, values: dict[str, Any]) -> tuple[int, str]:
    """How many parameters transformers gives the model, and its config as it writes it."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    build: Any = AutoModelForCausalLM
    config = CONFIG_MAPPING[kind](**values)
    with torch.device("meta"):
        model = build.from_config(config)
    return sum(p.numel() for p in model.parameters()), config.to_json_string(use_diff=False)


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_a_config_has_as_many_weights_as_transformers_gives_it(variant: str) -> None:
    kind = variant.partition("+")[0]
    small = {"vocab_size": 320, "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 64} if kind == "gpt2" else SMALL
    count, text = parameters(kind, {**small, **VARIANTS[variant]})
    found = of_config(text)
    assert sum(m.weights for m in found.matrices) == count
    assert found.name == f"The given config ({kind})"
    # What was read is enough to ask for the same again, and one layer more is not the same.
    assert of_config(json.dumps(found.read)).matrices == found.matrices
    layers = "n_layer" if kind == "gpt2" else "num_hidden_layers"
    more = of_config(json.dumps({**found.read, layers: 4}))
    assert sum(m.weights for m in more.matrices) > count


def test_the_known_model_and_the_numbers_give_the_same() -> None:
    assert of_config(json.dumps(SEVEN_B)).matrices == LLAMA_7B
    sizes = Sizes(
        hidden=4096,
        intermediate=11008,
        layers=32,
        query_heads=32,
        kv_heads=32,
        head_dim=128,
        vocab=32000,
        tied=False,
    )
    assert of_sizes(sizes) == LLAMA_7B


def test_what_is_assumed_is_said() -> None:
    nameless = {k: v for k, v in SEVEN_B.items() if k != "model_type"}
    assert of_config(json.dumps(nameless)).notes == ("It names no model_type; it is counted as a Llama-like decoder.",)
    by_class = of_config(json.dumps({**nameless, "architectures": ["Qwen2ForCausalLM"]}))
    assert by_class.read["model_type"] == "qwen2"
    seeing = of_config(json.dumps({"model_type": "gemma3", "text_config": {**SMALL, "model_type": "gemma3_text"}}))
    assert "language model" in seeing.notes[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_size": None}, "The config has no hidden_size."),
        ({"hidden_size": "4096"}, "hidden_size is '4096'; it must be a whole number from 1 to 1,000,000."),
        ({"hidden_size": True}, "hidden_size is True"),
        ({"hidden_size": 4096.0}, "hidden_size is 4096.0"),
        ({"hidden_size": -1}, "hidden_size is -1"),
        ({"hidden_size": 4097}, "A hidden size of 4,097 does not divide into 32 heads."),
        ({"num_hidden_layers": 2001}, "num_hidden_layers is 2001; it must be a whole number from 1 to 2,000."),
        ({"vocab_size": 10**9}, "from 1 to 20,000,000"),
        ({"num_key_value_heads": 5}, "32 heads cannot share 5 key/value heads"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings is 1; it must be true or false."),
        ({"model_type": "mamba"}, "model_type is 'mamba'; known here are llama, mistral"),
        ({"model_type": ["llama"]}, "model_type is ['llama']"),
        ({"model_type": "mistral", "num_key_value_heads": None}, "The config has no num_key_value_heads."),
        ({"model_type": "gemma2"}, "The config has no head_dim."),
        ({"is_encoder_decoder": True}, "encoder-decoder"),
        ({"hidden_size": 10**6, "intermediate_size": 10**6, "num_hidden_layers": 2000}, "make"),
    ],
)
def test_a_config_that_cannot_be_counted_is_refused_in_words(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as caught:
        of_config(json.dumps({**SEVEN_B, **changes}))
    assert said in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "The config is empty."),
        ("{", "The config is no JSON"),
        ('{"hidden_size": 1' + "0" * 5000 + "}", "no JSON that can be read"),
        ("[" * 20_000, "no JSON that can be read"),
        ("[1, 2]", "not an object"),
        ('{"hidden_size": 1, "hidden_size": 2}', "has 'hidden_size' twice"),
        ("/etc/passwd", "The config is no JSON"),
        (" " * (MOST_CHARACTERS + 1), "the limit is 65,536"),
        ('{"hidden_size": NaN}', "hidden_size is nan"),
    ],
)
def test_text_that_is_no_config_is_refused_in_words(text: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        of_config(text)
    assert said in caught.value.message
    assert caught.value.remedy
