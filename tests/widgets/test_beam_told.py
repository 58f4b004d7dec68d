"""What the page of `beam_search` tells in words: whose bytes, the fork, a less likely winner, texts pushed out."""

from __future__ import annotations

from dataclasses import replace

from beam_toy import Search
from test_beam_views import say, state_of, views_of

from lab.events import Event
from widgets.beam_search.captions import fork_lines, plot_lines
from widgets.beam_search.figures import costs, headline
from widgets.beam_search.shelf import pushed_rows, shelf_rows
from widgets.beam_search.state import BeamState
from widgets.beam_search.words import signed


def test_the_cache_s_positions_are_counted_as_they_are_held() -> None:
    state = state_of()
    last = len(state.steps) - 1
    assert costs(state, last)[0]["note"].startswith("4 beams × 28 positions, 46,080 B each;")
    once = 46_080 * (5 + 4 * 23)
    state.steps[-1] = replace(state.steps[-1], cache_bytes=once, formula_bytes=once)
    said = "5 prompt positions once + 4 × 23 generated ones, 46,080 B each; the formula agrees to the byte"
    assert costs(state, last)[0]["note"] == said
    state.steps[-1] = replace(state.steps[-1], cache_bytes=once + 1, formula_bytes=once + 1)
    assert costs(state, last)[0]["note"].startswith("4 beams at 28 positions;"), "no count that does not give the bytes"


def test_a_winner_less_likely_than_greedy_is_told_in_words() -> None:
    state = state_of()
    last, path = len(state.steps) - 1, state.paths["greedy"]
    state.paths["greedy"] = replace(path, log_probs=(-0.5,) * 8, token_ids=path.token_ids[:8], score=-9.0)
    figure = headline(state, last)[1]
    assert figure["value"] == signed(state.steps[-1].shelf[0].sum_log_prob, 2)
    assert "greedy's 8: −4.00" in figure["unit"]
    assert figure["note"] == "the length penalty chose a longer, less likely text"
    assert "is less likely: log-probability" in fork_lines(state, last)[0][1]
    state.paths["greedy"] = replace(state.paths["greedy"], score=0.0)
    assert "length penalty" not in headline(state, last)[1]["note"]


def test_the_fork_is_told_once_the_search_is_over() -> None:
    state = state_of()
    last, at = len(state.steps) - 1, state.fork()
    assert fork_lines(state, last - 1) == []
    assert at is not None
    best, greedy = state.path(state.best_at(last)), state.paths["greedy"]
    assert [n.token_id for n in best[:at]] == list(greedy.token_ids[:at])
    assert best[at].token_id != greedy.token_ids[at]
    said = fork_lines(state, last)[0][1]
    assert said.startswith(f"At token {at + 1} greedy took “{greedy.texts[at].strip()}” (")
    assert f"the winner took “{best[at].text.strip()}” (" in said
    assert "leaves the beams at token" in plot_lines(state, last)[0][1]
    alone = state_of(num_beams=1)
    assert "greedy's own text" in fork_lines(alone, len(alone.steps) - 1)[0][1]


def pushing() -> tuple[list[Event], BeamState]:
    """A search some of whose finished texts were pushed off the shelf again."""
    for seed in range(40):
        events = Search(seed=seed, end=0.5, num_beams=4, max_new_tokens=24, length_penalty=2.0).events()
        state = BeamState()
        for event in events:
            state.fold(event)
        if state.pushed_at(len(state.steps) - 1):
            return events, state
    raise LookupError("no search of these pushes a text out")


def test_texts_pushed_off_the_shelf_stay_below_it() -> None:
    events, state = pushing()
    last = len(state.steps) - 1
    here = {h.node for h in state.steps[last].shelf}
    ever = {h.node for s in state.steps for h in s.shelf}
    assert {row["node"] for row in pushed_rows(state, last)} == ever - here
    worst = state.steps[last].shelf[-1].score
    assert all(h.score <= worst for h in state.pushed_at(last))
    first = min(since for since, h in state.shelved.values() if h.node not in here)
    assert state.pushed_at(first) == []
    assert pushed_rows(state, -1) == []
    views = views_of(events)
    node = views._shelf.state["pushed"][0]["node"]
    say(views._shelf, type="lock", node=node)
    views.render(live=False)
    assert views._data.node(views._tree.state["locked"]) == node


def test_scores_that_differ_do_not_read_alike() -> None:
    state = state_of()
    first, second, *rest = state.steps[-1].shelf
    state.steps[-1] = replace(state.steps[-1], shelf=(first, replace(second, score=first.score - 2e-5), *rest))
    rows = shelf_rows(state, len(state.steps) - 1)
    assert rows[0]["formula"].split("=")[1] != rows[1]["formula"].split("=")[1]
