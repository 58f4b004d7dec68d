"""The views of `beam_search` without a browser: words, figures, the tree's data, what a click does, the poster."""

from __future__ import annotations

import json
import math
import re
import threading
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from beam_toy import HOSTILE, Search

from lab.events import Event, RunCancelled
from lab.events.beam_search import BeamResult, BeamStep
from widgets.beam_search import poster
from widgets.beam_search.figures import costs, headline
from widgets.beam_search.shelf import bound_row, shelf_rows
from widgets.beam_search.state import BeamState
from widgets.beam_search.tables import candidate_table
from widgets.beam_search.views import BeamSearchViews
from widgets.beam_search.words import SENTENCES, formula, ordinal, sentence, signed
from widgets.beam_shelf import BeamShelf
from widgets.beam_tree import BeamTree
from widgets.experiment import Cursor, Desk, build_views
from widgets.exporting import make_export
from widgets.view import View


def state_of(**params: Any) -> BeamState:
    state = BeamState()
    for event in Search(**{"num_beams": 4, "max_new_tokens": 24, **params}).events():
        state.fold(event)
    return state


def views_of(events: list[Event], cursor: Cursor | None = None, replies: dict[str, Any] | None = None) -> Any:
    def ask(name: str, params: dict[str, Any], reply: Any, *, of_run: bool) -> None:
        del params, of_run
        reply((replies or {}).get(name), "")

    views = build_views("beam_search", Desk(ask, lambda: None, threading.RLock(), cursor or Cursor()))
    for event in events:
        views.fold(event)
    views.render(live=False)
    return views


def say(view: View, **message: Any) -> None:
    """What the page would send."""
    view._handle_custom_msg(message, [])


# words


def test_a_score_is_shown_with_its_formula() -> None:
    assert formula(-12.41, 17, 1.0, -0.73) == "−12.41 / 17^1.0 = −0.730"
    assert formula(-12.0, 4, -0.5, -24.0) == "−12.00 / 4^−0.5 = −24.000"
    assert signed(math.nan) == "–"
    assert signed(-math.inf) == "−∞"
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 22, 112)] == (
        ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "112th"]
    )


def test_every_fate_has_its_sentence() -> None:
    state = state_of(end=3.0, seed=3, num_beams=3, length_penalty=-1.0)
    said = {
        node.fate if node.fate != "pruned" else node.reason: sentence(state, node.id) for node in state.nodes.values()
    }
    assert set(said) >= {"kept", "finished", "rank", "not_a_hypothesis"}
    for words in said.values():
        assert "{" not in words
    lost = next(n for n in state.nodes.values() if n.reason == "rank")
    assert sentence(state, lost.id) == f"Lost: ranked {ordinal(lost.rank + 1)} of 6, and 3 are kept."
    for reason in ("rank", "finished_pool", "length_penalty", "not_a_hypothesis"):
        state.nodes[lost.id] = replace(lost, reason=reason)  # type: ignore[arg-type]
        assert sentence(state, lost.id) == SENTENCES[reason].format(rank=ordinal(lost.rank + 1), of=6, width=3)


def test_a_text_cut_by_the_length_limit_is_not_said_to_have_ended() -> None:
    state = state_of(end=-20.0)
    assert "length limit cut it" in sentence(state, state.steps[-1].shelf[0].node)


# figures and the shelf


def test_figures_are_those_of_the_events() -> None:
    state = state_of()
    last = len(state.steps) - 1
    best, greedy = state.steps[-1].shelf[0], state.paths["greedy"]
    score, ratio, rate = headline(state, last)
    assert score["value"] == signed(best.score)
    assert float(ratio["value"]) == pytest.approx(math.exp(best.sum_log_prob - sum(greedy.log_probs)), rel=0.01)
    assert float(rate["value"]) == pytest.approx(1000 / 64, rel=0.01)
    cache, reorder, candidates = costs(state, last)
    assert "agrees to the byte" in cache["note"]
    assert float(reorder["value"]) == pytest.approx(1.5 * 24)
    assert candidates["value"] == "192"
    state.steps[-1] = replace(state.steps[-1], cache_bytes=state.steps[-1].cache_bytes + 7)
    assert "differs by +7 bytes" in costs(state, last)[0]["note"]
    for figure in (*headline(BeamState(), -1), *costs(BeamState(), -1)):
        assert figure["value"] == ""


