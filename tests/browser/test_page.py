"""The `kv_cache` page in a real browser, on a real Voila, with the real model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from lab_server import Lab, running_lab, wait_until
from playwright.sync_api import Browser, Page, expect

from lab.events import Recording, RunFinished
from lab.events.kv_cache import CacheLedger

pytestmark = [pytest.mark.browser, pytest.mark.model]

HOSTILE = "<img src=x onerror=window.X=1> </script><script>window.X=1</script> says"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, packaged_model: Any) -> Iterator[Lab]:
    del packaged_model  # fetched and converted, so that the model process finds it
    with running_lab(tmp_path_factory.mktemp("lab") / "cache") as lab:
        yield lab


class Visit:
    """A page and what it did wrong."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.problems: list[str] = []
        self.elsewhere: list[str] = []
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", lambda message: self.problems.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: self._check(request.url))

    def _check(self, url: str) -> None:
        if not re.match(r"(https?|wss?)://(localhost|127\.0\.0\.1)[:/]|data:|blob:", url):
            self.elsewhere.append(url)

    def wait_ready(self) -> None:
        """Wait until all is drawn. Every load of these tests is looked at: one in ten may fail where a race is lost."""
        self.page.wait_for_selector(".lab-plot[data-ready]", timeout=60_000)
        expect(self.page.locator("#loading")).to_have_count(0, timeout=20_000)
        assert "Failed to load model class" not in self.page.content()
        expect(self.page.locator(".lab-plot[data-ready]")).to_have_count(4)

    def run(self, prompt: str, new_tokens: int = 8) -> None:
        self.page.get_by_label("Prompt", exact=True).fill(prompt)
        slider = self.page.get_by_label("New tokens", exact=True)
        slider.fill(str(new_tokens))
        self.page.get_by_role("button", name="Run", exact=True).click()

    def proof(self) -> Any:
        return self.page.locator(".lab-proof")

    def wait_proof(self, words: str | re.Pattern[str]) -> None:
        expect(self.proof()).to_contain_text(words, timeout=90_000)

    def source(self, name: str) -> dict[str, list[Any]]:
        """The data of a Bokeh source as the browser has them."""
        found: dict[str, list[Any]] = self.page.evaluate(
            """name => {
                for (const doc of Bokeh.documents) {
                    const source = doc.get_model_by_name(name);
                    if (source) return Object.fromEntries(Object.entries(source.data).map(([k, v]) => [k, [...v]]));
                }
                return {};
            }""",
            name,
        )
        return found


def visited(browser: Browser, url: str, width: int = 1280) -> Visit:
    context = browser.new_context(viewport={"width": width, "height": 900}, accept_downloads=True)
    visit = Visit(context.new_page())
    visit.page.goto(url, wait_until="commit")
    return visit


@pytest.fixture
def visit(browser: Browser) -> Iterator[Any]:
    """`visit(url, width=1280)`: a page of its own."""
    visits: list[Visit] = []

    def start(url: str, width: int = 1280) -> Visit:
        visits.append(visited(browser, url, width))
        return visits[-1]

    yield start
    for visit in visits:
        visit.page.context.close()
    assert [p for v in visits for p in v.problems] == []
    assert [u for v in visits for u in v.elsewhere] == []


@pytest.fixture(scope="module")
def _shared(lab: Lab, browser: Browser) -> Iterator[Visit]:
    visit = visited(browser, lab.page(autorun="0"))
    visit.wait_ready()
    yield visit
    visit.page.context.close()


@pytest.fixture
def shared(_shared: Visit) -> Iterator[Visit]:
    """One page for all tests that only start runs on it and read: a visitor does not reload either."""
    yield _shared
    problems, elsewhere = _shared.problems[:], _shared.elsewhere[:]
    _shared.problems.clear()
    _shared.elsewhere.clear()
    assert problems == []
    assert elsewhere == []


