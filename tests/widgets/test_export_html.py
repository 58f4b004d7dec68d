"""A run as one HTML file: whole, quiet, the same each time, and what it shows is what the page shows."""

from __future__ import annotations

import base64
import json
import queue
import random
import re
import subprocess
import sys
import threading
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from test_dashboard import NoBackend

from lab.errors import BadInput, LabError, RecordingError
from lab.events import Recording, RunCancelled, RunFailed
from lab.events.kv_cache import TokenDecoded
from lab.experiments.registry import EXPERIMENTS
from lab.exporting import write_html
from lab.strings import strings
from widgets import export_html as export_from_notebook
from widgets.exported import html as exported
from widgets.exported.rehearsal import Rehearsal, Slot, _at, differences, look, rehearse
from widgets.exported.still import StillPage
from widgets.exporting import export_items, make_export
from widgets.opening import RECORDINGS
from widgets.page import Dashboard
from widgets.plot import bokehjs_source

HOSTILE = "</script><img src=x onerror=\"document.title='broken'\"><!--"
OFFERED = {
    "kv_cache": {"step", "hover", "lock", "layer", "values.layer", "values.head", "values.compare"},
    "beam_search": {"step", "hover", "lock"},
    "speculative": {"step", "hover", "lock", "dropped", "expand"},
    "quantization": {"step", "values.bits", "values.group_size", "row"},
    "pruning": {"step", "values.first", "values.check"},
    "lora": {"step", "hover", "lock", "values.which"},
}
"""What can be done in each file, at least."""
FETCHING = ("src", "href", "srcset", "action", "data", "poster", "formaction", "background", "manifest", "ping")


class Page(HTMLParser):
    """What a browser would make of a file: its elements, and the texts of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": []}
        self.inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag in self.texts:
            self.texts[tag].append("")
            self.inside = tag

    def handle_endtag(self, tag: str) -> None:
        del tag
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.texts[self.inside][-1] += data

    def saved(self) -> dict[str, Any]:
        """The page's own JSON."""
        result: dict[str, Any] = json.loads(self.texts["script"][0])
        return result


@cache
def packaged(name: str) -> Recording:
    return Recording.load(RECORDINGS / f"{name}.safetensors")


@cache
def file_of(name: str) -> bytes:
    """The packaged run's file: to make one takes seconds."""
    return exported.export_html(packaged(name))


@cache
def rehearsed(name: str) -> tuple[StillPage, Rehearsal]:
    """A page and its rehearsal, for tests that leave the page as it was."""
    page = StillPage(packaged(name), strings())
    return page, rehearse(page)


@pytest.fixture(scope="module", params=list(EXPERIMENTS))
def run(request: pytest.FixtureRequest) -> tuple[str, Recording, bytes]:
    return request.param, packaged(request.param), file_of(request.param)


@pytest.fixture(scope="module")
def kv() -> Recording:
    return packaged("kv_cache")


@pytest.fixture(scope="module")
def short(kv: Recording) -> Recording:
    """The beginning of a run, with its first tokens: quickly rehearsed."""
    tokens = [place for place, event in enumerate(kv.events) if isinstance(event, TokenDecoded)]
    return Recording((*kv.events[: tokens[4]], RunCancelled(reason="stopped")), ())


def loads(page: Page) -> list[str]:
    """All that the file would ask a network for."""
    addresses = [str(attrs[name]) for _, attrs in page.found for name in FETCHING if name in attrs]
    found = [address for address in addresses if not address.startswith("data:")]
    styles = " ".join([*page.texts["style"], *(str(attrs.get("style", "")) for _, attrs in page.found)])
    found += re.findall(r"@import[^;]*", styles)
    return found + [u for u in re.findall(r"url\(([^)]*)\)", styles) if not u.strip("'\" ").startswith(("data:", "#"))]


