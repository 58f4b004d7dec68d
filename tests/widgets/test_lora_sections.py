"""Sections of the `lora` page: words and numbers against the events, answers that fit and that do not."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from lora_answers import ANSWERS, EXAMPLE, scale_answer
from lora_pages import Page
from lora_runs import adapter, compare_run, ends, merge_run, started, swap_run, train_run
from pages import drawn, fold_all, send
from words_sim import HOSTILE

from lab.events import ArrayData
from lab.events.lora import MergeFigures, SwapRow, Trained, TrainingData, TrainStep, UpdateMap, UpdateSpectrum
from lab.experiments.compared.fields import PROJECTIONS
from widgets.asker import NEVER_ASKED, RUN_AGAIN
from widgets.experiment import Desk
from widgets.lora.adapter_section import AdapterSection, adapter_verdict
from widgets.lora.data_section import DataSection
from widgets.lora.example_section import both_ways, checked, said
from widgets.lora.map_section import MapSection
from widgets.lora.merge_section import MergeSection
from widgets.lora.merge_words import merge_verdict, name_of
from widgets.lora.proof import differences, proof_figures
from widgets.lora.scale_section import WARM, ScaleSection
from widgets.lora.scale_words import read
from widgets.lora.spectrum_section import SpectrumSection, kept_figures, read_spectra
from widgets.lora.state import MERGED, LoraState
from widgets.lora.swap_section import SwapSection, swap_verdict
from widgets.lora.training_section import TrainingSection, training_verdict
from widgets.lora.words_section import WordsSection, before_after


def of_kind(events: Any, kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def test_three_rows_and_what_differs_between_adapter_and_merged_is_a_fault() -> None:
    state = fold_all(LoraState, compare_run())
    section = drawn(WordsSection, state)
    pairs = section._pairs.state["pairs"]
    assert section._pairs.state["rows"] == 3
    assert all(len(pair) == 7 for pair in pairs)
    assert (pairs[3][2], pairs[3][6]) == (False, False)
    tone, text, notes = before_after(state, 99, live=False)
    assert tone == "good"
    assert text.startswith("Other words from new token 4 on: “ largest” instead of “ fifth”")
    assert notes[0] == "Merged: the same words as with the adapter on."
    broken = list(state.words[MERGED])
    broken[5] = replace(broken[5], token_id=3, text=" nought")
    state.words[MERGED] = broken
    tone, _, notes = before_after(state, 99, live=False)
    assert tone == "bad"
    assert "another word at new token 6, “ nought”" in notes[0]


def test_an_adapter_without_effect_is_even_and_says_why() -> None:
    page = Page(ANSWERS).run(list(compare_run(effectless="B is 0 everywhere")))
    assert "has no effect" in page.text()
    assert "Because B is 0 everywhere." in page.text()
    wrong = fold_all(LoraState, [started(), adapter(matches="it was made for a vocabulary of 7")])
    assert adapter_verdict(wrong, live=False)[0] == "bad"


def test_the_proof_s_figures_are_those_of_its_detail() -> None:
    state = fold_all(LoraState, compare_run())
    assert differences(state) == [("adapter", 5.4e-5)]
    figures = {f["id"]: f for f in proof_figures(state)}
    assert figures["logit_difference"]["value"] == "5.4 × 10⁻⁵"
    assert figures["relative_difference"]["note"].endswith("within the limit 1 × 10⁻⁵")
    wrong = fold_all(LoraState, compare_run(verdict="different"))
    assert {f["id"]: f for f in proof_figures(wrong)}["relative_difference"]["note"].endswith(
        "above the limit 1 × 10⁻⁵"
    )
    assert proof_figures(LoraState())[0]["value"] == ""


def test_training_tells_the_best_step_and_a_rise_after_it() -> None:
    state = fold_all(LoraState, train_run())
    section = drawn(TrainingSection, state)
    data = section._plot.state["data"]
    done = state.trained
    assert isinstance(done, Trained)
    assert data["best"]["x"] == [done.best_step]
    assert data["batch"]["x"][0] == 1
    tone, text, kept, _ = training_verdict(state, state.training, live=False)
    assert (tone, text) == ("good", "Held-out loss from 3.27 to 0.088 nats a token")
    assert f"after step {done.best_step} of 48" in kept
    assert "by heart" in kept
    stopped = fold_all(LoraState, train_run(upto=9, stopped="stopped"))
    assert "Ended early: stopped" in training_verdict(stopped, stopped.training, live=False)[3]
    worse = replace(done, best_step=0, heldout_after=done.heldout_before)
    state.trained = worse
    assert training_verdict(state, state.training, live=False)[0] == "bad"
    state.trained = replace(done, heldout_before=math.nan, heldout_after=math.nan)
    assert "Nothing was held out." in training_verdict(state, state.training, live=False)


def test_a_loss_that_is_no_number_is_left_out() -> None:
    events = [replace(e, loss=math.nan, heldout_loss=math.inf) for e in of_kind(train_run(), TrainStep)]
    section = drawn(TrainingSection, fold_all(LoraState, [started(task="train"), *events, ends()]))
    assert section._plot.state["data"]["batch"]["x"] == []
    assert section._plot.state["data"]["best"]["x"] == []
    json.dumps(section._plot.state, allow_nan=False)


def test_a_changed_base_is_a_fault() -> None:
    events = [replace(e, base_untouched=False) if isinstance(e, Trained) else e for e in train_run()]
    assert adapter_verdict(fold_all(LoraState, events), live=False)[:2] == ("bad", "The base was changed")
    assert adapter_verdict(fold_all(LoraState, train_run()), live=False)[0] == "good"


def test_enough_is_offered_while_it_trains_and_asked_of_the_run() -> None:
    page = Page({"enough": {"training": True}})
    living = list(train_run(upto=6))[:60]
    upto = [e for e in living if not isinstance(e, Trained)]
    upto = upto[: max(i for i, e in enumerate(upto) if isinstance(e, TrainStep)) + 1]
    page.run(upto, live=True)
    section = page.views.section("TrainingSection")
    assert isinstance(section, TrainingSection)
    send(section._enough.widget, type="action", id="enough")
    assert ("enough", {}, True) in page.asked
    page.views.render(live=True)
    assert "ends after this step" in page.text()
    page.run(list(train_run()))
    assert section._enough.widget.state["actions"] == []


def test_the_data_names_its_splits() -> None:
    state = fold_all(LoraState, train_run())
    section = drawn(DataSection, state)
    assert [f["value"] for f in section._figures.state["figures"]] == ["72", "12", "12.9"]
    data = state.data
    assert isinstance(data, TrainingData)
    state.data = replace(data, heldout_examples=0, heldout_tokens=0, examples=(("a\nb", HOSTILE),))
    again = drawn(DataSection, state)
    assert "none is held out" in json.dumps(again._caption.state)
    assert HOSTILE in json.dumps(again._examples.state)


def test_parameters_are_shares_of_the_base_and_of_the_matrices() -> None:
    section = drawn(AdapterSection, fold_all(LoraState, compare_run()))
    figures = {f["id"]: f for f in section._figures.state["figures"]}
    assert figures["parameters"]["value"] == "460,800"
    assert "0.34\u00a0%" in figures["parameters"]["note"]
    assert figures["matrix_share"]["value"] == "3.5\u00a0%"
    assert figures["bytes"]["value"] == "1.76"
    told = drawn(AdapterSection, fold_all(LoraState, compare_run(rslora=True, scale=16 / math.sqrt(8))))
    assert "rsLoRA, rank 8, scale 16 / √8 = 5.657" in json.dumps(told._about.state, ensure_ascii=False)


def test_the_map_leaves_matrices_without_an_update_empty() -> None:
    state = fold_all(LoraState, compare_run())
    section = drawn(MapSection, state)
    data = section._plot.state["data"]
    assert (3, PROJECTIONS.index("v_proj")) in zip(data["none"]["x"], data["none"]["y"], strict=True)
    assert data["empty"]["x"] == []  # nothing more is to come
    assert "not adapted" in data["names"]["text"]
    assert len(section._plot.state["data"]["cells"]["x"]) == 59
    strange = UpdateMap(adapter="x", projections=("a", "b"), norms=ArrayData.of([[math.nan]], "float32"))
    assert "No matrix has an update." in json.dumps(
        drawn(MapSection, fold_all(LoraState, [started(), strange]))._caption.state
    )


def test_fewer_singular_values_lose_what_the_events_say() -> None:
    state = fold_all(LoraState, compare_run())
    event = next(iter(state.spectra.values()))
    spectra = read_spectra(event)
    assert spectra is not None
    assert spectra.error(8) == 0
    assert spectra.error(0) == pytest.approx(1.0)
    values = spectra.values.astype(float)
    wanted = math.sqrt((values[:, 3:] ** 2).sum() / (values**2).sum())
    assert spectra.error(3) == pytest.approx(wanted, rel=1e-5)
    figures = {f["id"]: f for f in kept_figures(spectra, 2, state.own)}
    assert figures["kept_parameters"]["value"] == "115,200"
    section = drawn(SpectrumSection, state)
    assert section._plot.state["data"]["kept"]["x"] == [1, 2, 3, 4]
    send(section._slider.widget, type="values", changed={"keep": 2}, invalid=[])
    section.render(state, 0, live=False)
    assert section._plot.state["data"]["cut"]["x"] == [3, 4, 5, 6, 7, 8]
    assert section.link() == {"keep": 2}
    broken = replace(event, values=ArrayData.of(values * math.nan, "float32"))
    assert read_spectra(broken) is None
    assert isinstance(broken, UpdateSpectrum)
    assert "no number" in Page(ANSWERS).run([started(), broken, ends()]).text()


def test_the_scale_follows_the_slider_and_asks_of_the_run() -> None:
    page = Page(ANSWERS).run(list(compare_run()))
    for _ in range(len(WARM) + 2):
        page.views.render(live=False)
    asked = [params for name, params, of_run in page.asked if name == "scale" and of_run]
    assert {a["factor"] for a in asked} == set(WARM)
    assert {a["row"] for a in asked} == {"adapter"}
    section = page.views.section("ScaleSection")
    assert isinstance(section, ScaleSection)
    send(section._slider.widget, type="values", changed={"factor": 0.35}, invalid=[])
    page.views.render(live=False)
    rows = section._bars.state["rows"]
    wanted = scale_answer(0.35)["tokens"]
    assert [row["bars"][0][0] for row in rows] == pytest.approx([t["p"] for t in wanted])
    assert section.link() == {"scale": 0.35}
    send(section._rows.widget, type="values", changed={"which": "1"}, invalid=[])
    page.views.render(live=False)
    assert page.asked[-1][1]["row"] == "dense" or ("scale", {"factor": 0.35, "row": "dense"}, True) in page.asked


def test_in_a_replay_the_nearest_scale_that_was_recorded_is_shown() -> None:
    recorded, why = (0.0, 1.0), "Never asked."
    count = 0

    def ask(name: str, params: dict[str, Any], reply: Callable[..., None], *, of_run: bool) -> None:
        nonlocal count
        assert (name, of_run) == ("scale", True)
        count += 1
        there = params["factor"] in recorded
        reply(scale_answer(params["factor"]) if there else None, "" if there else why)

    state = fold_all(LoraState, compare_run())
    section = ScaleSection(Desk(ask=ask, touch=lambda: None, lock=threading.RLock()))
    for _ in range(20):
        section.render(state, 99, live=False)
    assert count == len(WARM)  # what is refused is not asked again and again
    section.factor = 0.3
    section.render(state, 99, live=False)
    assert "At 0.3: Never asked. The nearest that was recorded, 0, is shown." in json.dumps(section._words.state)
    section.factor, why = 0.4, f"{NEVER_ASKED} {RUN_AGAIN}"
    section.render(state, 99, live=False)
    assert "Press Run to read at other scales: the recorded run was not read at 0.4." in json.dumps(
        section._words.state
    )
    assert section._bars.state["rows"]


def test_an_answer_that_cannot_be_read_is_refused() -> None:
    answer = scale_answer()
    assert len(read(answer).tokens) == 14
    for broken in ({**answer, "tokens": 3}, {**answer, "tokens": [{"p": 2}]}, {"row": "adapter"}):
        with pytest.raises((KeyError, TypeError, ValueError, IndexError)):
            read(broken)
    answer["tokens"][0]["p"] = math.nan
    with pytest.raises(ValueError, match="between 0 and 1"):
        read(answer)


def test_swapping_back_is_equal_or_a_fault() -> None:
    state = fold_all(LoraState, swap_run())
    assert swap_verdict(state, state.swaps, live=False)[1] == "A, B, A: the first adapter is itself again, 2 prompts"
    section = drawn(SwapSection, state)
    assert [len(table.state["rows"]) for _, table in section._tables] == [4, 4]
    assert section._tables[0][1].state["rows"][3]["cells"] == ["4.00 µs", "1.76 MiB", "✓ equal"]
    wrong = [replace(e, same_again=False) if isinstance(e, SwapRow) and e.index == 3 else e for e in swap_run()]
    assert swap_verdict(s := fold_all(LoraState, wrong), s.swaps, live=False)[0] == "bad"
    early = fold_all(LoraState, swap_run(upto=2, end="stopped"))
    assert swap_verdict(early, early.swaps, live=False)[0] == "none"


def test_merging_names_the_base_and_what_is_lost() -> None:
    state = fold_all(LoraState, merge_run())
    tone, text, *_ = merge_verdict(state, state.merges, live=False)
    assert (tone, text) == ("bad", "int4, re\u2011quantized: worse than merging nothing")
    section = drawn(MergeSection, state)
    assert [row["cells"][0] for row in section._lost.state["rows"]] == [
        "3.1 × 10⁻¹¹ %",
        "0.13 %",
        "3.1 × 10⁻¹¹ %",
        "117 %",
    ]
    assert [row["cells"] for row in section._shapes.state["rows"]] == [
        ["yes", "yes"],
        ["no", "yes"],
        ["yes", "yes"],
        ["no", "yes"],
    ]
    assert [row["label"] for row in section._times.state["rows"]] == ["base", "adapter on", "merged"]
    assert "merged into the model's own float32 weights" in json.dumps(section._bases.state)
    assert name_of("bfloat16") == "bf16"
    first = state.merges[0]
    assert isinstance(first, MergeFigures)
    assert merge_verdict(state, [replace(first, same_form=False)], live=False)[0] == "bad"
    nothing = replace(first, lost=math.nan, vanished=math.nan, divergence=None, max_logit_difference=math.nan)
    assert merge_verdict(state, [nothing], live=False)[1] == "Nothing was measured"
    Page(ANSWERS).run([started(task="merge"), nothing, ends()])


def test_the_count_is_the_seed_text_s() -> None:
    page = Page(ANSWERS).run(list(compare_run()))
    assert ("count", {"columns": 4096, "rows": 4096, "rank": 8}, False) in page.asked
    assert "8 × (4,096 + 4,096) = 65,536 of 16,777,216: 0.39\u00a0%." in page.text()


def test_the_worked_example_ends_in_the_same_row_both_ways() -> None:
    lines = both_ways(checked(EXAMPLE))
    assert [line.parts[-1].rows for line in (lines[0], lines[2])] == [[["5", "7"]], [["5", "7"]]]
    assert said(EXAMPLE) == ("good", "y = (5, 7) both ways")
    assert said({**EXAMPLE, "merged_output": [5.0, 6.0]})[0] == "bad"
    assert lines[0].parts[2].sign == "+ 2 ·"
    for broken in ({**EXAMPLE, "merged": [[1.0]]}, {**EXAMPLE, "inner": []}, {"scale": 2}):
        with pytest.raises((KeyError, TypeError, ValueError, IndexError)):
            checked(broken)