def test_a_recording_first_then_a_live_run_that_proves_itself(lab: Lab, visit: Any) -> None:
    page = visit(lab.page())
    page.page.wait_for_selector(".lab-poster-strip", timeout=10_000)
    page.wait_ready()
    expect(page.page.get_by_role("button", name="Run", exact=True)).to_be_visible()
    expect(page.page.locator(".lab-mode")).to_contain_text("LIVE", timeout=60_000)
    page.wait_proof("Identical to generate()")
    assert "Click to show javascript error" not in page.page.content()


def test_rows_in_the_browser_are_rows_in_the_recording(shared: Visit, tmp_path: Path) -> None:
    page = shared
    page.run("Once upon a time there was a", 9)
    page.wait_proof(re.compile(r"Identical to generate\(\).* 9 of 9 tokens"))
    page.page.get_by_role("button", name="Export").click()
    with page.page.expect_download() as download:
        page.page.get_by_role("menuitem", name=re.compile("replays without the model")).click()
    download.value.save_as(tmp_path / "run.safetensors")
    recording = Recording.load(tmp_path / "run.safetensors")
    ledgers = {e.cache_length: sum(e.layer_bytes) for e in recording.events if isinstance(e, CacheLedger)}
    counted = page.source("counted")
    assert counted["x"] == [0, *sorted(ledgers)]
    assert [round(y * 2**20) for y in counted["y"]] == [0, *(ledgers[n] for n in sorted(ledgers))]
    finished = recording.events[-1]
    assert isinstance(finished, RunFinished)
    assert len(finished.token_ids) == 9


def test_a_kept_run_is_compared_with_the_next_one(shared: Visit) -> None:
    page = shared
    page.run("Once upon a time there was a", 6)
    page.wait_proof("6 of 6 tokens")
    section = page.page.locator(".lab-compare")
    section.get_by_role("button", name="Keep this run as A").click()
    expect(section).to_contain_text("A is the run on the page.")
    page.run("Once upon a time there was a", 8)
    page.wait_proof("8 of 8 tokens")
    settings = section.get_by_role("table", name="Settings that differ")
    expect(settings.locator("tbody tr")).to_have_count(1)
    expect(settings).to_contain_text(re.compile(r"New tokens\s*6\s*8"))
    expect(section).to_contain_text("The same as far as A goes (6 of 8 tokens)")
    row = section.get_by_role("table", name="Figures of both runs").locator("tbody tr").filter(has_text="new tokens")
    expect(row).to_contain_text("+2")
    section.get_by_role("button", name="Clear").click()
    expect(settings).to_be_hidden()


def test_hostile_text_is_text(shared: Visit) -> None:
    page = shared
    page.run(HOSTILE, 3)
    page.wait_proof("3 of 3 tokens")
    assert page.page.evaluate("window.X") is None
    assert page.page.locator(".lab-strip img, .lab-strip script").count() == 0
    assert "onerror" in page.page.locator(".lab-strip").inner_text().replace("\n", "")


@pytest.mark.parametrize(
    "mistake", ["feed the last prompt token twice", "shift the positions by one", "drop one layer's cache"]
)
def test_a_mistake_turns_the_proof_red(shared: Visit, mistake: str) -> None:
    page = shared
    page.page.get_by_label(mistake, exact=True).check()
    page.run("The capital of France is", 12)
    page.wait_proof("Not identical to generate()")
    assert page.page.locator(".lab-proof [data-verdict=different], .lab-proof[data-verdict=different]").count() >= 1
    page.page.get_by_label("nothing", exact=True).check()
    page.run("The capital of France is", 3)
    page.wait_proof("3 of 3 tokens")  # and the next mistake begins from a green one


def test_stop_and_the_next_run(shared: Visit) -> None:
    page = shared
    page.run("Count slowly: one, two,", 400)
    expect(page.page.locator(".lab-runner")).to_contain_text(re.compile(r"token [2-9]"), timeout=60_000)
    page.page.get_by_role("button", name="Stop").click()
    page.wait_proof("Stopped, unproven.")
    page.run("One more:", 4)
    page.wait_proof("4 of 4 tokens")