def test_greedy_leaves_at_its_first_lost_token_and_one_beam_never_loses_it() -> None:
    state = state_of()
    left = state.left_at("greedy")
    assert left is not None
    nodes = state.paths["greedy"].nodes
    assert all(state.nodes[n].fate == "kept" for n in nodes[:left])
    assert nodes[left] == -1 or state.nodes[nodes[left]].fate == "pruned"
    assert state_of(num_beams=1).left_at("greedy") is None
    assert BeamState().left_at("greedy") is None


def test_the_shelf_shows_where_texts_differ_and_what_could_still_come() -> None:
    state = state_of(end=2.2, seed=3)
    rows = shelf_rows(state, len(state.steps) - 1)
    assert [row["node"] for row in rows] == [h.node for h in state.steps[-1].shelf]
    assert len({row["text"] for row in rows}) == len(rows)
    for i, step in enumerate(state.steps):
        bound = bound_row(state, i)
        if bound is not None:
            scores = [h.score for h in step.shelf]
            assert all(s > step.best_possible for s in scores[: bound["above"]])
            assert all(s <= step.best_possible for s in scores[bound["above"] :])
    state.steps[0] = replace(state.steps[0], best_possible=math.nan)
    assert bound_row(state, 0) is None
    assert bound_row(state, -1) is None


# the tree


def test_the_tree_s_nodes_are_strict_json_by_place_whatever_their_ids() -> None:
    events = Search(num_beams=3, max_new_tokens=6).events()
    views = views_of(events)
    nodes = views._tree.tree["nodes"]
    json.dumps(views._tree.tree, allow_nan=False)
    state = views.state
    for place, (parent, step, text, log_prob, score, rank, _fate, why) in enumerate(nodes):
        node = state.nodes[views._data.node(place)]
        assert (text, rank, step) == (node.text, node.rank, state.step_of[node.id])
        assert why in SENTENCES
        before = nodes[parent][4] if parent >= 0 else 0.0
        assert score == pytest.approx(before + log_prob, abs=2e-4)
        assert parent < place
    shifted = [_shift(e, 1000) if isinstance(e, BeamStep) else e for e in events]
    assert views_of(shifted)._tree.tree["nodes"] == nodes


def _shift(step: BeamStep, by: int) -> BeamStep:
    def move(node: int) -> int:
        return node + by if node >= 0 else node

    return replace(
        step,
        nodes=tuple(replace(n, id=move(n.id), parent=move(n.parent)) for n in step.nodes),
        running=tuple(move(n) for n in step.running),
        shelf=tuple(replace(h, node=move(h.node)) for h in step.shelf),
    )


def test_the_nodes_travel_once_a_step_and_not_with_the_pointer() -> None:
    views = views_of(Search(num_beams=4, max_new_tokens=8).events()[:8])
    sent: list[Any] = []
    views._tree.observe(sent.append, "tree")
    say(views._tree, type="hover", node=3)
    views.render(live=True)
    say(views._tree, type="lock", node=3)
    views.render(live=True)
    assert sent == []
    assert views._tree.state["locked"] == 3


def test_a_click_follows_a_path_and_a_second_lets_it_go() -> None:
    views = views_of(Search(num_beams=4, max_new_tokens=12).events())
    best = [t["text"] for t in views._strip.state["tokens"]]
    other = views.state.steps[5].nodes[-1].id
    say(views._tree, type="lock", node=other)
    views.render(live=False)
    shown = [t["text"] for t in views._strip.state["tokens"][5:]]
    assert shown == [n.text for n in views.state.path(other)], "nothing followed a lost token"
    assert views._strip.state["locked"] == 5 + 5
    assert views.link()["node"] == other
    assert views._shelf.state["locked"] == other
    say(views._tree, type="lock", node=other)
    views.render(live=False)
    assert [t["text"] for t in views._strip.state["tokens"]] == best
    assert views.link()["node"] is None


