"""The index page from its recordings: figures, pictures, questions; what changes in a recording changes on the page."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from samples import sample_facts

from lab.events import Event, Recording, RunCancelled, RunFinished, RunStarted
from lab.events.beam_search import BeamResult, BeamStep, PathFollowed
from lab.events.kv_cache import CacheLedger
from lab.events.lora import AdapterFacts
from lab.events.pruning import PruneErrors
from lab.events.quantization import LayerErrors
from lab.events.speculative import SpeculativeFigures, SpeculativeRound
from lab.events.words import WordToken
from lab.experiments.registry import EXPERIMENTS
from lab.strings import languages, strings
from widgets import front_page
from widgets.assets import read
from widgets.front.card import card_html, cost_of
from widgets.front.page import front_html
from widgets.front.path import PATH
from widgets.front.prediction import Prediction, prediction_html
from widgets.front.tree import tree_of
from widgets.make_recording import draw_stills
from widgets.page_links import PageLinks, page_links
from widgets.poster import poster_html, thumbnail_html
from widgets.speculative.figures import typeset
from widgets.stills import FOLDER, still_name

WORDS = strings()
HOSTILE = "<img src=x onerror=alert(1)>"
Change = Callable[[Any], Any]


@pytest.fixture(scope="module")
def recordings() -> dict[str, Recording]:
    return {name: Recording.load(FOLDER / f"{name}.safetensors") for name in EXPERIMENTS}


def ask(name: str, recording: Recording) -> Prediction | None:
    found: Prediction | None = import_module(f"widgets.{name}.predict").prediction(recording, WORDS)
    return found


def asked(name: str, recording: Recording) -> Prediction:
    prediction = ask(name, recording)
    assert prediction is not None
    return prediction


def changed(recording: Recording, kind: type[Event], change: Change) -> Recording:
    """The recording with `change` made to each event of a kind, which it must have."""
    assert any(isinstance(e, kind) for e in recording.events)
    return replace(recording, events=tuple(change(e) if isinstance(e, kind) else e for e in recording.events))


def without(recording: Recording, *kinds: type[Event]) -> Recording:
    return Recording(tuple(e for e in recording.events if not isinstance(e, kinds)))


def text_of(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", markup))


def test_the_packaged_stills_are_those_of_the_recordings(tmp_path: Path) -> None:
    for path in FOLDER.glob("*.safetensors"):
        (tmp_path / path.name).symlink_to(path)
    draw_stills(tmp_path)
    names = {path.name for path in tmp_path.glob("*.html")}
    assert names == {still_name(name, code) for name in (*EXPERIMENTS, "index") for code in languages()}
    for name in names:
        assert (FOLDER / name).read_bytes() == (tmp_path / name).read_bytes(), f"{name}: make_recording stills"


def test_each_card_has_its_question_its_picture_its_link_and_what_the_run_took(
    recordings: dict[str, Recording],
) -> None:
    for name, recording in recordings.items():
        card = card_html(EXPERIMENTS[name], recording, WORDS)
        end = recording.events[-1]
        assert isinstance(end, RunFinished)
        assert f'href="{name}.ipynb"' in card
        assert EXPERIMENTS[name].title in text_of(card)
        assert card.count("<svg") == 1
        assert 'role="img" aria-label="' in card
        seconds = float(re.findall(r"<b>([\d.]+) s</b> a run", card)[0])
        assert seconds == pytest.approx(end.compute_ms / 1000, rel=5e-3)
        mib = float(re.findall(r"<b>([\d.]+) MiB</b> weights", card)[0])
        assert mib == pytest.approx(recording.started.facts.weight_bytes / 2**20, rel=5e-3)


def test_a_changed_run_changes_the_card(recordings: dict[str, Recording]) -> None:
    recording = recordings["kv_cache"]
    longer = changed(recording, RunFinished, lambda e: replace(e, compute_ms=2 * e.compute_ms, peak_bytes=3 * 2**30))
    before, after = (text_of(card_html(EXPERIMENTS["kv_cache"], r, WORDS)) for r in (recording, longer))
    assert before != after
    assert "3.00 GiB peak" in after
    larger = changed(recording, RunStarted, lambda e: replace(e, facts=replace(e.facts, weight_bytes=7 * 2**30)))
    assert "7.00 GiB weights" in text_of(card_html(EXPERIMENTS["kv_cache"], larger, WORDS))


def test_a_card_without_a_finished_run_names_no_figure(recordings: dict[str, Recording]) -> None:
    stopped = Recording((*recordings["lora"].events[:-1], RunCancelled()))
    assert cost_of(stopped) is None
    for recording in (stopped, None):
        card = card_html(EXPERIMENTS["lora"], recording, WORDS)
        assert "a run" not in text_of(card)
        assert EXPERIMENTS["lora"].title in text_of(card)
    assert text_of(front_html({}, WORDS)).count("min") >= len(PATH)


def test_thumbnails_are_smaller_than_posters_and_follow_the_run(recordings: dict[str, Recording]) -> None:
    for name, recording in recordings.items():
        small = thumbnail_html(name, recording)
        assert "<svg" in small
        assert len(small) < len(poster_html(name, recording, WORDS))
    half = tuple(e for e in recordings["kv_cache"].events if not isinstance(e, CacheLedger) or e.cache_length < 40)
    assert "at 39 tokens" in thumbnail_html("kv_cache", Recording(half))
    assert "at 59 tokens" in thumbnail_html("kv_cache", recordings["kv_cache"])


def test_text_in_thumbnails_has_the_colours_of_text(recordings: dict[str, Recording]) -> None:
    fills = [
        fill
        for name, recording in recordings.items()
        for fill in re.findall(r'<text[^>]*fill="([^"]+)"', thumbnail_html(name, recording))
    ]
    assert set(fills) == {"var(--lab-text)", "var(--lab-muted)"}  # 4.5 on every ground, in light and dark


def test_thumbnails_and_questions_escape_the_model_s_words(recordings: dict[str, Recording]) -> None:
    spec = changed(
        recordings["speculative"],
        SpeculativeRound,
        lambda e: replace(e, tokens=tuple(replace(t, text=HOSTILE) for t in e.tokens)),
    )
    words = changed(recordings["lora"], WordToken, lambda e: replace(e, text=HOSTILE))
    beam = changed(recordings["beam_search"], PathFollowed, lambda e: replace(e, texts=(HOSTILE, *e.texts[1:])))
    beam = changed(beam, BeamStep, lambda e: replace(e, nodes=tuple(replace(n, text=HOSTILE) for n in e.nodes)))
    page = front_html({**recordings, "speculative": spec, "lora": words, "beam_search": beam}, WORDS)
    assert "<img" not in page
    assert page.count("&lt;img") >= 4


def test_the_path_leads_through_all_experiments_in_about_an_hour(recordings: dict[str, Recording]) -> None:
    assert sorted(s.experiment for s in PATH) == sorted(EXPERIMENTS)
    assert 50 <= sum(s.minutes for s in PATH) <= 70
    page = front_html(recordings, WORDS)
    for station in PATH:
        assert f'data-ask="{station.experiment}"' in page
        assert text_of(asked(station.experiment, recordings[station.experiment]).why) in text_of(page)


def test_the_cache_s_size_is_that_of_its_tensors(recordings: dict[str, Recording]) -> None:
    recording = recordings["kv_cache"]
    last = [e for e in recording.events if isinstance(e, CacheLedger)][-1]
    told = asked("kv_cache", recording)
    assert told.value == pytest.approx(sum(last.layer_bytes) / 2**20)
    assert "the same to the byte" in told.why
    more = changed(recording, CacheLedger, lambda e: replace(e, layer_bytes=tuple(2 * b for b in e.layer_bytes)))
    other = asked("kv_cache", more)
    assert told.value is not None
    assert other.value == pytest.approx(2 * told.value)
    assert "the same to the byte" not in other.why
    assert "the formula alone says 2.59 MiB" in other.why


def test_the_first_token_s_place_is_that_of_its_node(recordings: dict[str, Recording]) -> None:
    recording = recordings["beam_search"]
    result = next(e for e in recording.events if isinstance(e, BeamResult))
    first_step = next(e for e in recording.events if isinstance(e, BeamStep))
    node = next(n for n in first_step.nodes if n.token_id == result.token_ids[0][0])
    told = asked("beam_search", recording)
    assert told.options[told.answer] == f"rank {node.rank + 1}"
    assert node.rank > 0  # else the question would teach nothing
    reranked = changed(
        recording,
        BeamStep,
        lambda e: replace(e, nodes=tuple(replace(n, rank=0) if n.id == node.id else n for n in e.nodes)),
    )
    other = asked("beam_search", reranked)
    assert other.options[other.answer] == "rank 1"


@pytest.mark.parametrize(("measured", "answer"), [(1.4, "faster"), (1.02, "about the same"), (0.6, "slower")])
def test_whether_a_draft_pays_is_what_was_measured(
    recordings: dict[str, Recording], measured: float, answer: str
) -> None:
    other = changed(recordings["speculative"], SpeculativeFigures, lambda e: replace(e, measured=measured))
    told = asked("speculative", other)
    assert told.options[told.answer] == answer
    assert f"{measured:.2g}"[:3] in told.figure
    own = next(e for e in recordings["speculative"].events if isinstance(e, SpeculativeFigures))
    assert typeset(own.verdict) in told.why


def test_what_smaller_groups_leave_is_the_ratio_of_the_errors(recordings: dict[str, Recording]) -> None:
    recording = recordings["quantization"]
    errors = {e.setting.share: e.heldout_error for e in recording.events if isinstance(e, LayerErrors)}
    told = asked("quantization", recording)
    assert told.figure == f"{100 * errors['16'] / errors['64']:.0f} %"
    assert told.options[told.answer] == told.figure
    better = changed(
        recording,
        LayerErrors,
        lambda e: replace(e, heldout_error=e.heldout_error / 4) if e.setting.share == "16" else e,
    )
    other = asked("quantization", better)
    assert other.figure == f"{25 * errors['16'] / errors['64']:.0f} %"
    same = changed(recording, LayerErrors, lambda e: replace(e, heldout_error=0.5))
    assert asked("quantization", same).figure == "100 %"


def test_the_best_method_is_the_one_with_the_smallest_output_error(recordings: dict[str, Recording]) -> None:
    recording = recordings["pruning"]
    told = asked("pruning", recording)
    chosen = [e for e in recording.events if isinstance(e, PruneErrors) and e.setting.method != "random"]
    best = min(chosen, key=lambda e: e.heldout_error)
    assert told.options[told.answer] == best.setting.label.partition(",")[0]
    worse = changed(recording, PruneErrors, lambda e: replace(e, heldout_error=9.0) if e.setting == best.setting else e)
    other = asked("pruning", worse)
    assert other.options[other.answer] != told.options[told.answer]


def test_the_adapter_s_share_is_that_of_its_parameters(recordings: dict[str, Recording]) -> None:
    recording = recordings["lora"]
    facts = next(e for e in recording.events if isinstance(e, AdapterFacts))
    told = asked("lora", recording)
    assert float(told.figure.split()[0]) == pytest.approx(100 * facts.parameters / facts.base_parameters, rel=5e-3)
    other = changed(recording, AdapterFacts, lambda e: replace(e, parameters=2 * e.parameters))
    assert asked("lora", other).figure != told.figure


NEEDED: dict[str, tuple[type[Event], ...]] = {
    "kv_cache": (CacheLedger,),
    "beam_search": (PathFollowed,),
    "speculative": (SpeculativeFigures,),
    "quantization": (LayerErrors,),
    "pruning": (PruneErrors,),
    "lora": (AdapterFacts,),
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_run_that_holds_no_answer_asks_no_question(name: str, recordings: dict[str, Recording]) -> None:
    bare = without(recordings[name], *NEEDED[name])
    assert ask(name, bare) is None
    assert f'data-ask="{name}"' not in front_html({**recordings, name: bare}, WORDS)


GOOD: dict[str, Any] = {"text": "?", "figure": "1", "why": "because", "badge": "MEASURED"}


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"options": ("a", "b"), "answer": 0, "value": 1.0},
        {"options": ("a", "b"), "answer": 2},
        {"options": ("a", "b")},
        {"options": ("a", "a"), "answer": 0},
        {"value": float("nan")},
        {"value": 1.0, "badge": "GUESSED"},
    ],
)
def test_a_question_that_cannot_be_answered_is_refused(wrong: dict[str, Any]) -> None:
    Prediction(**GOOD, value=1.0)
    with pytest.raises(ValueError, match=r"."):
        Prediction(**{**GOOD, **wrong})


def test_one_option_alone_is_marked_as_right() -> None:
    markup = prediction_html("x", Prediction(**GOOD, options=("a", "b", "c"), answer=1), WORDS)
    assert re.findall(r"<button[^>]*data-right>([^<]*)<", markup) == ["b"]
    assert markup.count("<button") == 3


def test_every_page_links_to_the_index_and_the_index_to_every_page(recordings: dict[str, Recording]) -> None:
    assert page_links("lora", WORDS)[0] == {"label": "Overview", "href": "index.ipynb", "here": False}
    assert [p["href"] for p in PageLinks("lora").state["pages"]] == [p["href"] for p in page_links("lora", WORDS)]
    assert 'href="index.ipynb"' in poster_html("lora", recordings["lora"], WORDS)
    index = front_html(recordings, WORDS)
    assert 'href="index.ipynb"' not in index
    assert '<a aria-current="page">Overview</a>' in index
    for name in EXPERIMENTS:
        assert index.count(f'href="{name}.ipynb"') == 3  # header, card, station


def test_in_a_notebook_the_index_is_the_same_without_its_header() -> None:
    def texts(nodes: list[Any]) -> str:
        return "".join(node if isinstance(node, str) else texts(node[2]) for node in nodes)

    shown = front_page().state["nodes"]
    whole = (FOLDER / "index.html").read_text(encoding="utf-8")
    assert texts(shown) in text_of(whole)
    assert "lab-header" not in json.dumps(shown)
    assert json.dumps(shown).count('"data-ask"') == len(PATH)
    tags = set(re.findall(r"<([a-z0-9]+)", whole.partition("<main>")[2]))
    assert tags <= set(re.findall(r"[a-z0-9]+", read("front.js").partition("TAGS")[2].partition(".split")[0]))


def test_html_that_does_not_close_is_no_tree() -> None:
    assert tree_of('<p class="a">x<br>&lt;b&gt;</p><svg viewBox="0 0 1 1"/>') == [
        ["p", {"class": "a"}, ["x", ["br", {}, []], "<b>"]],
        ["svg", {"viewBox": "0 0 1 1"}, []],
    ]
    for broken in ("<p>", "</p>", "<p><b></p></b>"):
        with pytest.raises(ValueError, match="close"):
            tree_of(broken)


def test_what_the_prompt_says_is_no_part_of_the_index_s_own_words(recordings: dict[str, Recording]) -> None:
    """A recording of another model, another prompt: the index names those."""
    other = changed(
        recordings["beam_search"],
        RunStarted,
        lambda e: replace(e, facts=sample_facts(), card=replace(e.card, params={**e.card.params, "prompt": "Else"})),
    )
    page = text_of(front_html({**recordings, "beam_search": other}, WORDS))
    assert "After “Else”" in page
    assert sample_facts().name in page