def test_the_words_beside_the_bar_follow_the_run(shared: Visit) -> None:
    page = shared
    page.page.evaluate(
        """() => {
            window.notes = new Set();
            const note = document.querySelector('.lab-runner');
            new MutationObserver(() => window.notes.add(note.innerText)).observe(note, {
                subtree: true, childList: true, characterData: true,
            });
        }"""
    )
    page.run("The tide comes in and", 12)
    page.wait_proof("12 of 12 tokens")
    assert len({note for note in page.page.evaluate("[...window.notes]") if "token" in note}) >= 3


def test_everything_has_a_name(shared: Visit) -> None:
    page = shared
    for role in ("button", "slider", "textbox", "img", "combobox", "checkbox", "radio", "spinbutton", "progressbar"):
        for item in page.page.get_by_role(role).all():
            name = item.evaluate(
                "e => e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') || e.innerText || e.title "
                "|| [...(e.labels ?? [])].map(l => l.innerText).join(' ')"
            )
            assert (name or "").strip(), f"a {role} without a name: {item.evaluate('e => e.outerHTML')[:200]}"


def test_killing_the_model_process_is_said_and_mended(lab: Lab, visit: Any) -> None:
    page = visit(lab.page(autorun="0"))
    page.wait_ready()
    page.run("A very long story begins", 400)
    expect(page.page.locator(".lab-runner")).to_contain_text(re.compile(r"token [2-9]"), timeout=60_000)
    for process in lab.children("lab.backend.serve"):
        process.kill()
    expect(page.page.get_by_role("alert")).to_contain_text("model process", timeout=20_000)
    assert "`" not in page.page.get_by_role("alert").first.inner_text()
    expect(page.page.locator(".lab-error-remedy code").first).to_be_visible()
    page.run("Once more", 4)
    page.wait_proof("4 of 4 tokens")


def test_a_killed_kernel_is_said_within_ten_seconds(lab: Lab, visit: Any) -> None:
    before = {k.pid for k in lab.kernels()}
    page = visit(lab.page(autorun="0"))
    page.wait_ready()
    mine = [k for k in lab.kernels() if k.pid not in before]
    assert len(mine) == 1
    mine[0].kill()
    expect(page.page.locator(".lab-page").first).to_have_class(re.compile("lab-dead"), timeout=10_000)
    expect(page.page.locator(".lab-page").first).to_contain_text("kernel ended")
    grid = page.page.locator(".lab-main").first
    expect(grid).to_have_class(re.compile("jupyter-widgets-disconnected"), timeout=10_000)
    before_it = grid.evaluate("e => getComputedStyle(e, '::before').content")
    assert before_it == "none", "a mark in the grid would push every column by one"
    page.problems.clear()  # the browser says that the socket broke, and it did


def test_closing_the_page_ends_its_kernel(lab: Lab, browser: Browser) -> None:
    before = {k.pid for k in lab.kernels()}
    page = browser.new_page()
    page.goto(lab.page(autorun="0"))
    page.wait_for_selector(".lab-plot[data-ready]", timeout=60_000)
    mine = [k.pid for k in lab.kernels() if k.pid not in before]
    assert len(mine) == 1
    page.close(run_before_unload=True)
    wait_until(lambda: mine[0] not in {k.pid for k in lab.kernels()}, 5, "the kernel outlived its page")


@pytest.mark.parametrize(("theme", "widths"), [("light", (1280, 800)), ("dark", (800, 1280))])
def test_nothing_overflows_and_text_has_contrast(lab: Lab, visit: Any, theme: str, widths: tuple[int, int]) -> None:
    page = visit(lab.page(autorun="0", theme=theme), widths[0])
    page.wait_ready()
    for width in widths:
        page.page.set_viewport_size({"width": width, "height": 900})
        page.page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width, timeout=5000)
        edge = page.page.locator(".lab-page").first.evaluate("e => [e.getBoundingClientRect().x, e.offsetTop]")
        assert edge == [0, 0], "a strip of the notebook shows at the edge"
        contrast = page.page.evaluate(CONTRAST_OF_TICKS)
        assert contrast[1] == 8
        assert contrast[0] >= 4.5
        assert (contrast[2] > 0.5) == (theme == "light")


