"""The small widgets that the `speculative` page brought: strict states, known tones, no torch."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from widgets.bar_table import BarTable
from widgets.gauge import Gauge
from widgets.kind_legend import KindLegend
from widgets.round_rows import RoundRows
from widgets.verdict import Verdict
from widgets.view import View

NEW: list[type[View]] = [BarTable, Gauge, KindLegend, RoundRows, Verdict]


@pytest.mark.parametrize("cls", NEW)
@pytest.mark.parametrize(
    "content", [None, "lock", {}, {"type": "lock", "round": "1", "row": True}, {"type": "dropped"}]
)
def test_new_views_are_strict_json_and_ignore_strange_messages(cls: type[View], content: Any) -> None:
    view = cls()
    assert json.loads(json.dumps(view.state, allow_nan=False)) == view.state
    with pytest.raises(TypeError, match="has no colour"):
        view._put(colour="red")
    heard: list[Any] = []
    if isinstance(view, RoundRows):
        view.on_lock(heard.append)
    before = view.state
    view._handle_custom_msg(content, [])
    assert view.state == before
    assert heard in ([], [None])


def test_a_verdict_has_a_known_tone() -> None:
    with pytest.raises(ValueError, match="'great'"):
        Verdict().show("great", "10 times faster")


def test_the_page_loads_no_torch() -> None:
    code = "import sys, widgets.speculative.views, widgets.speculative.poster; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
