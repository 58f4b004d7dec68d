"""The views without a browser: what they hold, what they refuse, what they make of the page's messages."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from lab.events import RunCard
from lab.experiments.kv_cache.params import KVCacheParams
from widgets.controls import Controls
from widgets.data_table import MOST_ROWS, DataTable
from widgets.error_panel import ErrorPanel
from widgets.export import ExportMenu
from widgets.figure import FigureRow
from widgets.file_choice import FileChoice
from widgets.heartbeat import Heartbeat
from widgets.layer_strip import LayerStrip
from widgets.lesson import Lesson
from widgets.link import LinkButton
from widgets.player import Player
from widgets.proof_line import ProofLine
from widgets.run_card import RunCardButton
from widgets.runner_bar import RunnerBar
from widgets.side_by_side import SideBySide
from widgets.token_strip import BLOCK, LIMIT, TokenStrip
from widgets.view import View, clean

ALL: list[type[View]] = [
    Controls,
    DataTable,
    ErrorPanel,
    ExportMenu,
    FigureRow,
    FileChoice,
    Heartbeat,
    LayerStrip,
    Lesson,
    LinkButton,
    Player,
    ProofLine,
    RunCardButton,
    RunnerBar,
    SideBySide,
    TokenStrip,
]


def say(view: View, **message: Any) -> None:
    """What the page would send."""
    view._handle_custom_msg(message, [])


def posted(view: View, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """Collects what the view sends to the page."""
    messages: list[tuple[Any, Any]] = []
    monkeypatch.setattr(view, "send", lambda content, buffers=None: messages.append((content, buffers)))
    return messages


@pytest.mark.parametrize("cls", ALL)
def test_every_view_is_strict_json_and_carries_its_files(cls: type[View]) -> None:
    view = cls()
    assert json.loads(json.dumps(view.state, allow_nan=False)) == view.state
    assert set(view.state) == set(cls.defaults)
    assert "export default" in view._esm
    assert "--lab-accent" in view._css
    with pytest.raises(TypeError, match="colour"):
        cls(colour="red")
    with pytest.raises(TypeError, match="has no colour"):
        view._put(colour="red")


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("content", [None, "run", [], {}, {"type": 3}, {"type": "nothing"}, {"type": "values"}])
def test_strange_messages_are_ignored(cls: type[View], content: Any) -> None:
    view = cls()
    before = view.state
    view._handle_custom_msg(content, [])
    assert view.state == before


def test_a_state_that_stays_the_same_is_not_sent_again() -> None:
    view, changes = RunnerBar(), []
    view.observe(changes.append, "state")
    view.show("running", 0.5, "token 1 of 2")
    view.show("running", 0.5, "token 1 of 2")
    assert len(changes) == 1
    view.show("running", 0.6, "token 1 of 2")
    assert len(changes) == 2


def test_clean_makes_json_that_any_browser_reads() -> None:
    assert clean({"a": (math.inf, math.nan, 1.5), 2: "x\ud800y", "e": "🙂"}) == {
        "a": [None, None, 1.5],
        "2": "x\ufffdy",
        "e": "🙂",
    }
    with pytest.raises(TypeError, match="object"):
        clean({"a": object()})


def test_the_runner_tells_run_and_stop_and_knows_its_phases() -> None:
    view, heard = RunnerBar(), []
    view.on_run(lambda: heard.append("run"))
    view.on_stop(lambda: heard.append("stop"))
    say(view, type="run")
    say(view, type="stop")
    assert heard == ["run", "stop"]
    with pytest.raises(ValueError, match="'flying'"):
        view.show("flying")


def controls(**more: Any) -> Controls:
    schema = KVCacheParams.model_json_schema()
    return Controls(schema=schema, values=KVCacheParams().model_dump(mode="json"), **more)


def test_controls_merge_what_changed_and_drop_unknown_fields() -> None:
    view, heard = controls(), []
    view.on_values(heard.append)
    view.set_errors({"seed": "refused", "top_k": "refused"})
    say(view, type="values", values={}, changed={"seed": 7, "__class__": 1}, invalid=["top_k", "nonsense"])
    assert heard == [{"seed": 7}]
    assert view.values == {**KVCacheParams().model_dump(mode="json"), "seed": 7}
    assert view.invalid == ("top_k",)
    assert view.state["errors"] == {"top_k": "refused"}
    say(view, type="values", values={}, changed={}, invalid=[])
    assert view.invalid == ()


def test_a_redraw_while_a_change_is_taken_in_loses_nothing() -> None:
    view = controls()
    held = view.values
    view.on_values(held.update)
    # The page's own thread redraws the form from what the dashboard holds, at the worst moment.
    view.observe(lambda _change: view.update(values=held), "state")
    say(view, type="values", values={}, changed={"seed": 9}, invalid=[])
    assert held["seed"] == view.values["seed"] == 9


def test_a_part_of_the_controls_shares_values_and_callbacks() -> None:
    view, heard = controls(groups=("main", "sampling")), []
    rest = view.part("compare", "break")
    view.on_values(heard.append)
    say(rest, type="values", values={}, changed={"break_run": "shift_positions"}, invalid=[])
    assert heard == [{"break_run": "shift_positions"}]
    assert rest.values["break_run"] == view.values["break_run"] == "shift_positions"
    assert rest.state["groups"] == ["compare", "break"]
    view.update(disabled=True)
    assert rest.state["disabled"] is True
    assert rest.state["groups"] == ["compare", "break"]


def test_presets_and_models_outside_the_lists_are_ignored() -> None:
    view, heard = controls(presets=[{"question": "?", "params": {}}], models=[{"id": "a", "label": "A"}]), []
    view.on_preset(heard.append)
    view.on_model(heard.append)
    for index in (0, 1, -1, "0", True, None):
        say(view, type="preset", index=index)
    for name in ("a", "b", None):
        say(view, type="model", id=name)
    assert heard == [0, "a"]


def test_a_long_text_is_sent_in_a_window_that_moves_in_blocks() -> None:
    view = TokenStrip()
    tokens = [{"text": str(i), "kind": "prompt"} for i in range(8192)]
    view.show(tokens[:LIMIT])
    assert (view.state["start"], len(view.state["tokens"])) == (0, LIMIT)
    starts = set()
    for count in range(1000, 1250):
        view.show(tokens[:count], weights=[0.5] * count, selected=count - 1)
        state = view.state
        assert state["start"] + len(state["tokens"]) == count
        assert state["start"] + len(state["weights"]) == count
        assert LIMIT - BLOCK < len(state["tokens"]) <= LIMIT
        starts.add(state["start"])
    assert len(starts) == 4
    say(view, type="expand", expanded=True)
    assert (view.state["start"], len(view.state["tokens"])) == (0, 1249)
    say(view, type="expand", expanded=False)
    assert view.state["start"] > 0


def test_the_strip_tells_positions_that_exist() -> None:
    view, heard = TokenStrip(), []
    view.on_hover(heard.append)
    view.on_lock(heard.append)
    view.show([{"text": "a", "kind": "new"}, {"text": "b", "kind": "newest"}], weights=[])
    assert view.state["weights"] is None
    for index in (0, 1, 2, -1, None, 1.5):
        say(view, type="hover", index=index)
    say(view, type="lock", index=1)
    assert heard == [0, 1, None, None, None, None, 1]


def test_a_figure_without_a_source_is_refused() -> None:
    with pytest.raises(ValueError, match="MEASURED"):
        FigureRow().show([{"id": "x", "value": "1", "unit": "MiB"}])


def test_a_proof_has_a_known_verdict() -> None:
    view, heard = ProofLine(), []
    view.on_cancel(lambda: heard.append("cancel"))
    view.show("equal", "Identical", [("gap", "0.1")])
    assert view.state["detail"] == [["gap", "0.1"]]
    say(view, type="cancel")
    assert heard == ["cancel"]
    with pytest.raises(ValueError, match="'maybe'"):
        view.show("maybe", "")


def test_the_run_card_lists_everything_that_decides_the_run() -> None:
    card = RunCard(
        experiment="kv_cache",
        model="m",
        weight_hash="ab",
        dtype="float32",
        device="cpu",
        attention="sdpa",
        threads=2,
        versions={"torch": "2"},
        params={"prompt": "hi", "trace_layers": [0, 9], "do_sample": False},
    )
    view = RunCardButton()
    view.show(card)
    rows = dict(view.state["rows"])
    assert rows["trace_layers"] == "[0, 9]"
    assert rows["do_sample"] == "false"
    assert rows["version of torch"] == "2"
    assert rows["card, sha256"] == card.key() == view.state["card"]["key"]
    view.show(None)
    assert view.state["rows"] == []


def test_the_heartbeat_answers_from_where_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    view = Heartbeat()
    messages = posted(view, monkeypatch)
    say(view, type="ping", n=4)
    assert messages == [({"type": "pong", "n": 4}, None)]
    view.show(mode="recorded", when="2025-11-29T10:00:00Z", model="m")
    assert view.state["when"] == "2025-11-29"
    with pytest.raises(ValueError, match="'dead'"):
        view.show(mode="dead")


def test_an_export_delivers_bytes_and_disabled_items_stay_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    view, heard = ExportMenu(), []
    view.on_export(heard.append)
    view.show([{"id": "csv", "label": "CSV"}, {"id": "run", "label": "Run", "disabled": "not ended"}])
    for name in ("csv", "run", "other", None):
        say(view, type="export", id=name)
    assert heard == ["csv"]
    messages = posted(view, monkeypatch)
    view.deliver("a.csv", b"1,2", "text/csv")
    view.refuse("Nothing yet.")
    assert messages[0] == ({"type": "file", "name": "a.csv", "mime": "text/csv"}, [b"1,2"])
    assert messages[1][0] == {"type": "refused", "text": "Nothing yet."}


def test_player_layers_lesson_link_and_error_tell_what_happened() -> None:
    heard: list[Any] = []
    player, layers, lesson, link, error = Player(), LayerStrip(), Lesson(), LinkButton(), ErrorPanel()
    player.on_step(heard.append)
    player.on_play(heard.append)
    player.show(step=3, available=4)
    assert player.state["total"] == 4
    say(player, type="step", step=2)
    say(player, type="step", step=-1)
    say(player, type="play", playing=True)
    layers.on_select(heard.append)
    layers.show([{"bytes": 98_304, "kind": "full", "positions": 64}])
    assert layers.state["layers"][0]["title"] == "layer 0: 96.0 KiB, 64 positions, full attention"
    say(layers, type="layer", index=0)
    say(layers, type="layer", index=1)
    lesson.on_answer(lambda section, choice: heard.append((section, choice)))
    lesson.on_fold(heard.append)
    say(lesson, type="answer", section=1, choice=2)
    say(lesson, type="answer", section=1, choice="2")
    say(lesson, type="fold", folded=True)
    assert lesson.state["folded"] is True
    link.on_link(heard.append)
    say(link, type="link", values={"a": 1})
    say(link, type="link", values={})
    error.on_dismiss(lambda: heard.append("dismissed"))
    error.show("No.", "Do this.", "busy")
    assert error.state["open"] is True
    say(error, type="dismiss")
    error.hide()
    assert error.state["open"] is False
    assert heard == [2, True, 0, None, (1, 2), True, {"a": 1}, "dismissed"]


def test_a_table_sends_at_most_its_limit_and_says_so() -> None:
    @dataclass
    class Rows:
        name: str
        head: list[str]
        rows: list[list[Any]]

    view = DataTable()
    view.show(Rows("with_and_without", ["n", "x"], [[i, math.nan] for i in range(MOST_ROWS + 5)]))
    assert len(view.state["rows"]) == MOST_ROWS
    assert view.state["rows"][0] == [0, None]
    assert view.state["caption"] == "with and without"
    assert "2,005" in view.state["note"]


def test_the_views_load_no_torch() -> None:
    names = ", ".join(sorted({cls.__module__ for cls in ALL}))
    code = f"import sys, {names}; sys.exit(any(m in sys.modules for m in ('torch', 'transformers', 'bokeh')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