def test_the_text_through_a_followed_token_goes_on_to_its_end() -> None:
    events = Search(num_beams=4, max_new_tokens=12).events()
    views = views_of(events)
    last = views.state.steps[-1].shelf[3].node
    early = views.state.path(last)[6].id
    say(views._tree, type="lock", node=early)
    views.render(live=False)
    texts = [t["text"] for t in views._strip.state["tokens"][5:]]
    through = [h.node for h in views.state.steps[-1].shelf if early in [n.id for n in views.state.path(h.node)]]
    assert texts == [n.text for n in views.state.path(through[0])]
    assert views._strip.state["locked"] == 5 + 6
    say(views._strip, type="lock", index=5 + 2)
    views.render(live=False)
    assert len(views._strip.state["tokens"]) == len(texts) + 5


def test_chips_and_shelf_point_into_the_tree() -> None:
    views = views_of(Search(num_beams=4, max_new_tokens=12).events())
    path = views.state.path(views.state.best_at(11))
    say(views._strip, type="hover", index=5 + 3)
    views.render(live=False)
    assert views._data.node(views._tree.state["pointed"]) == path[3].id
    say(views._strip, type="hover", index=2)  # a chip of the prompt
    views.render(live=False)
    assert views._tree.state["pointed"] is None
    node = views.state.steps[-1].shelf[1].node
    say(views._shelf, type="lock", node=node)
    views.render(live=False)
    assert views._data.node(views._tree.state["locked"]) == node


def test_scrubbing_shows_the_search_as_it_was() -> None:
    events = Search(num_beams=4, max_new_tokens=24, end=2.2, seed=3).events()
    cursor = Cursor(step=4)
    views = views_of(events, cursor)
    step = views.state.steps[4]
    assert views._tree.state["step"] == 4
    assert not views._tree.state["over"]
    assert views._data.node(views._tree.state["best"]) == step.running[0]
    assert [row["node"] for row in views._shelf.state["rows"]] == [h.node for h in step.shelf]
    cursor.step = None
    views.render(live=False)
    assert views._tree.state["over"]
    assert views._shelf.state["over"]


def test_a_link_brings_back_the_node_and_the_view_and_refuses_nonsense() -> None:
    events = Search(num_beams=4, max_new_tokens=6).events()
    views = views_of(events)
    views.restore({"node": 7, "losers": False, "zoom": 0.5, "greedy": "yes", "shared": True, "unknown": 1})
    views.reset()  # a link's run begins: the node is found again in it
    for event in events:
        views.fold(event)
    views.render(live=False)
    link = views.link()
    assert {k: link[k] for k in ("node", "losers", "zoom", "greedy", "shared")} == {
        "node": 7,
        "losers": False,
        "zoom": 0.5,
        "greedy": True,
        "shared": True,
    }
    views.restore({"node": True, "zoom": 99, "losers": 3})
    assert views.link()["node"] == 7
    assert views.link()["zoom"] == 0.5
    views.restore({"node": 10**5})
    views.render(live=False)
    assert views._tree.state["locked"] is None


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 9])
def test_a_run_cut_short_anywhere_is_drawn(count: int) -> None:
    events = Search(num_beams=4, max_new_tokens=24).events()[:count]
    views = views_of([*events, RunCancelled()])
    for table in views.tables():
        assert all(len(row) == len(table.head) for row in table.rows)
    assert views.steps() == max(0, count - 3)
    assert views.planned_steps() == (24 if count else 0)
    json.dumps(views.lesson(None), allow_nan=False)


