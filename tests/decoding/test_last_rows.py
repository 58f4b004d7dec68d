"""Some of the last rows of a pass: those of all, without the head over the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from lab.decoding.choose_pass import choose_pass
from lab.models.loading import LoadedModel
from lab.steps import finished

IDS = [(7 * i + 3) % 300 + 4 for i in range(40)]


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize("count", [1, 2, 9, 40])
def test_the_last_rows_are_those_of_all(tiny: Callable[..., LoadedModel], kind: str, count: int) -> None:
    model = tiny(kind).model
    all_rows, some = (
        finished(choose_pass(model, 64, layers=(), fast=None, mistake="nothing").sliced_rows(IDS[:count], 0, last=last))
        for last in (None, min(count, 5))
    )
    assert all_rows.logits.shape[0] == count
    assert some.logits.shape[0] == min(count, 5)
    assert torch.equal(all_rows.logits[-5:].argmax(1), some.logits.argmax(1))
    torch.testing.assert_close(some.logits, all_rows.logits[-5:], rtol=1e-5, atol=1e-5)
    assert some.features is not None
    assert all_rows.features is not None
    torch.testing.assert_close(some.features, all_rows.features[-5:], rtol=1e-5, atol=1e-5)


def test_the_head_reads_no_others(tiny: Callable[..., LoadedModel], monkeypatch: pytest.MonkeyPatch) -> None:
    from lab.decoding import llama

    model: Any = tiny("llama").model
    read: list[int] = []
    real = llama.linear_rows

    def counted(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        if module is model.lm_head:
            read.append(x.shape[1])
        return real(module, x)

    monkeypatch.setattr(llama, "linear_rows", counted)
    runner = choose_pass(model, 64, layers=(), fast=True, mistake="nothing")
    finished(runner.sliced_rows(IDS, 0, last=5))
    runner.forget()
    finished(runner.sliced_rows(IDS, 0))
    assert read == [5, 40]
