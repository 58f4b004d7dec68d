"""The page's section that compares, a comparison in a cell, and what a visitor's file may be."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ipywidgets as ipw
import numpy as np
import pytest
import safetensors.numpy
from compared_runs import CARD, FACTS, FINISHED, card, kv_run
from pages import send, walk

from lab.backend.hosting import HOSTED
from lab.backend.limits import MIB
from lab.errors import LabError, Unavailable
from lab.events import Event, Recording
from widgets import compare
from widgets.comparison.core import compare as set_against
from widgets.comparison.core import run_of
from widgets.comparison.data import SharedPlot, SharedText
from widgets.comparison.plot import MOST_MARKS, TwoRunsPlot
from widgets.comparison.reading import ENVELOPE_BYTES, LARGEST_BYTES, read_upload, upload_limit
from widgets.comparison.section import CompareSection
from widgets.comparison.told import Token
from widgets.comparison.view import ComparisonView, figure_row, text_pairs, text_words, verdict
from widgets.kv_cache.state import KVCacheState
from widgets.opening import RECORDINGS
from widgets.plot import Plot
from widgets.session import Session
from widgets.view import View

HOSTILE = "</td><script>window.X=1</script>\u202e\x1b[2J"
A = Recording(tuple(kv_run((1.0, 10.0, 12.0, 14.0))))
B = Recording(tuple(kv_run((1.0, 20.0, 24.0, 28.0), run_id="b", of=card(do_sample=True, seed=3))))


class Page:
    """A section on a page that shows one run after another; what `touch` asks for is drawn by `draw`."""

    def __init__(self, experiment: str = "kv_cache") -> None:
        self.state = KVCacheState()
        self.touched = threading.Event()
        lock = threading.RLock()
        self.session = Session(lock, self._fold, lambda: None)
        self.section = CompareSection(experiment)
        self.section.attach(self.session, lock, self.touched.set)

    def _fold(self, event: Event | None) -> None:
        if event is None:
            self.state = KVCacheState()
        else:
            self.state.fold(event)

    def show(self, recording: Recording) -> None:
        self.session.show(recording)
        self.draw()

    def draw(self, *, live: bool = False) -> None:
        self.section.render(self.state, live=live)

    def press(self, action: str) -> None:
        row = next(v for v in self.views() if v.module == "action_row")
        assert action in [a["id"] for a in row.state["actions"]], "a button that is not there"
        send(row, type="action", id=action)
        self.draw()

    def upload(self, name: str, data: bytes, kind: str = "file", **more: Any) -> None:
        self.touched.clear()
        choice = next(v for v in self.views() if v.module == "file_choice")
        choice._receive(choice, {"type": kind, "name": name, **more}, [memoryview(data)] if kind == "file" else [])
        assert self.touched.wait(60)
        self.draw()

    def views(self) -> list[View]:
        return walk(self.section.widget)

    def state_of(self, module: str) -> list[dict[str, Any]]:
        return [view.state for view in self.views() if view.module == module]

    def error(self) -> str:
        (panel,) = self.state_of("error_panel")
        return f"{panel['message']} {panel['remedy']}" if panel["open"] else ""

    def compared(self) -> dict[str, tuple[str, str, str]]:
        """The figures on screen."""
        tables = [s for s in self.state_of("side_by_side") if s["against"]]
        return {row["id"]: (row["a"], row["b"], row["against"]) for table in tables for row in table["rows"]}


@pytest.fixture
def page() -> Page:
    made = Page()
    made.show(A)
    return made


def saved(recording: Recording, folder: Path, name: str = "b.safetensors") -> bytes:
    recording.save(folder / name)
    return (folder / name).read_bytes()


def test_it_is_quiet_until_a_run_is_kept(page: Page) -> None:
    assert not [v for v in page.views() if isinstance(v, Plot)]
    assert page.compared() == {}
    assert [a["label"] for a in page.state_of("action_row")[0]["actions"]] == [
        "Keep this run as A",
        "Take the packaged recording as A",
    ]


def test_a_kept_run_is_a_and_the_next_one_b(page: Page) -> None:
    page.press("keep")
    assert page.compared() == {}
    assert "the new run is B" in str(page.state_of("words"))
    page.show(B)
    assert page.compared()["decode"] == ("12.0 ms", "24.0 ms", "2.0 ×")
    assert len([v for v in page.views() if isinstance(v, Plot)]) == 2
    page.press("swap")
    assert page.compared()["decode"] == ("24.0 ms", "12.0 ms", "0.50 ×")
    page.press("clear")
    assert [a["id"] for a in page.state_of("action_row")[0]["actions"]] == ["keep", "packaged"]


def test_what_is_kept_is_the_session_s_own_list(page: Page) -> None:
    before = page.session.events
    page.press("keep")
    page.show(B)
    assert page.section._kept is not None
    assert page.section._kept.events is before
    assert page.session.events is not before


def test_a_living_run_is_compared_as_it_goes(page: Page) -> None:
    page.press("keep")
    page.session._begin()
    for event in B.events[:-3]:
        page.session._take(event)
    page.draw(live=True)
    assert page.compared()["tokens"][1] == "3"
    assert "live, running" in str(page.state_of("words"))
    for event in B.events[-3:]:
        page.session._take(event)
    page.draw()
    assert page.compared()["tokens"][1] == "4"


def test_a_file_is_a(page: Page, tmp_path: Path) -> None:
    page.upload("b.safetensors", saved(B, tmp_path))
    assert page.error() == ""
    assert page.compared()["decode"] == ("24.0 ms", "12.0 ms", "0.50 ×")


def test_what_comes_from_a_file_is_a_recording_whether_or_not_it_has_a_date(page: Page, tmp_path: Path) -> None:
    page.session._begin()
    for event in A.events:
        page.session._take(event)
    page.upload("b.safetensors", saved(B, tmp_path))
    legend = str(page.state_of("words"))
    assert f"A  ● {FACTS.name}, recorded, finished" in legend
    assert f"B  ■ {FACTS.name}, live, finished" in legend
    page.press("clear")
    dated = Recording(tuple(kv_run(run_id="b", recorded="2027-01-29T21:00:00+00:00")))
    page.upload("b.safetensors", saved(dated, tmp_path))
    assert f"A  ● {FACTS.name}, recorded 2027-01-29 21:00, finished" in str(page.state_of("words"))
    page.press("keep")
    page.show(B)
    legend = str(page.state_of("words"))
    assert f"A  ● {FACTS.name}, live, finished" in legend
    assert f"B  ■ {FACTS.name}, recorded, finished" in legend
    assert "Times of a recording are those of the machine that made it." in legend


def test_the_packaged_recording_is_a(page: Page) -> None:
    page.press("packaged")
    packaged = run_of(Recording.load(RECORDINGS / "kv_cache.safetensors").events)
    decode = next(f for f in packaged.told.figures if f.id == "decode")
    assert page.compared()["decode"][0] == decode.measure.write(decode.value)


def pickled() -> bytes:
    class Trap:
        def __reduce__(self) -> Any:
            return (pytest.fail, ("a pickle was loaded",))

    return pickle.dumps(Trap())


def weights() -> bytes:
    return safetensors.numpy.save({"w": np.zeros(4, dtype=np.float32)})


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (pickled(), "damaged or not a recording"),
        (b"", "damaged or not a recording"),
        (weights(), "a safetensors file but not a lab recording"),
    ],
)
def test_a_bad_file_says_what_is_wrong_with_it(page: Page, data: bytes, words: str) -> None:
    page.upload("../../x.safetensors", data)
    assert words in page.error()
    assert "x.safetensors" in page.error()
    assert page.compared() == {}
    send(next(v for v in page.views() if v.module == "error_panel"), type="dismiss")
    page.draw()
    assert page.error() == ""


def test_a_cut_file_another_experiment_s_and_foreign_events_are_refused(page: Page, tmp_path: Path) -> None:
    page.upload("cut.safetensors", saved(B, tmp_path)[:-40])
    assert "damaged" in page.error()
    page.upload("beams.safetensors", (RECORDINGS / "beam_search.safetensors").read_bytes())
    assert "is a run of beam_search; this page is of kv_cache." in page.error()
    broken = replace(B.events[5], index="x")  # type: ignore[type-var, call-arg]
    with pytest.raises(LabError):
        read_upload("odd", saved(Recording((*B.events[:5], broken, *B.events[6:])), tmp_path, "odd"))


def test_events_that_do_not_fit_together_are_an_error_in_words(page: Page, tmp_path: Path) -> None:
    beyond = [e for e in B.events if type(e).__name__ != "TokenDecoded" or e.index < 2]  # type: ignore[attr-defined]
    early = kv_run((1.0, 10.0, 10.0), run_id="odd", without=(1.0, 1.0, 1.0))
    page.upload("odd.safetensors", saved(Recording(tuple(beyond)), tmp_path))
    assert page.error() == ""
    assert page.compared()["tokens"][0] == "2"
    page.press("clear")
    without_tokens = [e for e in early if type(e).__name__ != "CacheLedger"]
    page.upload("odd.safetensors", saved(Recording(tuple(without_tokens)), tmp_path))
    assert page.error() == ""
    assert page.compared()["bytes"][0] == "–"


def test_a_large_file_is_refused_before_and_after_it_was_sent(page: Page) -> None:
    page.upload("big.safetensors", b"", kind="refused", size=10**9)
    assert "has 1,000,000,000 bytes; this page takes at most 4,194,304." in page.error()
    page.upload("sent.safetensors", b"x" * (LARGEST_BYTES + 1))
    assert "'sent.safetensors' has 4,194,305 bytes" in page.error()


def test_a_hosted_page_takes_no_more_than_its_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    assert upload_limit() == LARGEST_BYTES
    monkeypatch.setenv(HOSTED, '{"message_mib": 2}')
    assert upload_limit() == 2 * MIB - ENVELOPE_BYTES
    assert CompareSection("kv_cache")._file.state["limit"] == upload_limit()


@pytest.mark.parametrize("content", [None, [], {"type": "file"}, {"type": "file", "name": 3}, {"type": "refused"}])
def test_strange_messages_of_a_file_are_ignored(page: Page, content: Any) -> None:
    choice = next(v for v in page.views() if v.module == "file_choice")
    choice._receive(choice, content, [])
    page.draw()
    assert page.error() == ""


def test_hostile_texts_are_text() -> None:
    run = kv_run(run_id="b", of=card(prompt=HOSTILE), tokens=((9, HOSTILE),))
    view = ComparisonView()
    view.show(set_against(run_of(A.events), run_of(run)))
    told = str([v.state for v in walk(view.widget) if v.module in ("side_by_side", "words", "verdict")])
    assert "<script>" in told, "it is shown, as text"
    assert "\\x1b" not in told
    assert "\\u202e" not in told


def test_a_comparison_in_a_cell(tmp_path: Path) -> None:
    A.save(tmp_path / "a.safetensors")
    B.save(tmp_path / "b.safetensors")
    found = compare(tmp_path / "a.safetensors", str(tmp_path / "b.safetensors"))
    assert isinstance(found, ipw.VBox)
    modules = [v.module for v in walk(found)]
    assert modules[0] == "bokeh_loader"
    assert modules.count("plot") == 2
    assert [v.module for v in walk(compare(A, B))] == modules
    with pytest.raises(LabError, match=r"'a.safetensors' and 'a.safetensors' are the same run"):
        compare(tmp_path / "a.safetensors", tmp_path / "a.safetensors")
    with pytest.raises(LabError, match="No recording at"):
        compare(tmp_path / "none.safetensors", B)
    with pytest.raises(LabError, match="kv_cache, B one of beam_search"):
        compare(A, RECORDINGS / "beam_search.safetensors")


def test_a_run_that_goes_on_cannot_be_kept_in_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    from widgets.comparison import page as module

    class Running:
        session = Session(threading.RLock(), lambda _: None, lambda: None)

    monkeypatch.setattr(module, "Dashboard", Running)
    with pytest.raises(Unavailable, match="has not ended"):
        compare(Running(), B)  # type: ignore[arg-type]


def plot(a: Sequence[tuple[float | str, float]], b: Sequence[tuple[float | str, float]]) -> SharedPlot:
    return SharedPlot("p", "A line", "x", "y", tuple(a), tuple(b), ("MEASURED", "MEASURED"), True, "")


def test_both_lines_lie_within_the_same_axes() -> None:
    drawn = TwoRunsPlot("x", "y")
    a, b = [(float(i), 50.0 + i) for i in range(500)], [(10.0, 1.0), (600.0, 90.0)]
    drawn.show(plot(a, b))
    props, data = drawn.state["props"], drawn.state["data"]
    for side in "ab":
        for x, y in zip(data[f"{side}_line"]["x"], data[f"{side}_line"]["y"], strict=True):
            assert props["x_range"]["start"] <= x <= props["x_range"]["end"]
            assert props["y_range"]["start"] <= y <= props["y_range"]["end"]
    assert len(data["a_marks"]["x"]) == MOST_MARKS
    assert data["a_marks"]["x"][-1] == 499.0
    assert "50" in drawn.state["label"]


def test_a_letter_above_the_other_one_is_not_cut() -> None:
    drawn = TwoRunsPlot("x", "y")
    drawn.show(plot([(0.0, 0.1), (29.0, 1.0)], [(0.0, 0.1), (29.0, 0.99)]))
    names, y = drawn.state["data"]["names"], drawn.state["props"]["y_range"]
    least = 150  # pixels of the frame: 230 without title and axis
    for at, down in zip(names["y"], names["dy"], strict=True):
        above = (y["end"] - at) / (y["end"] - y["start"]) * least + down
        assert above >= 7, "half of a letter of 11 pixels, and some more"


def test_an_experiment_without_a_comparison_has_no_section() -> None:
    assert CompareSection("kv_cache").widget.layout.display is None
    assert CompareSection("new_one").widget.layout.display == "none"
    unknown = [replace(A.events[0], card=replace(CARD, experiment="new_one")), FINISHED]  # type: ignore[type-var, call-arg]
    with pytest.raises(LabError, match="Runs of 'new_one' cannot be compared here"):
        run_of(unknown)


def test_bars_are_as_long_as_the_figures() -> None:
    found = {f.id: figure_row(f) for f in set_against(run_of(A.events), run_of(B.events)).figures}
    assert found["decode"].shares == (0.5, 1.0)
    assert found["tokens"].shares == (1.0, 1.0)


def test_the_heading_says_what_differs() -> None:
    assert verdict(set_against(run_of(A.events), run_of(B.events)))[1] == "2 settings differ: Sampling, Seed"
    same = kv_run(run_id="c")
    assert verdict(set_against(run_of(A.events), run_of(same)))[1].startswith("The same settings")
    one = kv_run(run_id="c", of=card(seed=1))
    assert verdict(set_against(run_of(A.events), run_of(one)))[1] == "One setting differs: Seed"
    begun = [replace(A.events[0], card=CARD), FINISHED]  # type: ignore[type-var, call-arg]
    assert verdict(set_against(run_of(begun), run_of(one)))[1] == "These two cannot be compared"


def test_long_texts_are_shown_around_their_first_difference() -> None:
    row = [Token(i, f" {i}") for i in range(900)]
    other = [*row[:500], *(Token(0, " x") for _ in range(400))]
    start, pairs = text_pairs(SharedText("t", "Text", tuple(row), tuple(other), 500))
    assert start == 480
    assert [p.same for p in pairs[19:22]] == [True, False, False]
    assert text_words(SharedText("t", "Text", tuple(row), tuple(other), 500)).startswith(
        "First difference at token 501: A “ 500”, B “ x”."
    )
    assert text_words(SharedText("t", "Text", tuple(row), tuple(row[:3]), 3)) == (
        "The same as far as B goes (3 of 900 tokens)."
    )
