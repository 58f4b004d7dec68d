"""The `quantization` page's words and packed kernels without a browser, against the events they draw."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any

import pytest
from pages import drawn
from quantization_spoken import INT4, PACKED, packed_run, words_run
from quantization_whole import ends, started
from test_quantization_whole import folded
from words_sim import HOSTILE, OTHER, WORDS

from lab.events.quantization_words import PackedFigures, PackedToken
from lab.events.words import Variant
from widgets.format import format_bytes
from widgets.quantization.packed_plot import _apart, line_name
from widgets.quantization.packed_section import PackedSection, best, packed_verdict
from widgets.quantization.words_section import WordsSection
from widgets.word_pairs import LIMIT, Pair, Word, WordPairs
from widgets.words.rows import different_rows, first_difference, pairs, probability, verdict


def test_both_rows_stand_on_one_axis() -> None:
    state = folded(words_run())
    found = pairs(state, "weights", state.steps - 1)
    assert [p.upper.text for p in found if p.upper] == list(WORDS)
    assert [p.lower.text for p in found if p.lower] == list(OTHER)
    same = [a == b for a, b in zip(WORDS, OTHER, strict=True)]
    assert [p.same for p in found] == same
    assert first_difference(state, "weights", 99) == same.index(False) == 3
    assert first_difference(state, "cache", 99) is None
    assert first_difference(state, "weights", 2) is None  # not yet at the scrubber's place


def test_the_verdict_names_the_first_other_word_or_says_that_there_is_none() -> None:
    state = folded(words_run())
    tone, text, notes = verdict(state, "weights", 99, live=False)
    assert tone == "bad"
    assert "new token 4" in text
    assert "“ largest” instead of “ fifth”" in text
    assert any("SIMULATED" in note for note in notes)
    assert verdict(state, "cache", 99, live=False)[:2] == ("good", f"The same words, {len(WORDS)} new tokens")
    live = folded(islice(words_run(), 20))
    assert verdict(live, "weights", 0, live=True)[0] == "pending"


def test_cache_and_activations_are_named_and_can_be_chosen() -> None:
    state = folded(words_run())
    section = drawn(WordsSection, state)
    field = section._choice.state["schema"]["properties"]["variant"]
    assert any("key/value cache" in label for label in field["labels"])
    assert any("activations" in label for label in field["labels"])
    assert section._cache.widget not in section.widget.children
    section._choice._handle_custom_msg({"type": "values", "changed": {"variant": "cache"}, "invalid": []}, [])
    section.render(state, state.steps - 1, live=False)
    assert section._cache.widget in section.widget.children
    figures = {f["id"]: f for f in section._cache._figures.state["figures"]}
    cache = state.caches["cache"]
    total = cache.code_bytes + cache.scale_bytes + cache.dense_bytes
    assert f"{figures['cache_bytes']['value']} MiB" == format_bytes(total)
    assert figures["cache_bytes"]["badge"] == "SIMULATED"
    assert figures["cache_ratio"]["value"] == f"{cache.plain_bytes / total:.2f}"
    assert section.link()["row"] == "cache"


def test_the_most_different_words_come_first() -> None:
    state = folded(words_run())
    rows = different_rows(state.compared["weights"], state.naming)
    kls = [float(row.cells[2]) for row in rows]
    assert kls == sorted(kls, reverse=True)
    assert kls[0] == pytest.approx(max(w.kl for w in state.compared["weights"].words), rel=0.01)


def test_hover_and_lock_choose_the_word_that_is_explained() -> None:
    state = folded(words_run())
    section = drawn(WordsSection, state)
    most = state.compared["weights"].order[0]
    assert section.place(state, 99) == most
    section._pairs._handle_custom_msg({"type": "lock", "index": 7}, [])
    assert section.place(state, 99) == 7
    section._pairs._handle_custom_msg({"type": "hover", "index": 5}, [])
    section.render(state, state.steps - 1, live=False)
    assert section.place(state, 99) == 5
    assert section._pairs.state["selected"] == 5
    assert section._pairs.state["locked"] == 7
    assert section._why.state["lines"][0][1].startswith("New token 6")
    assert section.link()["word"] == 8
    other = WordsSection(section._desk)
    other.restore({"word": 8, "row": "weights"})
    assert other.place(state, 99) == 7
    for bad in (0, -1, True, "7", 1e9, None):
        other.restore({"word": bad})
    assert other.locked == 7
    for bad_message in ({"index": 999}, {"index": -1}, {"index": "1"}, {}):
        section._pairs._handle_custom_msg({"type": "hover", **bad_message}, [])
        assert section.hover is None


def test_the_candidates_have_both_models_probabilities() -> None:
    state = folded(words_run())
    section = drawn(WordsSection, state)
    place = section.place(state, 99)
    assert place is not None
    word = state.compared["weights"].words[place]
    rows = section._candidates.state["rows"]
    own = next(r for r in rows if r["title"] == f"token {word.token_id}")
    assert own["cells"] == [probability(word.p), probability(word.q)]


def test_words_of_a_model_are_text_everywhere() -> None:
    state = folded(words_run())
    section = drawn(WordsSection, state)
    shown = [pair[1][0] for pair in section._pairs.state["pairs"] if pair[1]]
    assert HOSTILE in shown  # data; the page sets it with textContent, see the browser tests
    assert any("U+202E" in line[1] for line in section._texts.state["lines"])
    assert not any("\u202e" in line[1] for line in section._texts.state["lines"])
    labels = [row["label"] for row in section._different.state["rows"] + section._candidates.state["rows"]]
    assert "\u202eabc" not in labels


def test_tables_hold_both_rows_and_every_compared_word() -> None:
    state = folded(words_run())
    section = drawn(WordsSection, state)
    by_name = {t.name: t for t in section.tables(state)}
    assert [r[1] for r in by_name["words_weights"].rows] == list(WORDS)
    assert [r[-1] for r in by_name["words_weights"].rows][:4] == ["yes", "yes", "yes", "no"]
    assert len(by_name["compared_cache"].rows) == len(WORDS)
    assert len(by_name["cache_bytes"].rows) == 2


def test_probabilities_are_written_so_that_small_ones_stay_apart() -> None:
    assert [probability(p) for p in (0.8, 0.05, 0.0004, 0.0, math.nan)] == ["0.80", "0.050", "<0.001", "0.000", "–"]


def test_the_pairs_send_only_the_newest_and_keep_their_places() -> None:
    view = WordPairs()
    one = Pair(Word("a", "0.5"), None, None, None, "a")
    view.show([one] * (LIMIT + 20), selected=LIMIT + 3)
    assert (view.state["start"], len(view.state["pairs"])) == (20, LIMIT)
    heard: list[int | None] = []
    view.on_lock(heard.append)
    view._handle_custom_msg({"type": "lock", "index": LIMIT + 19}, [])
    view._handle_custom_msg({"type": "lock", "index": LIMIT + 20}, [])
    assert heard == [LIMIT + 19, None]


@pytest.mark.parametrize("kind", [WordsSection, PackedSection])
def test_before_the_first_token_there_are_words_and_no_error(kind: Any) -> None:
    for task in ("words", "packed"):
        for live in (True, False):
            made = drawn(kind, folded([started(task=task)]), live=live)
            assert made._verdict.state["text"]


# packed


def test_every_variant_has_its_measured_figures() -> None:
    state = folded(packed_run())
    section = drawn(PackedSection, state)
    assert {f["badge"] for f in section._figures.state["figures"]} == {"MEASURED"}
    fastest = best(state)
    assert fastest is not None
    assert fastest.variant == "int8"
    rows = section._decode.state["rows"]
    assert [r["label"] for r in rows] == [label for _, label, _ in (*PACKED, INT4)]
    for row, (name, _, _) in zip(rows, (*PACKED, INT4), strict=True):
        found = state.packed_figures[name]
        assert row["cells"][0] == f"{found.tokens_per_s:.1f}"
        assert row["cells"][2] == f"{found.speedup:.2f}"
    sizes = {r["label"]: r["cells"] for r in section._sizes.state["rows"]}
    assert sizes["int8, head too"] == [
        format_bytes(state.packed_figures["int8"].resident_bytes),
        format_bytes(state.packed_figures["int8"].disk_bytes),
    ]
    assert sizes["dense, fp32"][1] == "not written"
    assert len(section._prefill.state["rows"]) == 4


def test_words_are_equal_or_the_first_difference_is_told() -> None:
    state = folded(packed_run())
    section = drawn(PackedSection, state)
    equal = {r["label"]: r["cells"][0] for r in section._equal.state["rows"]}
    assert equal == {"int8, head too": "40 of 40", "int8, dense head": "40 of 40", "int4, groups of 32": "9 of 40"}
    said = " ".join(line[1] for line in section._differences.state["lines"])
    assert "token 10" in said
    assert "dense, fp32" not in said
    assert ".." not in said
    state.packed_figures["int4"] = replace(state.packed_figures["int4"], speedup=9.0)
    notes = packed_verdict(state, live=False)[2]
    assert notes[0].startswith("Words: 9 of 40 equal. token 10: ")
    assert notes[0].endswith(".")
    assert not notes[0].endswith("..")


@pytest.mark.parametrize(
    ("speedup", "tone", "words"), [(1.6, "good", "1.60 times"), (0.7, "bad", "No packed"), (1.0, "even", "as fast as")]
)
def test_slower_is_called_slower(speedup: float, tone: str, words: str) -> None:
    state = folded(packed_run())
    state.packed_figures = {
        name: replace(f, speedup=1.0 if name == "dense" else speedup if name == "int8" else 0.1)
        for name, f in state.packed_figures.items()
    }
    found = packed_verdict(state, live=False)
    assert found[0] == tone
    assert words in found[1]


def test_a_file_that_came_back_different_is_said() -> None:
    state = folded(packed_run())
    state.packed_figures["int4"] = replace(state.packed_figures["int4"], reloaded=False)
    section = drawn(PackedSection, state)
    assert "different: int4" in section._size_words.state["lines"][0][1]


def test_while_it_runs_medians_so_far_stand_in_and_a_stopped_run_keeps_them() -> None:
    events = list(packed_run(upto=12, end="stopped"))
    live = drawn(PackedSection, folded(events[:-1]), live=True)
    assert live._verdict.state["tone"] == "pending"
    assert [r["cells"][2] for r in live._decode.state["rows"]] == ["1.00", "2.00", "1.56", "1.75"]
    assert {f["value"] for f in live._figures.state["figures"]} <= {"", "–"}
    stopped = drawn(PackedSection, folded(events))
    assert stopped._verdict.state["text"] == "The run ended before it was measured."
    data = live._plot.state["data"]
    assert len(data["row0"]["x"]) == 12
    assert data["row0"]["y"][-1] > data["row1"]["y"][-1]


def test_the_scrubber_shortens_every_line() -> None:
    state = folded(packed_run())
    data = drawn(PackedSection, state, upto=5)._plot.state["data"]
    assert [len(data[f"row{i}"]["x"]) for i in range(5)] == [6, 6, 6, 6, 0]


def test_names_of_lines_do_not_cover_each_other() -> None:
    heights = [0.1, 0.101, 0.102, 0.9]
    at = [h * 190 - o for h, o in zip(heights, _apart(heights), strict=True)]
    assert all(b - a >= 13 - 1e-9 for a, b in pairwise(at))


def test_a_variant_that_only_tokens_name_is_shown_by_its_name() -> None:
    token = PackedToken(variant=HOSTILE, index=0, token_id=1, text=HOSTILE, ms=9.0, matched=True, is_end=False)
    later = replace(token, index=1)
    dense = Variant(name="dense", label="dense", truth="dense")
    state = folded([started(task="packed"), dense, token, later, ends("stopped")])
    section = drawn(PackedSection, state)
    assert HOSTILE in [r["label"] for r in section._decode.state["rows"]]
    assert section.tables(state)[1].rows[0][3] == HOSTILE


def test_infinite_and_missing_figures_are_dashes() -> None:
    state = folded(packed_run())
    odd = PackedFigures(
        variant="int8",
        disk_bytes=0,
        reloaded=None,
        resident_bytes=1,
        decode_ms=1.0,
        tokens_per_s=1000.0,
        prefill_ms=1.0,
        prompt_tokens=4,
        speedup=math.nan,
        prefill_speedup=math.inf,
        steps=0,
        equal=0,
        of=0,
        difference="",
    )
    state.packed_figures["int8"] = odd
    section = drawn(PackedSection, state)
    row = next(r for r in section._decode.state["rows"] if r["label"] == "int8, head too")
    assert row["cells"][2] == "–"
    assert next(r for r in section._equal.state["rows"] if r["label"] == "int8, head too")["cells"] == ["–"]


def test_lines_of_packed_variants_have_names_of_their_own() -> None:
    variants = ("dense", "int8", "int8_dense_head", "int4", "int4_dense_head")
    names = [line_name(variant) for variant in variants]
    assert names == ["dense", "int8", "int8, dense head", "int4", "int4, dense head"]
