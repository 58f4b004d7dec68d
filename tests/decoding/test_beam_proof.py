"""The verdict on a search: what is a tie, what is different, and what is said of it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from lab.decoding.beam.hypotheses import Finished
from lab.decoding.beam.search import Candidate, SearchStep, Tree
from lab.experiments.beam_search.observed import RowsSeen, wrong_figures, wrong_rows
from lab.experiments.beam_search.proof import Decisions, Evidence, decisions, judge
from lab.experiments.reference_beams import ReferenceBeams
from lab.kv_cache.observed import Finding


def _evidence(**more: Any) -> Evidence:
    """Two hypotheses of two tokens, all as it should be."""
    values: dict[str, Any] = {
        "width": 2,
        "hypotheses": [Finished(2, 2, -2.0, -1.0, True), Finished(3, 2, -3.0, -1.5, False)],
        "sequences": [(5, 2), (6, 7)],
        "decided": [Decisions(kept=(5, 6), gap=0.5, margin=math.inf), Decisions(kept=(), gap=0.5, margin=0.5)],
        "reference": _reference(),
        "found": [],
        "dtype": "float32",
        "name": str,
    }
    return Evidence(**{**values, **more})


def _reference(**more: Any) -> ReferenceBeams:
    values: dict[str, Any] = {"sequences": ((5, 2), (6, 7)), "scores": (-1.0, -1.5), "fed": ((5, 6),)}
    return ReferenceBeams(prefill_chunk=None, **{**values, **more})


def test_the_same_is_equal_and_needs_no_words() -> None:
    proof = judge(_evidence())
    assert (proof.verdict, proof.compared, proof.matched, proof.explanation) == ("equal", 2, 2, "")
    assert proof.claim == "the same hypotheses and scores as generate(num_beams=2)"


def test_scores_are_compared_relative_to_their_size() -> None:
    assert judge(_evidence(reference=_reference(scores=(-1.0 + 9e-6, -1.5)))).verdict == "equal"
    assert judge(_evidence(reference=_reference(scores=(-1.0 + 3e-5, -1.5)))).verdict == "different"
    large = [Finished(2, 2, -2000.0, -1000.0, True), Finished(3, 2, -3000.0, -1500.0, False)]
    near = judge(_evidence(hypotheses=large, reference=_reference(scores=(-1000.005, -1500.0))))
    assert near.verdict == "equal"


def test_copies_of_the_prompt_are_no_hypotheses() -> None:
    reference = _reference(sequences=((5, 2), (6, 7), (2,)), scores=(-1.0, -1.5, -1e9))
    assert judge(_evidence(reference=reference)).verdict == "equal"


@pytest.mark.parametrize(("gap", "verdict"), [(5e-5, "tie"), (2e-4, "different")])
def test_another_choice_is_a_tie_only_where_the_candidates_were_near(gap: float, verdict: str) -> None:
    decided = [Decisions(kept=(5, 6), gap=gap, margin=math.inf), Decisions(kept=(), gap=0.0, margin=0.0)]
    reference = _reference(sequences=((5, 2), (8, 7)), fed=((5, 8),))
    proof = judge(_evidence(decided=decided, reference=reference))
    assert (proof.verdict, proof.matched) == (verdict, 1)
    assert "They part at step 1" in proof.explanation
    assert proof.detail["first_difference"]["gap"] == gap


@pytest.mark.parametrize(("margin", "verdict"), [(5e-5, "tie"), (2e-4, "different")])
def test_another_stop_is_a_tie_only_where_the_bound_was_near(margin: float, verdict: str) -> None:
    decided = [Decisions(kept=(5, 6), gap=0.5, margin=math.inf), Decisions(kept=(4, 3), gap=0.5, margin=margin)]
    reference = _reference(sequences=((5, 2), (6, 7, 1)), fed=((5, 6), (4, 3)))
    proof = judge(_evidence(decided=decided, reference=reference))
    assert proof.verdict == verdict
    assert "stopped after step 2" in proof.explanation


def test_the_order_of_equal_hypotheses_is_a_tie() -> None:
    close = [Finished(2, 2, -2.0, -1.0, True), Finished(3, 2, -2.00002, -1.00001, False)]
    reference = _reference(sequences=((6, 7), (5, 2)), scores=(-1.0, -1.00001))
    proof = judge(_evidence(hypotheses=close, reference=reference))
    assert proof.verdict == "tie"
    far = judge(_evidence(reference=_reference(sequences=((6, 7), (5, 2)), scores=(-1.5, -1.0))))
    assert far.verdict == "different"


def test_too_few_or_too_many_are_different() -> None:
    assert judge(_evidence(reference=_reference(sequences=((5, 2),), scores=(-1.0,)))).verdict == "different"
    more = _reference(sequences=((5, 2), (6, 7), (9,)), scores=(-1.0, -1.5, -2.0))
    assert "generate() has more" in judge(_evidence(reference=more)).explanation


def test_what_was_seen_is_never_equal() -> None:
    proof = judge(_evidence(found=[Finding("cache", 1, "a row held another text")]))
    assert (proof.verdict, proof.matched) == ("different", 2)
    assert "What was seen: a row held another text." in proof.explanation


def test_bf16_is_unproven_where_it_parts_and_nothing_was_seen() -> None:
    reference = _reference(sequences=((5, 2), (8, 7)), fed=((5, 8),))
    assert judge(_evidence(reference=reference, dtype="bfloat16")).verdict == "unproven"
    seen = [Finding("cache", 1, "a row held another text")]
    assert judge(_evidence(reference=reference, dtype="bfloat16", found=seen)).verdict == "different"


def test_a_steps_gap_is_that_of_neighbours_down_to_the_first_loser() -> None:
    scores = (-1.0, -1.2, -1.25, -3.0, -3.0)
    fates = [("kept", "", 0), ("finished", "", -1), ("kept", "", 1), ("pruned", "rank", -1), ("pruned", "rank", -1)]
    ranked = tuple(
        Candidate(i, -1, 0, 10 + i, s, s, i, fate, reason, row)  # type: ignore[arg-type]
        for i, (s, (fate, reason, row)) in enumerate(zip(scores, fates, strict=True))
    )
    shelf = (Finished(1, 1, -1.2, -1.2, True),)
    decided = decisions(SearchStep(0, ranked, (0, 2), shelf, -0.7, "", 1.0, ()))
    assert decided.kept == (10, 12)
    assert decided.gap == pytest.approx(0.05)
    assert decided.margin == pytest.approx(0.5)


def test_findings_come_from_rows_and_figures() -> None:
    assert wrong_rows(RowsSeen(3, ((1, 2), (1, 3)), ((1, 2), (1, 3))), str) is None
    found = wrong_rows(RowsSeen(3, ((1, 2), (1, 3)), ((1, 2), (1, 2))), str)
    assert found is not None
    assert found.words == "in the pass for new token 4 beam 2 stands for (1, 3), but the cache of its row holds (1, 2)"
    tree = Tree()
    node = tree.add(tree.add(-1, 5, -1.0), 2, -2.0)
    assert wrong_figures([Finished(node, 2, -3.0, -1.5, True)], tree, 1.0, str) == []
    assert [f.kind for f in wrong_figures([Finished(node, 7, -3.0, -3 / 7, True)], tree, 1.0, str)] == [
        "length",
        "score",
    ]
    assert [f.kind for f in wrong_figures([Finished(node, 2, -1.0, -0.5, True)], tree, 1.0, str)] == ["sum", "score"]
