"""The token loop on the packaged model: its known continuation, `generate()`, and both paths after several chunks."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest
import torch

from lab.decoding.loop import Decoded, Step, decode, decode_uncached
from lab.decoding.sampling import Sampling
from lab.decoding.trace import Trace

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

pytestmark = pytest.mark.model


def _finish(run: Generator[Any, None, Decoded]) -> tuple[list[Step], Decoded]:
    steps = []
    while True:
        try:
            item = next(run)
        except StopIteration as stop:
            return steps, stop.value
        if isinstance(item, Step):
            steps.append(item)


def _generate(loaded: LoadedModel, ids: list[int], new: int, **options: Any) -> list[int]:
    model: Any = loaded.model
    tokens = model.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        max_new_tokens=new,
        pad_token_id=0,
        eos_token_id=None,
        **options,
    )
    return [int(t) for t in tokens[0, len(ids) :]]


def test_the_known_continuation(packaged_model: LoadedModel) -> None:
    ids = packaged_model.tokenizer("The capital of France is").input_ids
    steps, end = _finish(decode(packaged_model.model, ids, max_new_tokens=20, trace=Trace("full", (0, 29))))
    assert packaged_model.tokenizer.decode(end.token_ids).startswith(" Paris.\n\nThe answer is: 2018-01-22")
    assert end.path == "llama"
    assert end.token_ids == _generate(packaged_model, ids, 20, do_sample=False)
    for step in steps:
        assert step.attention is not None
        assert step.attention.shape == (2, 9, len(ids) + step.index)


def test_sampled_tokens_equal_generate(packaged_model: LoadedModel) -> None:
    ids = packaged_model.tokenizer("The recipe begins with").input_ids
    options: dict[str, Any] = {"do_sample": True, "temperature": 0.8, "top_k": 50, "top_p": 0.95}
    with torch.random.fork_rng():
        torch.manual_seed(7)
        expected = _generate(packaged_model, ids, 12, **options)
    for fast in (True, False):
        run = decode(packaged_model.model, ids, max_new_tokens=12, sampling=Sampling(seed=7, **options), fast=fast)
        assert _finish(run)[1].token_ids == expected


def test_logits_of_both_paths_agree_after_a_prompt_of_several_chunks(packaged_model: LoadedModel) -> None:
    ids = (packaged_model.tokenizer("A harbour town keeps its light. " * 30).input_ids)[:150]
    fast, plain = (
        _finish(decode(packaged_model.model, ids, max_new_tokens=3, trace=Trace(top=40), fast=choice))[0]
        for choice in (True, False)
    )
    again, _ = _finish(decode_uncached(packaged_model.model, ids, max_new_tokens=1, trace=Trace(top=40)))
    for one, other in zip([*fast, again[0]], [*plain, plain[0]], strict=True):
        assert one.token_id == other.token_id
        wanted = dict(other.top)
        assert all(value == pytest.approx(wanted[token], abs=1e-4) for token, value in one.top if token in wanted)
