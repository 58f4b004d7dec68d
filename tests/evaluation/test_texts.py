"""Calibration and held-out text: apart, hashed, refused in words where they cannot be had."""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.errors import BadInput
from lab.evaluation.texts import SHARED_CHARACTERS, Text, check_texts, find_texts, python_topics, short_hash
from lab.evaluation.tokens import Windows, encode

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]


def shared(one: str, other: str) -> set[str]:
    parts = [
        {key for part in text.split("\n\n") if len(key := " ".join(part.split())) >= SHARED_CHARACTERS}
        for text in (one, other)
    ]
    return parts[0] & parts[1]


def test_the_two_texts_have_no_paragraph_in_common() -> None:
    texts = python_topics()
    assert len(texts.calibration.text) > 100_000
    assert len(texts.held_out.text) > 50_000
    assert shared(texts.calibration.text, texts.held_out.text) == set()
    assert texts.calibration.hash != texts.held_out.hash
    assert "Python 3" in texts.held_out.source


def test_a_split_by_topic_alone_would_share_paragraphs() -> None:
    """The mutation: topics hold one another."""
    from pydoc_data.topics import topics

    names = sorted(topics)
    sides = ["\n\n".join(topics[n] for i, n in enumerate(names) if (i % 3 == 2) == held) for held in (False, True)]
    assert len(shared(*sides)) > 50


def test_the_same_texts_come_again() -> None:
    assert python_topics() == python_topics()
    assert find_texts("topics").calibration.hash == short_hash(python_topics().calibration.text)


def test_a_file_is_divided_between_lines(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    body = "".join(f"line {i} of the file\n" for i in range(60))
    file.write_text(body, encoding="utf-8")
    texts = find_texts(str(file))
    assert texts.calibration.text + texts.held_out.text == body
    assert texts.calibration.text.endswith("\n")
    assert 0.5 < len(texts.calibration.text) / len(body) <= 2 / 3


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (None, "cannot be read: No such file"),
        (b"", "is empty"),
        (b" \n\t \n" * 100, "is empty"),
        (b"abc\xff" + b"d" * 300, r"is not UTF-8: the byte at 3 is 0xff"),
        (b"too short", "has 9 characters; at least 200"),
    ],
)
def test_bad_files_are_refused_in_words(tmp_path: Path, body: bytes | None, message: str) -> None:
    file = tmp_path / "text.txt"
    if body is not None:
        file.write_bytes(body)
    with pytest.raises(BadInput, match=message) as refused:
        find_texts(str(file))
    assert refused.value.remedy


@pytest.mark.parametrize("times", [2, 3, 7])
def test_a_text_said_again_cannot_be_held_out(tmp_path: Path, times: int) -> None:
    once = "".join(f"line {i} of the file\n" for i in range(40))
    file = tmp_path / "text.txt"
    file.write_text(once * times)
    with pytest.raises(BadInput, match="held out, stand in the first part"):
        find_texts(str(file))
    file.write_text(once * times + "and one more\n")  # then something is left to judge on
    assert find_texts(str(file)).held_out.text.endswith("and one more\n")


def test_what_is_read_but_once_is_not_read_to_be_checked(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    check_texts(str(pipe))  # would wait for a writer for ever
    check_texts("")
    check_texts("topics")
    for name in (str(tmp_path), str(tmp_path / "no"), "n" * 400, "a\0b"):
        with pytest.raises(BadInput, match="cannot be read"):
            check_texts(name)


def test_a_directory_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        find_texts(str(tmp_path))


@pytest.mark.skipif(importlib.util.find_spec("datasets") is not None, reason="datasets is installed here")
def test_wikitext_without_its_package_says_so() -> None:
    for look in (find_texts, check_texts):
        with pytest.raises(BadInput, match="needs the package datasets") as refused:
            look("wikitext")
        assert "topics" in refused.value.remedy


def test_bytes_of_tokens_sum_to_the_text(tiny: Tiny) -> None:
    tokenizer = tiny("llama").tokenizer
    text = Text("the cache keeps café ☕ and the naïve 日本 keys\n" * 30, "a test")
    tokens = encode(tokenizer, text, 4000)
    assert sum(tokens.bytes) == len(text.text.encode())
    assert tokens.hash == text.hash
    part = encode(tokenizer, text, 37)
    assert part.ids == tokens.ids[:37]
    assert part.hash != tokens.hash


def test_a_tokenizer_with_a_start_token_gives_a_prefix(tiny: Tiny) -> None:
    from tiny_models import build_tokenizer
    from tokenizers import processors

    assert encode(tiny("llama").tokenizer, Text("the keys", "a test"), 9).prefix == ()
    tokenizer = build_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)]
    )
    made = encode(tokenizer, Text("the keys", "a test"), 9)
    assert made.prefix == (1,)
    assert 1 not in made.ids


@pytest.mark.parametrize("most", [0, -1, 131_073])
def test_token_counts_outside_the_limits_are_refused(tiny: Tiny, most: int) -> None:
    with pytest.raises(BadInput, match="tokens were asked for"):
        encode(tiny("llama").tokenizer, Text("the keys", "a test"), most)


def test_too_few_tokens_are_refused(tiny: Tiny) -> None:
    with pytest.raises(BadInput, match="has 1 tokens; at least 2"):
        encode(tiny("llama").tokenizer, Text("a", "a test"), 10, least=2)


@given(count=st.integers(0, 60), size=st.integers(2, 20), share=st.floats(0.05, 1), prefix=st.booleans())
def test_every_token_is_scored_at_most_once_and_in_order(count: int, size: int, share: float, prefix: bool) -> None:
    stride = max(1, math.floor(size * share))
    spans = list(Windows(size, stride).spans(count, prefix=prefix))
    scored = [i for span in spans for i in range(span.first, span.end)]
    assert scored == sorted(set(scored))
    without = set(range(count)) - set(scored)
    if prefix:
        assert not without
    elif stride < size:
        assert without <= {0}
    else:
        assert without == set(range(0, count, size))
    assert all(span.begin < span.first or prefix for span in spans)


@pytest.mark.parametrize(("size", "stride"), [(1, 1), (9000, 5), (16, 0), (16, 17)])
def test_windows_outside_the_limits_are_refused(size: int, stride: int) -> None:
    with pytest.raises(BadInput, match=r"window|stride"):
        Windows(size, stride)