def test_each_packaged_run_is_one_quiet_file(run: tuple[str, Recording, bytes]) -> None:
    name, recording, data = run
    page = Page(data.decode())
    assert loads(page) == []
    assert [tag for tag, _ in page.found].count("script") == 3
    own = page.texts["script"][2]
    assert set(re.findall(r"https?://[^\s\"'`]+", own)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xhtml",
    }
    assert page.texts["script"][1] == bokehjs_source()
    policy = next(str(attrs["content"]) for tag, attrs in page.found if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy
    saved = page.saved()
    shown = json.dumps(saved["nodes"], ensure_ascii=False)
    assert '"mode": "recorded"' in shown
    assert re.search(r'"badge": "(MEASURED|DERIVED|SIMULATED)"', shown) or "MEASURED" in shown
    assert any(node.get("module") == "proof_line" and node["state"]["verdict"] != "none" for node in saved["nodes"])
    card = next(node for node in saved["nodes"] if node.get("module") == "run_card")
    assert card["state"]["card"]["key"] == recording.started.card.key()
    assert {slot["kind"] for slot in saved["slots"]} >= OFFERED[name]
    assert saved["together"]
    assert {node["display"] for node in saved["nodes"] if node.get("module") == "action_row"} <= {"none"}
    assert saved["files"]["csv"]["name"] == f"{name}.csv"
    assert len(data) < 4 * 1024 * 1024


@pytest.mark.parametrize("tag", ['<img src="https://example.org/x.png">', "<style>@import 'x.css'</style>"])
def test_a_file_that_loads_is_noticed(tag: str) -> None:
    """The mutation of what stands above."""
    assert loads(Page(f"<p>{tag}</p>")) != []


def test_the_same_run_is_the_same_file(run: tuple[str, Recording, bytes]) -> None:
    name, recording, data = run
    page, rehearsal = rehearsed(name)
    assert exported.written(page, rehearsal, recording, strings()) == data


def test_the_file_holds_the_run_and_its_data(run: tuple[str, Recording, bytes], tmp_path: Path) -> None:
    name, recording, data = run
    files = Page(data.decode()).saved()["files"]
    out = tmp_path / files["recording"]["name"]
    out.write_bytes(base64.b64decode(files["recording"]["base64"]))
    assert Recording.load(out).events == recording.events
    assert Recording.load(out).inspections == recording.inspections
    events = json.loads(base64.b64decode(files["json"]["base64"]))
    assert [e["event"] for e in events] == [e.event for e in recording.events]
    lines = base64.b64decode(files["csv"]["base64"]).decode().splitlines()
    assert lines[0].startswith("# ")
    assert len(lines) > 4, name
    offered = {item["id"]: bool(item.get("disabled")) for item in export_items(ended=True)}
    assert offered == dict.fromkeys(("png", "svg", "html", "csv", "json", "recording"), False)


def rebuilt(rehearsal: Rehearsal, active: list[tuple[Slot, str]]) -> dict[int, Any]:
    """What the file shows with these options on, the earliest first: the rule of `exported.js`, in Python."""
    change: dict[Any, Any] = {}
    for slot, key in active:
        for place, value in zip(slot.places, slot.options[key], strict=True):
            change[place] = value
    return {n: _at(rehearsal.base, change, (n,)) for n in rehearsal.base}


@pytest.mark.parametrize("name", ["kv_cache", "beam_search", "lora"])
def test_what_the_file_shows_the_page_shows(name: str) -> None:
    """At options that the rehearsal did not choose for its trials."""
    page, rehearsal = rehearsed(name)
    first = page.snapshot()
    dice = random.Random(7)
    assert {slot.offer.kind for slot in rehearsal.slots} >= {"step", "hover", "lock"}
    for slot in rehearsal.slots:
        view = page.view(slot.view)
        for key in dice.sample(list(slot.options), min(3, len(slot.options))):
            page.send(view, slot.offer.messages[key])
            drawn = rebuilt(rehearsal, [(slot, key)])
            now = page.snapshot()
            assert {n: drawn[n] for n in now} == now, (slot.offer.kind, key)
            page.send(view, slot.offer.off)
    assert differences(first, page.snapshot()) == {}


def test_pairs_that_stand_together_are_what_the_page_shows() -> None:
    page, rehearsal = rehearsed("kv_cache")
    first_of_all = page.snapshot()
    dice = random.Random(11)
    assert rehearsal.together
    for a, b in rehearsal.together:
        earlier, later = rehearsal.slots[a], rehearsal.slots[b]
        x, y = dice.choice(list(earlier.options)), dice.choice(list(later.options))
        first, second = page.view(earlier.view), page.view(later.view)
        page.send(first, earlier.offer.messages[x])
        page.send(second, later.offer.messages[y])
        drawn = rebuilt(rehearsal, [(earlier, x), (later, y)])
        now = page.snapshot()
        assert {n: drawn[n] for n in now} == now, (earlier.offer.kind, x, later.offer.kind, y)
        page.send(second, later.offer.off)
        page.send(first, earlier.offer.off)
    assert differences(first_of_all, page.snapshot()) == {}


def test_slots_that_decide_the_same_do_not_stand_together() -> None:
    """The mutation: layer and head of the attention picture make one question; one on top of the other is neither."""
    page, rehearsal = rehearsed("kv_cache")
    first = page.snapshot()
    slots = {slot.offer.kind: i for i, slot in enumerate(rehearsal.slots)}
    pair = slots["values.layer"], slots["values.head"]
    assert pair not in rehearsal.together
    layer, head = (rehearsal.slots[i] for i in pair)
    view = page.view(layer.view)
    page.send(view, layer.offer.messages["[0]"])
    page.send(view, head.offer.messages["[4]"])
    plain = page.snapshot()
    page.send(view, layer.offer.messages["[7]"])
    drawn = rebuilt(rehearsal, [(layer, "[7]"), (head, "[4]")])
    assert {n: drawn[n] for n in plain} != page.snapshot()
    page.send(view, head.offer.off)
    page.send(view, layer.offer.off)
    assert differences(first, page.snapshot()) == {}


def test_packed_values_are_what_they_were() -> None:
    _, rehearsal = rehearsed("kv_cache")
    saved = json.loads(exported.page_json(rehearsal, {}))
    heads = 0
    for slot, written in zip(rehearsal.slots, saved["slots"], strict=True):
        for key, indices in written["options"].items():
            for place, index, value in zip(slot.places, indices, slot.options[key], strict=True):
                packed = saved["values"][index]
                if isinstance(packed, dict) and packed.get("$") == "head":
                    packed, heads = look(rehearsal.base, place)[: packed["n"]], heads + 1
                assert json.dumps(packed) == json.dumps(value)
    assert heads > 100


def test_text_of_the_model_stays_text(short: Recording) -> None:
    events = [
        replace(event, text=HOSTILE) if isinstance(event, TokenDecoded) and event.index == 3 else event
        for event in short.events
    ]
    text = exported.export_html(Recording(tuple(events), ())).decode()
    page = Page(text)
    assert [tag for tag, _ in page.found].count("script") == 3
    assert not [tag for tag, _ in page.found if tag == "img"]
    strip = next(node for node in page.saved()["nodes"] if node.get("module") == "token_strip")
    assert HOSTILE in [token["text"] for token in strip["state"]["tokens"]]


def test_without_the_escape_it_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation."""
    monkeypatch.setattr(exported, "in_script", lambda text: text)
    document = exported.document("title", json.dumps([HOSTILE]), {"words"}, strings())
    assert [tag for tag, _ in Page(document).found if tag == "img"]


def test_a_file_that_would_be_too_large_is_refused(short: Recording) -> None:
    with pytest.raises(BadInput, match=r"would be a file of .* MiB; at most 1\.00 MiB"):
        exported.export_html(short, limit=1024 * 1024)


def test_fields_that_need_the_lab_say_so() -> None:
    saved = Page(file_of("lora").decode()).saved()
    locked = [
        field["title"]
        for node in saved["nodes"]
        if node.get("module") == "controls"
        for field in node["state"]["schema"]["properties"].values()
        if field.get("disabled") == exported.KEPT_IN_LAB
    ]
    assert {"in", "out", "rank r"} <= set(locked)
    assert len(locked) < 8


@pytest.mark.parametrize(
    "end", [RunFailed(code="error", message="It broke.", remedy="Mend it."), RunCancelled(reason="stopped")]
)
def test_a_run_that_did_not_finish_is_a_page_too(kv: Recording, end: Any) -> None:
    cut = Recording((*kv.events[:20], end), ())
    saved = Page(exported.export_html(cut).decode()).saved()
    proof = next(node["state"] for node in saved["nodes"] if node.get("module") == "proof_line")
    assert proof["verdict"] == "unproven"
    error = next(node["state"] for node in saved["nodes"] if node.get("module") == "error_panel")
    assert error["open"] == isinstance(end, RunFailed)


def test_it_is_written_by_a_process_of_its_own(kv: Recording, tmp_path: Path) -> None:
    out = tmp_path / "run.html"
    assert export_from_notebook(RECORDINGS / "kv_cache.safetensors", out) == out.stat().st_size
    assert out.read_bytes() == file_of("kv_cache")
    assert make_export("html", "kv_cache", kv, [])[:1] == ("kv_cache.html",)


def test_errors_of_that_process_are_errors_here(kv: Recording, tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="Cannot write"):
        write_html(kv, tmp_path / "nowhere" / "run.html")
    with pytest.raises(LabError, match=r"within 0\.01 s"):
        write_html(kv, tmp_path / "run.html", timeout_s=0.01)


def test_the_command_writes_it(short: Recording, tmp_path: Path) -> None:
    out = tmp_path / "run.html"
    short.save(tmp_path / "run.safetensors")
    command = [sys.executable, "-m", "lab", "export", str(tmp_path / "run.safetensors"), "--html", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "MiB" in done.stderr
    assert out.read_bytes().startswith(b"<!doctype html>")
    done = subprocess.run([*command[:-1], str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "is a folder" in done.stderr


@pytest.mark.parametrize("fails", [False, True])
def test_the_menu_of_a_page_gives_it_from_a_thread(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    told: queue.Queue[tuple[Any, ...]] = queue.Queue()
    threads = []

    def read(recording: Recording, language: str) -> bytes:
        assert language == "en"
        threads.append(threading.current_thread())
        if fails:
            raise BadInput("It would be too large.", remedy="Export the recording.")
        return f"page of {len(recording.events)} events".encode()

    monkeypatch.setattr("widgets.exporting.read_html", read)
    page = Dashboard("kv_cache", backend=NoBackend(), autorun=False)
    monkeypatch.setattr(page.parts.export, "deliver", lambda *file: told.put(file))
    monkeypatch.setattr(page.parts.export, "refuse", lambda *words: told.put(words))
    try:
        page.parts.export._receive(None, {"type": "export", "id": "html"}, [])
        found = told.get(timeout=60)
        events = page.session.recording()
        assert events is not None
        page_text = f"page of {len(events.events)} events".encode()
        assert found == (("There is no file.",) if fails else ("kv_cache.html", page_text, "text/html"))
        assert threads[0] is not threading.main_thread()
    finally:
        page.close()
