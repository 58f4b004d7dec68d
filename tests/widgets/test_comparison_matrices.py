"""Figures of single matrices set against each other: as the page has them, and only where the matrices are the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from pruning_sim import masks_run
from quantization_layer_sim import layer_run

from lab.events import Event, RunStarted
from lab.events.pruning import MaskMade, PruneErrors
from widgets.comparison.core import compare, run_of
from widgets.comparison.data import Comparison, FigurePair
from widgets.comparison.told import matrix_words
from widgets.comparison.view import captions, figure_row
from widgets.pruning.errors_section import error_rows

HELD_OUT = {"wanda": 0.0126, "magnitude": 0.0434}
"""Unlike the simulation's, whose errors on calibration text are in another ratio."""


def pruned(**more: Any) -> list[Event]:
    def changed(event: Event) -> Event:
        if isinstance(event, PruneErrors):
            return replace(event, heldout_error=HELD_OUT.get(event.setting.method, event.heldout_error))
        return event

    return [changed(event) for event in masks_run(**more)]


def compared(a: Iterable[Event], b: Iterable[Event]) -> Comparison:
    other = [replace(e, run_id="other") if isinstance(e, RunStarted) else e for e in b]
    return compare(run_of(list(a)), run_of(other))


def by_id(found: Comparison) -> dict[str, FigurePair]:
    return {f.id: f for f in found.figures}


def test_errors_are_those_that_the_page_shows() -> None:
    found = by_id(compared(pruned(), masks_run()))
    on_page = next(
        row for row in error_rows([e for e in pruned() if isinstance(e, PruneErrors)]) if row.label.startswith("Wanda")
    )
    error, _, times = on_page.cells
    assert (error, times) == ("1.26 %", "0.29 ×")
    assert (found["output_error"].a_text, found["to_magnitude"].a_text) == (error, times)
    assert found["to_magnitude"].name == "output error against magnitude's, held-out, mean"
    assert found["to_magnitude"].b_text == "0.62 ×"


def test_pictures_of_errors_have_the_page_s_unit() -> None:
    plots = {p.id: p for p in compared(pruned(), masks_run()).plots}
    assert plots["output_error"].title == "Output error of each matrix, held-out"
    assert plots["output_error"].y == "relative error, %"
    assert dict(plots["output_error"].a) == {"layer 0 q_proj": pytest.approx(1.26)}
    (quantized,) = (p for p in compared(layer_run(), layer_run(bits=3)).plots if p.id == "weight_error")
    figure = by_id(compared(layer_run(), layer_run(bits=3)))["weight_error"]
    assert figure.a is not None
    assert dict(quantized.a) == {"layer 0 q_proj": pytest.approx(100 * figure.a)}
    assert figure.a_text.endswith(" %")


def test_magnitude_has_no_ratio_to_itself() -> None:
    def by_magnitude(event: Event) -> Event:
        return replace(event, chosen=event.setting.method == "magnitude") if isinstance(event, MaskMade) else event

    found = by_id(compared(pruned(), [by_magnitude(e) for e in pruned()]))
    assert (found["to_magnitude"].a_text, found["to_magnitude"].b_text) == ("0.29 ×", "–")
    assert found["output_error"].b_text == "4.34 %"
    assert found["output_error"].against_text == "3.4 ×", "two methods of one matrix are comparable"


@pytest.mark.parametrize("make", [pruned, layer_run])
def test_other_matrices_are_not_set_against_each_other(make: Any) -> None:
    found = compared(make(layers=(0,)), make(layers=(14,)))
    for name in ("weight_error", "output_error"):
        pair = by_id(found)[name]
        assert (pair.against, pair.against_text) == (None, "–")
        assert pair.note == "different matrices: layer 0 q_proj and layer 14 q_proj"
        assert figure_row(pair).shares == (None, None), "no bars beside each other"
    assert any("Different matrices: layer 0 q_proj and layer 14 q_proj." in text for text in captions(found))
    assert ("layers", "layer 0", "layer 14") in [(d.name, d.a, d.b) for d in found.differences]


@pytest.mark.parametrize("make", [pruned, layer_run])
def test_the_same_matrices_are(make: Any) -> None:
    found = compared(make(layers=(0, 14)), make(layers=(0, 14)))
    assert by_id(found)["output_error"].against_text == "the same"
    assert not any("matrices" in f.note for f in found.figures)


def test_matrices_in_words() -> None:
    assert matrix_words([(14, "q_proj"), (0, "q_proj"), (0, "q_proj")]) == "layers 0, 14 q_proj"
    assert matrix_words([(0, "q_proj"), (0, "k_proj")]) == "2 matrices"
    assert matrix_words([]) == "0 matrices"
