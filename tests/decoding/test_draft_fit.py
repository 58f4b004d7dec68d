"""Whether a draft fits a target, and the words that say so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tiny_models import build_tokenizer

from lab.decoding.drafts.fit import check_early_exit, check_fit, check_tree, embedded_tokens, vocab_rows

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]


def test_a_model_with_the_same_tokens_fits(tiny: Tiny) -> None:
    target, draft = tiny("qwen2", hidden_size=64), tiny("llama", seed=3)
    verdict = check_fit(target, draft)
    assert (verdict.reason, verdict.notes) == ("", ())


def test_tokenizers_are_compared_by_content(tiny: Tiny) -> None:
    target = tiny("llama")
    again = build_tokenizer(chat=False)
    again.name_or_path = "another name"
    draft = replace(target, tokenizer=again)
    assert check_fit(target, draft).reason == ""
    again.add_tokens(["<|extra|>"])  # what was found equal once is not believed for ever
    assert "another tokenizer" in check_fit(target, draft).reason


def _another(change: Callable[[Any], Any], tiny: Tiny) -> str:
    target, other = tiny("llama"), build_tokenizer()
    change(other)
    draft = tiny("llama", seed=3)
    return check_fit(target, replace(draft, tokenizer=other)).reason


def test_more_tokens_are_named_with_both_sizes_and_the_first_difference(tiny: Tiny) -> None:
    known = len(build_tokenizer())
    reason = _another(lambda tokenizer: tokenizer.add_tokens(["<|extra|>"]), tiny)
    assert f"{known + 1:,} tokens instead of {known:,}" in reason
    assert f"id {known:,}: '<|extra|>' where" in reason
    assert "no token" in reason
    assert tiny("llama").facts.name in reason


def test_the_same_tokens_under_other_ids_are_refused(tiny: Tiny) -> None:
    target, draft = tiny("llama"), tiny("llama", seed=3)

    class Swapped:
        def __len__(self) -> int:
            return len(target.tokenizer)

        def get_vocab(self) -> dict[str, int]:
            vocab = dict(target.tokenizer.get_vocab())
            a, b = (next(t for t, n in vocab.items() if n == number) for number in (40, 50))
            vocab[a], vocab[b] = 50, 40
            return vocab

    reason = check_fit(target, replace(draft, tokenizer=Swapped())).reason  # type: ignore[arg-type]
    assert "id 40:" in reason


def test_padding_is_allowed_and_named(tiny: Tiny) -> None:
    target, wide = tiny("llama"), tiny("llama", vocab_size=384)
    assert (vocab_rows(wide.model), embedded_tokens(wide.model)) == (384, 384)
    verdict = check_fit(target, wide)
    assert verdict.reason == ""
    assert "384 logits" in verdict.notes[0]
    assert "left out" in verdict.notes[0]
    assert "q is 0" in check_fit(wide, target).notes[0]


def test_what_a_person_should_know_is_noted(tiny: Tiny) -> None:
    target = tiny("llama")
    assert "nothing is gained" in check_fit(target, target).notes[0]
    large = tiny("llama", num_hidden_layers=4)
    assert "more than the" in check_fit(target, large).notes[0]
    assert "runs in bfloat16, the target in float32" in check_fit(target, tiny("llama", dtype="bfloat16")).notes[0]
    assert "at most 64 tokens" in check_fit(target, tiny("llama", max_position_embeddings=64)).notes[0]


def test_another_device_is_refused(tiny: Tiny) -> None:
    target = tiny("llama")
    reason = check_fit(target, replace(tiny("llama", seed=3), device=torch.device("cuda", 0))).reason
    assert "cuda:0" in reason


@pytest.mark.parametrize("kind", ["encoder-decoder", "state"])
def test_a_model_that_is_no_decoder_with_a_cache_is_refused(tiny: Tiny, kind: str) -> None:
    from transformers import MambaConfig, MambaForCausalLM, T5Config, T5ForConditionalGeneration

    model: Any
    if kind == "state":
        model = MambaForCausalLM(MambaConfig(vocab_size=320, hidden_size=16, num_hidden_layers=1))
    else:
        sizes = {"d_model": 16, "d_ff": 16, "d_kv": 8, "num_heads": 2, "num_layers": 1}
        model = T5ForConditionalGeneration(T5Config(vocab_size=320, **sizes))  # type: ignore[arg-type]
    target = tiny("llama")
    reason = check_fit(target, replace(target, model=model)).reason
    assert "cannot draft" in reason
    assert type(model).__name__ in reason


def test_early_exit_needs_a_model_whose_layers_run_alone(tiny: Tiny) -> None:
    assert check_early_exit(tiny("llama"), 1).reason == ""
    assert "nothing is gained" in check_early_exit(tiny("llama"), 2).notes[0]
    for layers in (0, 3):
        assert f"first {layers}" in check_early_exit(tiny("llama"), layers).reason
    assert "cannot be run alone" in check_early_exit(tiny("gpt2"), 1).reason


def test_a_tree_needs_full_attention_in_all_layers(tiny: Tiny) -> None:
    assert check_tree(tiny("llama")).reason == ""
    assert check_tree(tiny("qwen3")).reason == ""
    for kind in ("gemma3", "mistral"):
        assert "cannot verify a tree" in check_tree(tiny(kind)).reason
