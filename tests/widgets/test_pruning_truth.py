"""The `pruning` page says on which text, in which colour and at which loss: nothing is shown better than it is."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from pages import drawn, fold_all, walk
from pruning_answers import EXAMPLE
from pruning_sim import errors, masks_run
from pruning_sim_runs import savings_run, words_run
from test_pruning_page import Page

from widgets.bar_table import BarTable
from widgets.numbers import percent
from widgets.pruning.errors_section import ErrorsSection, error_rows, errors_verdict
from widgets.pruning.losses import stored_loss
from widgets.pruning.mask_view import MaskView
from widgets.pruning.method_marks import DENSE, MARKS, mark_of
from widgets.pruning.savings_section import savings_verdict
from widgets.pruning.state import PruningState


def test_held_out_text_leads_where_every_method_was_measured_on_it() -> None:
    best, worst = errors("sparsegpt", heldout_error=0.3), errors("wanda", heldout_error=0.1)
    assert best.calibration_error < worst.calibration_error  # what leads is not the calibration text
    assert [r.label for r in error_rows([best, worst])] == ["Wanda, 50\u00a0%", "SparseGPT, 50\u00a0%"]
    assert error_rows([best, worst])[0].bars[0].value == 0.1
    missing = replace(worst, heldout_error=math.nan)
    text = errors_verdict([best, missing], live=False)[1]
    assert text.startswith("Least lost on calibration text: SparseGPT")
    assert error_rows([best, missing])[0].bars[0].value == best.calibration_error


def test_errors_stand_on_a_scale_of_powers_of_ten_with_ticks() -> None:
    state = fold_all(PruningState, masks_run())
    shown = drawn(ErrorsSection, state)._bars.state
    values = [bar[0] for row in shown["rows"] for bar in row["bars"]]
    assert 0 < shown["low"] < min(values)
    assert max(values) < shown["most"]
    assert [text for _, text in shown["ticks"]]
    assert all(shown["low"] <= value <= shown["most"] for value, _ in shown["ticks"])
    assert "powers of ten" in json.dumps(drawn(ErrorsSection, state)._caption.state)


def test_a_method_has_one_colour_in_all_pictures() -> None:
    page = Page({"worked_example": EXAMPLE}).run(list(masks_run()))
    state = page.views.state
    seen: dict[str, set[str]] = {}
    for view in walk(page.views.widget):
        for row in view.state.get("rows", ()) if isinstance(view, BarTable) else ():
            name = row["label"].partition(",")[0]
            seen.setdefault(name, set()).update(f"--lab-series-{bar[1]}" for bar in row["bars"])
        if isinstance(view, MaskView):
            for which, variable in view.state["colours"].items():
                seen.setdefault(view.state["names"][which].partition(",")[0], set()).add(variable)
    for made in state.masks:
        name = made.setting.label.partition(",")[0]
        colour = mark_of(made.setting.method).colour
        assert seen[name] == {colour if colour != "--lab-muted" else f"--lab-series-{DENSE}"}, name
    assert len({mark.series for mark in MARKS}) == len(MARKS)


@pytest.mark.parametrize(("kl", "tone", "words"), [(0.05, "good", "within 0.1"), (math.nan, "none", "not measured")])
def test_a_saving_has_a_tick_only_where_its_loss_is_known_and_small(kl: float, tone: str, words: str) -> None:
    state = fold_all(PruningState, savings_run(rows_kl=kl))
    found = savings_verdict(state, live=False)
    assert found[0] == tone
    assert words in found[2]


def test_stored_bytes_say_what_was_lost_for_them() -> None:
    masks = fold_all(PruningState, masks_run())
    one = next(iter(masks.stored.values()))
    own = next(e for e in masks.errors if e.setting == one.setting)
    tone, lost = stored_loss(masks, one)
    assert (tone, lost) == (
        "good",
        f"Lost for it: {percent(own.heldout_error)} of the layer’s output on held-out text.",
    )
    savings = fold_all(PruningState, savings_run())
    assert stored_loss(savings, next(iter(savings.stored.values())))[0] == "bad"
    words = fold_all(PruningState, words_run())
    assert stored_loss(words, next(iter(words.stored.values()))) == (
        "none",
        "What is lost for it was not measured in this run.",
    )