@pytest.mark.parametrize("params", [{"num_beams": 1}, {"max_new_tokens": 1}, {"num_beams": 16, "max_new_tokens": 64}])
def test_all_sizes_are_drawn(params: dict[str, Any]) -> None:
    events = Search(**params).events()
    views = views_of(events)
    result = next(e for e in events if isinstance(e, BeamResult))
    assert len(views._tree.tree["nodes"]) == len(views.state.nodes)
    assert [row["node"] for row in views._shelf.state["rows"]] == [h.node for h in result.hypotheses]
    assert views.note().startswith(f"token {result.steps} of ")


@pytest.mark.parametrize("cls", [BeamTree, BeamShelf])
@pytest.mark.parametrize("content", [None, "x", [], {}, {"type": 3}, {"type": "view", "view": 3}, {"type": "lock"}])
def test_strange_messages_are_ignored(cls: type[View], content: Any) -> None:
    view = cls()
    before = view.state
    view._handle_custom_msg(content, [])
    assert view.state == before
    assert json.loads(json.dumps(before, allow_nan=False)) == before
    assert "export default" in view._esm
    with pytest.raises(TypeError, match="colour"):
        cls(colour="red")


def test_the_lesson_s_example_is_the_search_s_own() -> None:
    from lab.experiments.beam_search.inspections import worked_example

    example = worked_example()
    views = views_of(Search(num_beams=2, max_new_tokens=2).events(), replies={"worked_example": example})
    views.settle()
    section = next(s for s in views.lesson(None) if s["title"] == "By hand")
    words = " ".join(section["paragraphs"])
    assert "`A continue`: 0.24" in words
    assert "`B end`: 0.36" in words
    rows = [tuple(row[1:]) for row in section["table"]["rows"]]
    assert ("B", "0.40", "kept") in rows
    assert ("B end", "0.36", "in the result") in rows
    assert [s["title"] for s in views_of([]).lesson(None) if "table" in s] == []


def test_a_ratio_too_large_to_read_is_a_power_of_ten() -> None:
    state = state_of()
    path = state.paths["greedy"]
    state.paths["greedy"] = replace(path, log_probs=tuple(p - 1.0 for p in path.log_probs))
    best = state.steps[-1].shelf[0].sum_log_prob
    power = (best - sum(path.log_probs) + 24) / math.log(10)
    assert headline(state, len(state.steps) - 1)[1]["value"] == f"10^{power:.1f}"


# data out


def test_the_candidates_table_holds_every_node_and_its_reason() -> None:
    state = state_of()
    table = candidate_table(state, len(state.steps) - 1)
    assert [row[-2] for row in table.rows] == list(state.nodes)
    at = table.head.index("in words")
    assert all(row[at] == sentence(state, row[-2]) for row in table.rows)
    _, data, _ = make_export(
        "csv", "beam_search", None, views_of(Search(num_beams=2, max_new_tokens=3).events()).tables()
    )
    assert data.count(b"# ") == 4


def test_the_poster_is_a_tree_and_holds_no_markup_of_the_model() -> None:
    recording = Search(num_beams=16, max_new_tokens=64).recording()
    html = poster.body(recording)
    assert HOSTILE not in html
    assert "&lt;img" in html
    svg = ElementTree.fromstring(re.search(r"<svg.*?</svg>", html, re.S).group())  # type: ignore[union-attr]  # noqa: S314
    kept = sum(n.fate != "pruned" for e in recording.events if isinstance(e, BeamStep) for n in e.nodes)
    assert len(svg.findall("circle")) == kept
    rows = poster._rows(state_of(), [n for n in state_of().nodes.values() if n.fate != "pruned"])
    state = state_of()
    places = [(state.step_of[n], row) for n, row in rows.items()]
    assert len(set(places)) == len(places)


def test_the_views_are_a_class_of_the_contract() -> None:
    from widgets.experiment import ExperimentViews

    views = views_of([])
    assert isinstance(views, BeamSearchViews)
    for name in (n for n in vars(ExperimentViews) if not n.startswith("_")):
        assert hasattr(views, name), name
