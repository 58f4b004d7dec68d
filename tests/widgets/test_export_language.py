"""A saved page in another language: its title and lesson are, and no button in it promises a run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lab.errors import BadInput
from lab.events import Recording
from lab.exporting import write_html
from lab.strings import strings
from widgets.exported.html import export_html
from widgets.stills import FOLDER


def saved(html: str) -> list[dict[str, object]]:
    found = re.search(r'id="lab-saved">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    nodes: list[dict[str, object]] = json.loads(found[1])["nodes"]
    return nodes


def test_a_saved_page_is_in_the_language_that_was_asked_for(tmp_path: Path) -> None:
    recording = Recording.load(FOLDER / "kv_cache.safetensors")
    words = strings("de")
    out = tmp_path / "run.html"
    write_html(recording, out, language="de")
    html = out.read_text(encoding="utf-8")
    assert '<html lang="de">' in html
    assert f"<title>{words('kv_cache.title')} · Inference Lab</title>" in html
    (lesson,) = (node for node in saved(html) if node.get("module") == "lesson")
    state = lesson["state"]
    assert isinstance(state, dict)
    assert (state["lang"], state["starts"]) == ("de", False)
    assert state["words"]["try_elsewhere"] == words("lesson.try_elsewhere")
    assert words("saved.alone") in html
    assert '<html lang="en">' in export_html(recording).decode()


def test_a_language_that_there_is_not_is_refused_before_a_process_starts(tmp_path: Path) -> None:
    recording = Recording.load(FOLDER / "kv_cache.safetensors")
    with pytest.raises(BadInput, match="There is: en, de"):
        write_html(recording, tmp_path / "run.html", language="xx")
    assert list(tmp_path.iterdir()) == []
