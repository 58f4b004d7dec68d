"""Whether the fast path computes what a given model computes."""

from __future__ import annotations

from torch import nn
from transformers.activations import SiLUActivation
from transformers.models.llama import modeling_llama as llama

from lab.decoding import cache_layout
from lab.decoding.matvec import has_hooks, out_features

STATIC_ROPE = ("default", "linear", "llama3", "yarn")
"""Rotary kinds whose angles depend on the position alone."""

LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head")


def why_not(model: nn.Module) -> str:
    """Empty if the fast path computes what `model` computes, else the first reason why not."""
    if type(model) is not llama.LlamaForCausalLM:
        return f"{type(model).__name__} is not LlamaForCausalLM"
    if model.training:
        return "the model is in training mode"
    rope = model.model.rotary_emb
    if type(rope) is not llama.LlamaRotaryEmbedding or rope.rope_type not in STATIC_ROPE:
        return "its rotary positions change with the length"
    expected = {
        llama.LlamaForCausalLM,
        llama.LlamaModel,
        llama.LlamaDecoderLayer,
        llama.LlamaAttention,
        llama.LlamaMLP,
        llama.LlamaRMSNorm,
        llama.LlamaRotaryEmbedding,
        nn.ModuleList,
        nn.Embedding,
        nn.SiLU,
        SiLUActivation,
    }
    linear: set[int] = set()
    for name, module in model.named_modules():
        if name.rsplit(".", 1)[-1] in LINEAR:
            linear.update(id(part) for part in module.modules())
            if not hasattr(module, "out_features"):
                return f"{name} ({type(module).__name__}) does not say how many rows it has"
        elif id(module) not in linear and (type(module) not in expected or has_hooks(module)):
            return f"{name or 'the model'} ({type(module).__name__}) is changed"
    return _shapes(model)


def _shapes(model: llama.LlamaForCausalLM) -> str:
    for index, layer in enumerate(model.model.layers[: model.config.num_hidden_layers]):
        attention = layer.self_attn
        heads = model.config.num_attention_heads, model.config.num_key_value_heads, model.config.num_key_value_heads
        for module, count in zip((attention.q_proj, attention.k_proj, attention.v_proj), heads, strict=True):
            if out_features(module) != count * attention.head_dim:
                return f"layer {index} has another number of heads"
        if attention.scaling != attention.head_dim**-0.5:
            return f"layer {index} scales its attention differently"
    norms = [m for m in model.modules() if isinstance(m, llama.LlamaRMSNorm)]
    if any(norm.variance_epsilon != model.config.rms_norm_eps for norm in norms):
        return "a norm has another epsilon"
    if len(cache_layout.roomy_layers(cache_layout.new_cache(model, 1))) < model.config.num_hidden_layers:
        return "not all of its layers read the whole text"
    tensors = [*model.parameters(), *model.buffers()]
    if len({t.device for t in tensors}) > 1:
        return "its weights are on more than one device"
    embedding = model.model.embed_tokens
    if embedding.max_norm is not None or not embedding.weight.dtype.is_floating_point:
        return "its embedding is changed"
    return ""
