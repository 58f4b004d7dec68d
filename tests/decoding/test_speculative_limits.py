"""What a sliding window, a tree or a single token does not allow is refused before the run, in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from speculative_runs import run_to_end

from lab.decoding.drafts.choose import Wish, make_ready
from lab.decoding.windows import most_gamma
from lab.errors import BadInput, LabError, ModelError
from lab.events.speculative import SweepPoint
from lab.experiments.speculative import run as rules
from lab.experiments.speculative.params import MAX_GAMMA, SpeculativeParams

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
BASE: dict[str, Any] = {"prompt": "one two three " * 4, "chat": False, "draft": "lookup", "max_new_tokens": 12}
TREE: dict[str, Any] = {"draft": "retrieval", "store_text": "one two three", "tree": True, "gamma": 3}
MOST = 6
"""The window of the tiny Mistral and Gemma models is 8."""


def refused(model: LoadedModel, **params: Any) -> LabError:
    with pytest.raises(LabError) as error:
        rules.make_runner().prepare(model.facts, SpeculativeParams(**{**BASE, **params}))
    return error.value


def form(model: LoadedModel) -> dict[str, Any]:
    fields: dict[str, Any] = SpeculativeParams.for_model(model.facts)["properties"]
    return fields


@pytest.mark.parametrize("kind", ["mistral", "gemma3"])
def test_a_tree_is_refused_where_not_all_layers_read_the_whole_text(tiny: Tiny, kind: str) -> None:
    error = refused(tiny(kind), **TREE)
    assert "cannot verify a tree in one pass" in error.message
    assert error.remedy == "Verify a chain instead."
    assert "read the whole text" in form(tiny(kind))["tree"]["disabled"]
    assert run_to_end(tiny(kind), **{**BASE, **TREE, "tree": False}).proof.verdict == "equal"


def test_a_tree_is_refused_before_its_store_is_built_where_facts_alone_do_not_tell(tiny: Tiny) -> None:
    # GPT-2's layers all read the whole text; that it cannot do it shows in its forward.
    loaded = tiny("gpt2")
    from lab.decoding.drafts.fit import check_tree

    wish = Wish("retrieval", store_text="one two three", tree=True)
    if check_tree(loaded).reason:
        with pytest.raises(BadInput, match="cannot verify a tree"):
            list(make_ready(loaded, wish))
    assert "disabled" not in form(tiny("llama"))["tree"]
    assert run_to_end(tiny("llama"), **{**BASE, **TREE}).proof.verdict == "equal"


@pytest.mark.parametrize("kind", ["mistral", "gemma3"])
def test_a_small_window_limits_gamma(tiny: Tiny, kind: str) -> None:
    model = tiny(kind)
    assert most_gamma(model.facts) == MOST
    error = refused(model, gamma=MOST + 1)
    assert "sliding window of 8 positions, so at most 6 proposed tokens can be taken back, and γ is 7" in error.message
    assert error.remedy == "Choose a γ of at most 6."
    assert "γ adapts itself up to 16" in refused(model, gamma=2, adaptive=True).message
    fields = form(model)
    assert (fields["gamma"]["maximum"], fields["gamma"]["default"]) == (MOST, 3)
    assert "sliding window of 8 positions" in fields["adaptive"]["disabled"]
    for do_sample in (True, False):
        ran = run_to_end(model, **{**BASE, "do_sample": do_sample, "gamma": MOST})
        assert ran.proof.verdict == "equal", ran.proof.explanation


def test_a_wide_window_or_none_limits_nothing(tiny: Tiny) -> None:
    assert most_gamma(tiny("llama").facts) is None
    for model in (tiny("llama"), tiny("mistral", sliding_window=MAX_GAMMA + 2)):
        fields = form(model)
        assert fields["gamma"]["maximum"] == MAX_GAMMA
        assert "disabled" not in fields["adaptive"]
        rules.make_runner().prepare(model.facts, SpeculativeParams(**{**BASE, "gamma": MAX_GAMMA, "adaptive": True}))
    narrow = tiny("mistral", sliding_window=2)
    assert "no rejected token can be taken back" in refused(narrow, gamma=1).message


def test_without_the_check_the_run_itself_would_fail(
    tiny: Tiny, tiny_directory: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "check_gamma", lambda *_: None)
    always = {
        **BASE,
        "draft": "model",
        "draft_model": str(tiny_directory("llama")),
    }  # proposes as many as are asked for
    assert run_to_end(tiny("mistral"), **always, gamma=MOST).proof.verdict == "equal"
    with pytest.raises(ModelError, match="went through a sliding window of 7 at once"):
        run_to_end(tiny("mistral"), **always, gamma=MOST + 1)


def test_a_sweep_goes_as_far_as_the_window_allows(tiny: Tiny) -> None:
    ran = run_to_end(tiny("mistral"), **{**BASE, "task": "sweep", "gamma": MAX_GAMMA})
    assert [point.gamma for point in ran.of(SweepPoint)] == [1, 2, 3, 4, 5, 6]
    assert ran.proof.verdict == "equal"


def test_the_window_of_a_draft_model_limits_gamma_too(tiny: Tiny, tiny_directory: Callable[..., Path]) -> None:
    params = {**BASE, "draft": "model", "draft_model": str(tiny_directory("mistral"))}
    with pytest.raises(BadInput, match=r"The draft \(another model: tiny-mistral-.* has layers with a sliding window"):
        run_to_end(tiny("llama"), **params, gamma=MOST + 1)
    assert run_to_end(tiny("llama"), **params, gamma=MOST).proof.verdict == "equal"


@pytest.mark.parametrize("task", ["sweep", "drafts"])
def test_what_measures_rounds_needs_a_second_token(tiny: Tiny, task: str) -> None:
    assert "the first new token comes without one" in refused(tiny("llama"), task=task, max_new_tokens=1).message


def test_a_sweep_without_a_round_proves_nothing(tiny: Tiny) -> None:
    model = tiny("llama")
    first = run_to_end(model, **{**BASE, "do_sample": False, "max_new_tokens": 1}).outcome.token_ids[0]
    ended = type(model)(**{**vars(model), "end_token_ids": frozenset({first})})
    sampled = {**BASE, "task": "sweep", "top_k": 1}  # the only token that can be drawn ends the text
    proof = run_to_end(ended, **sampled).proof
    assert (proof.verdict, proof.compared) == ("unproven", 0)
    assert "nothing to compare" in proof.explanation
