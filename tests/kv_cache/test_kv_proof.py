"""Verdicts, from made-up evidence."""

from __future__ import annotations

from typing import Any

from lab.experiments.kv_cache.proof import Evidence, judge
from lab.experiments.reference import ReferenceTokens
from lab.kv_cache.observed import Finding


def _evidence(ours: list[int], theirs: list[int], gap: float = 1.0, **more: Any) -> Evidence:
    reference = ReferenceTokens(
        token_ids=tuple(theirs),
        gaps=tuple(gap for _ in theirs),
        runners_up=tuple(more.pop("runner_up", 9) for _ in theirs),
        largest=tuple(10.0 for _ in theirs),
        prefill_chunk=None,
    )
    values: dict[str, Any] = {
        "token_ids": ours,
        "gaps": [gap for _ in ours],
        "uncached_ids": [],
        "reference": reference,
        "found": [],
        "dtype": "float32",
        "do_sample": False,
        "name_token": lambda t: f"<{t}>",
        **more,
    }
    return Evidence(**values)


def test_equal() -> None:
    proof = judge(_evidence([1, 2, 3], [1, 2, 3], uncached_ids=[1, 2]))
    assert (proof.verdict, proof.compared, proof.matched, proof.explanation) == ("equal", 3, 3, "")
    assert proof.claim == "identical to generate() and to the run without the cache"
    assert judge(_evidence([1], [1])).claim == "identical to generate()"


def test_a_tie_is_a_difference_at_a_tiny_gap_between_the_two_tokens_concerned() -> None:
    tie = judge(_evidence([1, 9, 3], [1, 2, 3], gap=5e-5))
    assert (tie.verdict, tie.matched) == ("tie", 1)
    assert "either is right" in tie.explanation
    assert tie.detail["first_difference"]["gap"] == 5e-5
    assert judge(_evidence([1, 8, 3], [1, 2, 3], gap=5e-5)).verdict == "different", "8 was not the runner-up"
    assert judge(_evidence([1, 9, 3], [1, 2, 3], gap=2e-4)).verdict == "different", "the gap is above 1e-4"


def test_bfloat16_has_a_wider_border() -> None:
    assert judge(_evidence([9], [2], gap=0.1, dtype="bfloat16")).verdict == "tie"
    assert judge(_evidence([9], [2], gap=0.2, dtype="bfloat16")).verdict == "different"


def test_drawn_tokens_have_no_ties() -> None:
    assert judge(_evidence([9], [2], gap=1e-6, do_sample=True)).verdict == "different"
    assert judge(_evidence([9], [2], gap=1e-6, do_sample=True, dtype="bfloat16")).verdict == "unproven"


def test_one_that_ends_early_is_different() -> None:
    short = judge(_evidence([1, 2], [1, 2, 3]))
    assert (short.verdict, short.compared, short.matched) == ("different", 3, 2)
    assert "generate() went on" in short.explanation
    assert judge(_evidence([1, 2, 3], [1, 2])).verdict == "different"


def test_a_finding_turns_even_equal_tokens_red() -> None:
    found = [Finding("position", 1, "the pass was given position 13 where 12 was due")]
    proof = judge(_evidence([1, 2], [1, 2], found=found))
    assert proof.verdict == "different"
    assert "position 13 where 12 was due" in proof.explanation
    assert judge(_evidence([1, 9], [1, 2], gap=1e-6, found=found)).verdict == "different"


def test_the_twin_counts_too() -> None:
    proof = judge(_evidence([1, 2, 3], [1, 2, 3], uncached_ids=[1, 7]))
    assert proof.verdict == "different"
    assert "run without the cache has <7>" in proof.explanation
    assert (proof.detail["uncached_compared"], proof.detail["uncached_matched"]) == (2, 1)
    assert judge(_evidence([1, 2], [1, 2], gap=1e-6, uncached_ids=[1, 7])).verdict == "tie"


def test_a_difference_without_a_finding_says_that_none_was_seen() -> None:
    assert "arithmetic" in judge(_evidence([1, 8], [1, 2])).explanation
