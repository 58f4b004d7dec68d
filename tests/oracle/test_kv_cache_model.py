"""The experiment on the packaged model: the figures of the lesson and the proofs, for real."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from kv_cache_runs import Ran, run_to_end

from lab.events.decoding import PromptEncoded
from lab.events.kv_cache import AttentionRead, CacheLedger, TokenDecoded, UncachedToken
from lab.kv_cache.formula import bytes_per_token, cache_dtype, layer_shapes
from lab.models.shell import make_shell

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def ran(packaged_model: LoadedModel) -> Ran:
    """The default prompt, shorter."""
    return run_to_end(packaged_model, max_new_tokens=12, without_cache_tokens=4)


def test_its_cache_takes_46080_bytes_a_token(packaged_model: LoadedModel, ran: Ran) -> None:
    assert bytes_per_token(layer_shapes(packaged_model.facts), cache_dtype("float32")) == 46_080
    for ledger in ran.of(CacheLedger):
        assert sum(ledger.layer_bytes) == sum(ledger.formula_bytes) == 46_080 * ledger.cache_length
        assert set(ledger.layer_positions) == {ledger.cache_length}


def test_the_default_run_is_generate_and_the_run_without_a_cache(ran: Ran) -> None:
    assert ran.proof.verdict == "equal"
    assert (ran.proof.compared, ran.proof.matched) == (12, 12)
    tokens = ran.of(TokenDecoded)
    assert [t.token_id for t in ran.of(UncachedToken)] == [t.token_id for t in tokens][:4]
    n = len(ran.of(PromptEncoded)[0].token_ids)
    assert [t.computed for t in tokens] == [n] + [1] * 11
    assert [t.computed for t in ran.of(UncachedToken)] == [n, n + 1, n + 2, n + 3]
    assert ran.outcome.text == "".join(t.text for t in tokens)


def test_the_reference_sentence(packaged_model: LoadedModel) -> None:
    short = run_to_end(packaged_model, prompt="The capital of France is", max_new_tokens=8, without_cache_tokens=0)
    assert short.outcome.text.startswith(" Paris.")
    assert short.proof.verdict == "equal"


def test_sampling_is_generate_too(packaged_model: LoadedModel) -> None:
    drawn = run_to_end(
        packaged_model,
        prompt="The recipe begins with",
        max_new_tokens=10,
        without_cache_tokens=3,
        do_sample=True,
        temperature=0.8,
        top_p=0.95,
        seed=7,
    )
    assert drawn.proof.verdict == "equal"


@pytest.mark.parametrize(
    ("mistake", "finding"),
    [("repeat_last_prompt_token", "token"), ("shift_positions", "position"), ("drop_layer_cache", "cache")],
)
def test_each_mistake_is_caught_on_the_default_prompt(packaged_model: LoadedModel, mistake: str, finding: str) -> None:
    broken = run_to_end(packaged_model, max_new_tokens=8, without_cache_tokens=0, break_run=mistake)
    assert broken.proof.verdict == "different"
    assert broken.proof.matched < 8, "the text itself differs, not the findings alone"
    assert [f["kind"] for f in broken.proof.detail["findings"]] == [finding]


def test_exact_attention_is_that_of_a_full_forward(packaged_model: LoadedModel, ran: Ran) -> None:
    ids = [*ran.of(PromptEncoded)[0].token_ids, *ran.outcome.token_ids]
    shell = make_shell(packaged_model.model)
    shell.set_attn_implementation("eager")
    with torch.inference_mode():
        rows = shell(torch.tensor([ids]), output_attentions=True, use_cache=False).attentions
    n = len(ids) - 12
    for index, layer, head in ((0, 0, 0), (3, 15, 8), (11, 29, 4)):
        at = n + index - 1
        weights = torch.tensor(ran.ask("attention", index=index, layer=layer, head=head)["weights"].numpy())
        assert torch.allclose(weights, rows[layer][0, head, at, : at + 1].float(), atol=1e-4)
    for read in ran.of(AttentionRead):
        at = n + read.index - 1
        recorded = torch.tensor(read.weights.numpy().astype("float32"))
        expected = torch.stack([rows[k][0, :, at, : at + 1] for k in read.layers]).float()
        assert torch.allclose(recorded, expected, atol=1e-3)
