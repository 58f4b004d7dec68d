"""Writing tiny GGUF files as llama.cpp's converter would, with whatever fault a test wants."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from tiny_models import CHAT_TEMPLATE, build_tokenizer
from torch import nn

_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def permute(weight: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """The order of rows that llama.cpp's rotary embedding wants: pairs interleaved within each head."""
    half = weight.shape[0] // heads // 2
    return weight.reshape(heads, 2, half, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(
    path: Path,
    model: nn.Module,
    *,
    kind: str = "Q4_1",
    architecture: str = "llama",
    tokenizer: bool = True,
    chat: bool = True,
    query_heads: int = 4,
    kv_heads: int = 2,
    change: Callable[[gguf.GGUFWriter], None] | None = None,
) -> Path:
    """Write a tiny Llama as a GGUF file: matrices as `kind`, embeddings Q8_0 (F32 if all is), norms F32.

    Args:
        change: adds something of the test's own before the tensors.
    """
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_name("Tiny")
    writer.add_block_count(2)
    writer.add_context_length(512)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(8)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(320)
    if tokenizer:
        _add_tokenizer(writer, chat)
    if change is not None:
        change(writer)
    for name, parameter in model.named_parameters():
        _add_tensor(writer, name, parameter.detach().float().numpy(), kind, query_heads, kv_heads)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: gguf.GGUFWriter, chat: bool) -> None:
    tokenizer = build_tokenizer()
    backend: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    vocab = backend["model"]["vocab"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(sorted(vocab, key=vocab.__getitem__))
    writer.add_token_types([3 if i < 3 else 1 for i in range(len(vocab))])
    writer.add_token_merges([" ".join(m) if isinstance(m, list) else m for m in backend["model"]["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    if chat:
        writer.add_chat_template(CHAT_TEMPLATE)


def _add_tensor(
    writer: gguf.GGUFWriter, name: str, value: npt.NDArray[np.float32], kind: str, query_heads: int, kv_heads: int
) -> None:
    if name == "model.embed_tokens.weight":
        _quantized(writer, "token_embd.weight", value, "F32" if kind == "F32" else "Q8_0")
        return
    if name == "model.norm.weight":
        writer.add_tensor("output_norm.weight", value)
        return
    _, _, layer, rest = name.split(".", 3)
    module = rest.removesuffix(".weight")
    target = f"blk.{layer}.{_NAMES[module]}.weight"
    if module.endswith("norm"):
        writer.add_tensor(target, value)
        return
    if module.endswith("q_proj"):
        value = permute(value, query_heads)
    elif module.endswith("k_proj"):
        value = permute(value, kv_heads)
    _quantized(writer, target, value, kind)


def _quantized(writer: gguf.GGUFWriter, name: str, value: npt.NDArray[np.float32], kind: str) -> None:
    type_ = gguf.GGMLQuantizationType[kind]
    if kind == "F32":
        writer.add_tensor(name, value)
    else:
        writer.add_tensor(name, gguf.quants.quantize(value, type_), raw_dtype=type_)
