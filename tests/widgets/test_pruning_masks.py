"""Masks on the `pruning` page: bits, differences, N:M, the slider, values of the part on screen, the link."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pages import fold_all, send
from pruning_sim import ends, kept_by, mask, masks_run, started

from lab.events import ArrayData, Event
from widgets.experiment import Desk
from widgets.pruning.mask_bits import MOST_GROUPS, MaskBits, NmFound, check_nm, overlap
from widgets.pruning.masks_section import MasksSection
from widgets.pruning.masks_words import mask_figures, nm_verdict
from widgets.pruning.questions import read_mask, read_values
from widgets.pruning.state import PruningState


def bits_of(kept: Any, method: str = "magnitude") -> MaskBits:
    array = np.asarray(kept, dtype=np.uint8)
    packed = ArrayData.of(np.packbits(array, axis=1, bitorder="little"), "uint8")
    return MaskBits(method, method, array.shape[0], array.shape[1], packed)


class Bench:
    """The section with a backend that answers masks and values, or refuses."""

    def __init__(self, events: list[Event], *, answers: bool = True) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answers = answers
        self.state = fold_all(PruningState, events)
        self.section = MasksSection(Desk(ask=self._ask, touch=lambda: None, lock=threading.RLock()))
        self.draw()

    def _ask(self, name: str, params: dict[str, Any], reply: Callable[..., None], *, of_run: bool) -> None:
        assert not of_run
        self.asked.append((name, params))
        if not self.answers:
            reply(None, "This was never asked while the run was recorded.")
        elif name == "mask":
            kept = kept_by(params["method"], params["layer"], (576, 576), params["sparsity"], "")
            packed = np.packbits(kept, axis=1, bitorder="little")
            bits = base64.b64encode(packed.tobytes()).decode()
            reply({**params, "rows": 576, "columns": 576, "bits": bits}, "")
        else:
            size = params["rows"] * params["columns"]
            reply({**params, "values": base64.b64encode(bytes(size)).decode(), "scale": 0.5}, "")

    def draw(self) -> Bench:
        self.section.render(self.state, self.state.steps - 1, live=False)
        return self

    def choose(self, **values: str) -> Bench:
        send(self.section._controls, type="values", changed=values)
        return self.draw()

    def move(self, sparsity: float) -> Bench:
        send(self.section._slider.widget, type="values", changed={"sparsity": sparsity})
        return self.draw()

    @property
    def view(self) -> dict[str, Any]:
        state: dict[str, Any] = self.section._view.state
        return state

    def figure(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = next(f for f in self.section._figures.state["figures"] if f["id"] == name)
        return found


def test_bits_come_out_as_they_went_in_where_columns_fill_no_byte() -> None:
    kept = np.random.default_rng(1).random((5, 13)) > 0.4
    made = bits_of(kept)
    assert (made.unpacked() == kept).all()
    assert made.kept == kept.sum()
    assert made.row_kept == kept.sum(axis=1).tolist()
    assert base64.b64decode(made.text) == made.bits.data
    wrong = MaskBits("x", "x", 5, 17, made.bits)
    assert not wrong.fits


def test_differences_are_counted_by_case() -> None:
    first, second = bits_of([[1, 1, 0, 0]]), bits_of([[1, 0, 1, 0]])
    found = overlap(first, second)
    assert found is not None
    assert (found.both, found.only_first, found.only_second, found.neither) == (1, 1, 1, 1)
    assert found.differ == 0.5
    assert overlap(first, bits_of([[1]])) is None


def test_a_group_with_too_many_is_named_along_the_right_axis() -> None:
    kept = np.tile([1, 1, 0, 0], (4, 3)).astype(np.uint8)
    assert check_nm(bits_of(kept), 2, 4).broken == 0
    kept[2, 6] = 1
    found = check_nm(bits_of(kept), 2, 4)
    assert (found.groups, found.broken, found.marked) == (12, 1, ((2, 4, 1, 4, 3),))
    assert "row 2, columns 4 to 7, 3 kept" in nm_verdict(found)[2]
    wrong = check_nm(bits_of(kept), 2, 4, "out")
    assert wrong.broken == 6  # columns that are kept whole
    assert wrong.marked[0][2:4] == (4, 1)
    assert "wrong axis" in " ".join(nm_verdict(wrong))


def test_a_mask_made_along_the_wrong_axis_is_said_to_be_so() -> None:
    found = check_nm(bits_of(np.tile([[1], [1], [0], [0]], (2, 8))), 2, 4)
    assert found.other_way == 0
    assert "Along the outputs 2:4 holds" in nm_verdict(found)[3]


def test_groups_that_do_not_fit_are_refused_and_many_are_counted_but_not_all_framed() -> None:
    assert "no whole groups of 4" in nm_verdict(check_nm(bits_of([[1, 1, 1]]), 2, 4))[1]
    full = check_nm(bits_of(np.ones((64, 64))), 2, 4)
    assert (full.broken, len(full.marked)) == (1024, MOST_GROUPS)
    assert f"The first {MOST_GROUPS} are framed." in nm_verdict(full)[2]
    assert nm_verdict(NmFound(2, 4, "in", "", 4, 0, 4, ()))[0] == "good"


def test_the_run_s_own_mask_stands_first_beside_another_and_their_difference() -> None:
    bench = Bench(list(masks_run()))
    assert [p["title"] for p in bench.view["panels"]] == ["Wanda, 50 %", "Magnitude, 50 %", "where they differ"]
    assert set(bench.section._view.bits) == {"first", "second"}
    first, second = (MaskBits.of(mask(m)) for m in ("wanda", "magnitude"))
    assert first is not None
    assert second is not None
    assert bench.section._view.bits["first"] == first.text
    found = overlap(first, second)
    assert found is not None
    assert bench.figure("apart")["value"] == f"{found.differ * 100:.1f} %"
    assert bench.figure("sparsity")["note"] == "165,888 of 331,776 kept"
    others = bench.section._others.state["rows"]
    assert [r["label"].split(",")[0] for r in others] == ["SparseGPT", "Magnitude", "At random"]
    bench.choose(second="alone")
    assert len(bench.view["panels"]) == 1
    bench.choose(first="random", second="sparsegpt")
    assert bench.view["panels"][0]["title"] == "At random, 50 %"


def test_a_mask_whose_bits_do_not_fit_is_not_drawn() -> None:
    made = mask("wanda", shape=(8, 16), chosen=True)
    broken = [started(task="masks"), made.__class__(**{**vars(made), "columns": 99}), ends()]
    bench = Bench(broken)
    assert bench.view["panels"] == []
    assert "cannot be drawn" in bench.view["empty"]


def test_the_slider_moves_quick_methods_alone() -> None:
    bench = Bench(list(masks_run()))
    assert bench.asked == []
    bench.move(0.8)
    (name, asked), *_ = bench.asked
    assert name == "mask"
    assert (asked["method"], asked["sparsity"], asked["layer"], asked["projection"]) == ("magnitude", 0.8, 0, "q_proj")
    assert [p["title"] for p in bench.view["panels"]][:2] == ["Wanda, 50 %", "Magnitude, 80 %"]
    assert "it stays as the run made it" in json.dumps(bench.section._legend.state)
    bench.choose(first="magnitude", second="random").draw()
    assert [p["title"] for p in bench.view["panels"]][:2] == ["Magnitude, 80 %", "At random, 80 %"]
    assert bench.figure("sparsity")["value"] == "80.0 %"
    bench.choose(first="wanda", second="sparsegpt")
    assert bench.section._slider.widget.layout.display == "none"
    bench.section.reset()
    assert bench.draw().view["panels"][0]["title"] == "Wanda, 50 %"


@pytest.mark.parametrize("sparsity", [0.0, 1.0])
def test_the_ends_of_the_slider_are_valid(sparsity: float) -> None:
    bench = Bench(list(masks_run())).choose(first="magnitude", second="random").move(sparsity).draw()
    assert bench.figure("sparsity")["value"] == ("100 %" if sparsity else "0 %")
    assert mask_figures(None, None)[0]["value"] == ""


def test_what_was_never_asked_leaves_the_run_s_mask_and_says_why() -> None:
    bench = Bench(list(masks_run()), answers=False).move(0.7)
    assert [p["title"] for p in bench.view["panels"]][1] == "Magnitude, 50 %"
    assert "The slider moves nothing: This was never asked" in json.dumps(bench.section._legend.state)


def test_values_are_asked_for_a_small_part_alone() -> None:
    bench = Bench(list(masks_run())).choose(colour="value")
    assert "Zoom in to see values" in json.dumps(bench.section._legend.state)
    window = {"row": 10, "column": 20, "rows": 30, "columns": 40, "scale": 12, "whole": False}
    send(bench.section._view, type="window", **window)
    bench.draw()
    name, asked = bench.asked[-1]
    assert name == "values"
    assert {key: asked[key] for key in ("row", "column", "rows", "columns")} == {k: window[k] for k in list(window)[:4]}
    assert bench.view["values"]["scale"] == 0.5
    send(bench.section._view, type="window", **{**window, "rows": 400})
    assert "Zoom in" in json.dumps(bench.draw().section._legend.state)


@pytest.mark.parametrize(
    "change", [{"row": -1}, {"row": "x"}, {"rows": 9999}, {"scale": None}, {"scale": 0}, {"columns": 0}]
)
def test_a_window_that_is_none_is_ignored(change: dict[str, Any]) -> None:
    bench = Bench(list(masks_run()))
    good = {"row": 0, "column": 0, "rows": 10, "columns": 10, "scale": 8, "whole": False}
    send(bench.section._view, type="window", **{**good, **change})
    assert bench.section.window is None


def test_a_check_frames_groups_in_the_first_mask() -> None:
    bench = Bench(list(masks_run(pattern="2:4"))).choose(check="2:4")
    assert bench.section._verdict.state["tone"] == "good"
    assert bench.view["groups"] == []
    bench.choose(check="1:4")
    assert bench.section._verdict.state["tone"] == "bad"
    assert len(bench.view["groups"]) == MOST_GROUPS
    bench.choose(check="2:4", along="out")
    assert bench.section._verdict.state["tone"] == "bad"
    assert bench.section._slider.widget.layout.display == "none"  # a pattern fixes the sparsity


def test_the_link_holds_what_is_on_screen_and_ignores_nonsense() -> None:
    bench = Bench(list(masks_run())).choose(first="magnitude", colour="value", check="4:8").move(0.9)
    send(bench.section._view, type="window", row=8, column=16, rows=20, columns=20, scale=24.0, whole=False)
    kept = {key: value for key, value in bench.section.link().items() if value is not None}
    other = Bench(list(masks_run()))
    other.section.restore(kept)
    other.draw()
    assert other.section.values == bench.section.values
    assert (other.section.sparsity, other.view["at"]) == (0.9, [8, 16, 24.0])
    for nonsense in ({"mask_at": "a,b,c"}, {"mask_at": "1,2,1e999"}, {"mask_sparsity": 3}, {"mask_first": 7}):
        fresh = Bench(list(masks_run()))
        fresh.section.restore(nonsense)
        fresh.draw()
        assert fresh.view["at"] is None


def test_answers_that_cannot_be_drawn_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        read_mask({"method": "random", "sparsity": 0.5, "rows": 4, "columns": 9, "bits": ArrayData.of([[1]], "uint8").to_json()})  # fmt: skip  # noqa: E501
    with pytest.raises(ValueError, match="values are no part"):
        read_values({"row": 0, "column": 0, "rows": 2, "columns": 2, "values": "AAAA", "scale": 1.0})
    with pytest.raises(ValueError, match="base64"):
        read_values({"row": 0, "column": 0, "rows": 2, "columns": 2, "values": "A", "scale": 1.0})
