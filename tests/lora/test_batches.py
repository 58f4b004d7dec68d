"""Examples as tokens, and batches as trees: no position twice, none for nothing, and the sums of one by one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import pytest
import torch

from lab.errors import BadInput, ModelError
from lab.lora.batches import MOST_TOKENS, Tokenized, batches, encode_examples, in_rows, shared_prefix
from lab.lora.task_files import Example
from lab.models.loading import LoadedModel

CPU = torch.device("cpu")
THREE = (Tokenized((5, 6, 7, 8, 9), 3), Tokenized((5, 6, 1, 2), 2), Tokenized((5, 6, 7, 4, 4, 4), 4))


def test_an_example_is_its_prompt_in_the_template_its_answer_and_an_end(tiny: Callable[..., LoadedModel]) -> None:
    loaded = tiny("llama")
    (one,) = encode_examples(loaded, [Example("the key", "the values")])
    text = loaded.tokenizer.decode(one.ids[: one.labels_from])
    assert text == "<|im_start|>user\nthe key<|im_end|>\n<|im_start|>assistant\n"
    assert loaded.tokenizer.decode(one.ids[one.labels_from :]) == "the values<|im_end|>"
    assert one.ids[-1] == loaded.tokenizer.eos_token_id


def test_without_a_template_the_answer_follows_the_prompt(tiny: Callable[..., LoadedModel]) -> None:
    loaded = tiny("llama", chat=False)
    (one,) = encode_examples(loaded, [Example("the key", " so far")])
    assert loaded.tokenizer.decode(one.ids) == "the key so far<|im_end|>"
    with pytest.raises(ModelError, match="no chat template"):
        encode_examples(loaded, [Example("the key", " so far")], chat=True)


def test_an_answer_of_one_token_is_taken(tiny: Callable[..., LoadedModel]) -> None:
    (one,) = encode_examples(tiny("llama"), [Example("a", "b")])
    assert one.labels == 2  # itself and the end


def test_a_long_example_is_refused_by_its_line(tiny: Callable[..., LoadedModel]) -> None:
    with pytest.raises(BadInput, match=rf"Line 7 has 6\d\d tokens.*at most {MOST_TOKENS}"):
        encode_examples(tiny("llama"), [Example("a", "xyz" * 200, 7)])
    with pytest.raises(BadInput, match=r"Line 9: The prompt has .* tokens"):
        encode_examples(tiny("llama"), [Example("xyz" * 200, "a", 9)])


def test_every_example_comes_once_an_epoch_in_a_seeded_order() -> None:
    drawn = list(islice(batches(6, 4, 1), 6))
    flat = [i for batch in drawn for i in batch]
    assert all(len(batch) == 4 for batch in drawn)
    assert all(sorted(flat[i : i + 6]) == list(range(6)) for i in range(0, 24, 6))
    assert list(islice(batches(6, 4, 1), 6)) == drawn
    assert list(islice(batches(6, 4, 2), 6)) != drawn
    assert next(batches(2, 5, 0)).count(0) in (2, 3)


def test_a_batch_is_a_tree_with_its_beginning_once() -> None:
    assert shared_prefix(THREE) == 1  # the second's last prompt token predicts, so it is not shared
    (rows,) = in_rows(THREE, CPU, tree=True)
    assert rows.ids.tolist() == [[5, 6, 7, 8, 6, 1, 6, 7, 4, 4]]
    assert rows.position_ids is not None
    assert rows.mask is not None
    assert rows.position_ids.tolist() == [[0, 1, 2, 3, 1, 2, 1, 2, 3, 4]]
    assert rows.targets.tolist() == [8, 9, 1, 2, 4, 4]
    assert rows.predicts.tolist() == [2, 3, 4, 5, 8, 9]
    seen = [[j for j in range(10) if rows.mask[0, 0, i, j]] for i in range(10)]
    assert seen[3] == [0, 1, 2, 3]
    assert seen[5] == [0, 4, 5]
    assert seen[9] == [0, 6, 7, 8, 9]


def test_padded_rows_predict_the_same_tokens() -> None:
    (rows,) = in_rows(THREE, CPU, tree=False)
    assert rows.ids.shape == (3, 5)
    assert sorted(rows.targets.tolist()) == [1, 2, 4, 4, 8, 9]
    assert rows.mask is None
    flat = rows.ids.flatten()
    assert [int(flat[i]) for i in rows.predicts] == [6, 1, 7, 8, 4, 4]  # sorted by length


def test_a_large_batch_is_cut_and_nothing_is_lost() -> None:
    many = [Tokenized((1, 2, *range(10, 10 + n)), 2) for n in range(2, 12)]
    for tree in (True, False):
        parts = in_rows(many, CPU, tree=tree, room=24)
        assert len(parts) > 1
        assert all(part.tokens <= 24 for part in parts)
        assert sum(len(part.targets) for part in parts) == sum(one.labels for one in many)
    assert in_rows([], CPU, tree=True) == []


def test_one_example_longer_than_a_row_goes_alone() -> None:
    long, short = Tokenized(tuple(range(1, 40)), 5), Tokenized((1, 2, 3), 1)
    assert [part.tokens for part in in_rows([long, short, long], CPU, tree=True, room=20)] == [38, 2, 38]