CONTRAST_OF_TICKS = """() => {
            const rgb = text => (text.match(/[\\d.]+/g) || []).slice(0, 3).map(Number);
            const light = c => { const v = c / 255; return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; };
            const luminance = c => .2126 * light(c[0]) + .7152 * light(c[1]) + .0722 * light(c[2]);
            const surface = luminance(rgb(getComputedStyle(document.querySelector('.lab-picture')).backgroundColor));
            const probe = document.createElement('span');
            document.body.append(probe);
            const worst = Bokeh.documents.flatMap(doc => [...doc._all_models.values()])
                .filter(m => (m.tags ?? []).some(t => String(t).startsWith('major_label_text_color')))
                .map(m => { probe.style.color = m.major_label_text_color; return getComputedStyle(probe).color; })
                .map(color => luminance(rgb(color)))
                .map(l => (Math.max(l, surface) + .05) / (Math.min(l, surface) + .05));
            probe.remove();
            return [Math.min(...worst), worst.length, surface];
        }"""


def test_the_link_holds_the_state(lab: Lab, visit: Any) -> None:
    page = visit(lab.page(autorun="0") + "#prompt=Two+and+two+are&max_new_tokens=5&layer=9&head=2&window=256")
    page.wait_ready()
    expect(page.page.get_by_label("Prompt", exact=True)).to_have_value("Two and two are", timeout=10_000)
    expect(page.page.get_by_label("New tokens", exact=True)).to_have_value("5")
    expect(page.page.get_by_label("Layer", exact=True)).to_have_value("9")
    expect(page.page.get_by_label("Query head", exact=True)).to_have_value("2")
    expect(page.page.get_by_label("Window", exact=True)).to_have_value("256")


def test_the_quantization_page_follows_its_sliders_and_proves_its_run(lab: Lab, visit: Any) -> None:
    page = visit(lab.url("/voila/render/quantization.ipynb?autorun=0#heldout_tokens=32"), 800)
    page.wait_ready()
    table = page.page.get_by_role("table", name="Errors at each group size")
    expect(table.locator("tbody")).to_have_count(6)
    expect(page.page.get_by_text("MEASURED in the run: ")).to_be_visible()
    (before,) = re.findall(r"[\d.]+ dB", table.locator("tbody").first.inner_text())
    page.page.get_by_label("Bits", exact=True).first.fill("3")
    expect(page.page.get_by_text("MEASURED on the model as you move the sliders")).to_be_visible()
    expect(table).not_to_contain_text(before, timeout=60_000)
    expect(table).to_contain_text("dB")
    assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.page.get_by_role("button", name="Run", exact=True).click()
    page.wait_proof("computed again in plain Python")
    expect(page.page.locator(".lab-mode")).to_contain_text("LIVE")
    expect(page.page.get_by_text("MEASURED in the run: ")).to_be_visible()


@pytest.mark.parametrize(
    "path",
    [
        "/voila/files/kv_cache.ipynb",
        "/voila/files/../pyproject.toml",
        "/voila/files/%2e%2e/pyproject.toml",
        "/files/kv_cache.ipynb",
        "/voila/render/..%2fpyproject.toml",
        "/voila/static/../../server.py",
        "/voila/templates/inference-lab/static/../index.html.j2",
    ],
)
def test_no_file_is_served(lab: Lab, path: str) -> None:
    answer = httpx.get(lab.url(path), follow_redirects=True, trust_env=False)
    assert answer.status_code in (400, 403, 404, 405, 500)
    assert "hatchling" not in answer.text
    assert "Traceback" not in answer.text
