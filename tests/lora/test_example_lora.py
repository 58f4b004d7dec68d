"""The lesson's 2 x 2 example, from the code that adapts a model."""

from __future__ import annotations

import pytest

from lab.lora.example import lora_example


def test_the_lesson_s_numbers() -> None:
    found = lora_example()
    assert found.scale == 2
    assert found.update == ((0.5, 0.5), (0, 0))
    assert found.merged == ((2, 3), (3, 4))
    assert found.base_output == (4, 6)
    assert found.inner == (1,)
    assert found.added == (1, 1)
    assert found.unmerged_output == (5, 7)
    assert found.merged_output == (5, 7)


@pytest.mark.parametrize(
    ("alpha", "factor", "wanted"), [(2, 0, (4, 6)), (4, 1, (6, 8)), (2, 2, (6, 8)), (2, 0.5, (4.5, 6.5))]
)
def test_other_settings_give_other_numbers(alpha: float, factor: float, wanted: tuple[float, ...]) -> None:
    found = lora_example(alpha=alpha, factor=factor)
    assert found.unmerged_output == found.merged_output == wanted


def test_the_other_input_tells_a_transposed_weight() -> None:
    assert lora_example((1.0, 0.0)).merged_output == (2, 3)
    assert lora_example((0.0, 1.0)).unmerged_output == (3, 4)  # A's zero: nothing is added
