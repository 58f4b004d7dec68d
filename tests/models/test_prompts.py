"""Prompts to tokens and tokens to text."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import build_tokenizer

from lab.errors import BadInput, ModelError
from lab.models.loading import LoadedModel
from lab.models.prompts import encode_prompt, token_texts

TOKENIZER = build_tokenizer()


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
@settings(deadline=None, max_examples=200)
def test_texts_join_to_the_decoded_text(text: str) -> None:
    ids = TOKENIZER(text)["input_ids"]
    pieces = token_texts(TOKENIZER, ids)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == text


@given(st.lists(st.integers(0, len(TOKENIZER) - 1), max_size=40))
@settings(deadline=None, max_examples=200)
def test_any_tokens_join_to_the_decoded_text(ids: list[int]) -> None:
    assert "".join(token_texts(TOKENIZER, ids)) == TOKENIZER.decode(ids, clean_up_tokenization_spaces=False)


def test_a_character_belongs_to_its_last_token() -> None:
    ids = TOKENIZER("a🙂é")["input_ids"]
    assert len(ids) == 7  # a, four bytes, two bytes
    assert token_texts(TOKENIZER, ids) == ["a", "", "", "", "🙂", "", "é"]
    # decoding each token alone, the obvious way, does not give the text
    assert "".join(TOKENIZER.decode([i]) for i in ids) != "a🙂é"


def test_unfinished_bytes_show_at_the_end() -> None:
    ids = TOKENIZER("🙂")["input_ids"][:2]
    assert token_texts(TOKENIZER, ids) == ["", "\ufffd"]


def test_a_real_replacement_character_is_not_held_back() -> None:
    assert token_texts(TOKENIZER, TOKENIZER("\ufffda")["input_ids"]) == ["", "", "\ufffd", "a"]


def test_special_tokens_in_a_prompt_stay(tiny: Callable[..., LoadedModel]) -> None:
    loaded = tiny("llama")
    ids = encode_prompt(loaded, "the<|im_end|>cache")
    assert ids.count(2) == 1
    assert "".join(token_texts(loaded.tokenizer, ids)) == "the<|im_end|>cache"


def test_chat(tiny: Callable[..., LoadedModel]) -> None:
    loaded = tiny("llama")
    text = "".join(token_texts(loaded.tokenizer, encode_prompt(loaded, "why?", chat=True)))
    assert text == "<|im_start|>user\nwhy?<|im_end|>\n<|im_start|>assistant\n"


def test_chat_without_a_template(tiny: Callable[..., LoadedModel]) -> None:
    loaded = tiny("llama", chat=False)
    assert not loaded.facts.chat_template
    with pytest.raises(ModelError, match="has no chat template") as caught:
        encode_prompt(loaded, "why?", chat=True)
    assert "Switch chat off" in caught.value.remedy
    assert encode_prompt(loaded, "why?")  # the next request works


def test_no_tokens(tiny: Callable[..., LoadedModel]) -> None:
    with pytest.raises(BadInput, match="0 tokens"):
        encode_prompt(tiny("llama"), "")


def test_beyond_the_context(tiny: Callable[..., LoadedModel]) -> None:
    loaded = tiny("llama", max_position_embeddings=16)
    assert len(encode_prompt(loaded, "x" * 15)) == 15
    with pytest.raises(BadInput, match=r"16 tokens; .* reads at most 16"):
        encode_prompt(loaded, "x" * 16)


def test_half_a_character(tiny: Callable[..., LoadedModel]) -> None:
    with pytest.raises(BadInput, match="position 1"):
        encode_prompt(tiny("llama"), "a\ud83d")
