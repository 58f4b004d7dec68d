"""The lesson's matrix, step by step."""

from __future__ import annotations

from lab.pruning.example import MATRIX, magnitude_example


def test_the_text_s_matrix_to_half() -> None:
    found = magnitude_example()
    assert found.weights == MATRIX == ((0.5, -0.1, 0.3), (0.05, -0.8, 0.2))
    assert found.magnitudes == ((0.5, 0.1, 0.3), (0.05, 0.8, 0.2))
    assert found.ranks == ((5, 2, 4), (1, 6, 3))
    assert found.pruned == 3
    assert found.threshold == 0.2
    assert found.kept == ((True, False, True), (False, True, False))
    assert found.became == ((0.5, 0, 0.3), (0, -0.8, 0))
    assert found.sparsity == 0.5
    # the mutations: by value the -0.8 would go first; by rows of one weight each, others
    by_value = sorted(w for row in MATRIX for w in row)[:3]
    assert -0.8 in by_value
    assert found.became != magnitude_example(sparsity=1 / 3).became


def test_other_shares_and_ties() -> None:
    assert magnitude_example(sparsity=0.0).became == MATRIX
    assert magnitude_example(sparsity=0.0).threshold == 0
    assert magnitude_example(sparsity=1.0).became == ((0, 0, 0), (0, 0, 0))
    tied = magnitude_example(((1.0, -1.0), (1.0, 1.0)))
    assert tied.ranks == ((1, 2), (3, 4))
    assert tied.became == ((0, 0), (1, 1))
