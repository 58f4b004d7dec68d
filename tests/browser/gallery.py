"""All views with realistic states, on one static page without a kernel."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from gallery_lora import lora_views
from gallery_pruning import pruning_views
from gallery_quantization import quantization_views
from gallery_speculative import speculative_views
from playwright.sync_api import Page

from lab.events import RunCard
from lab.experiments.kv_cache.params import PRESETS, KVCacheParams
from widgets import assets, front_page
from widgets.controls import Controls
from widgets.data_table import DataTable
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
from widgets.side_by_side import SideBySide, SideRow
from widgets.token_strip import TokenStrip
from widgets.view import View

Open = Callable[..., Page]

PROMPT = ["The", " cache", " remembers", " what", " the", " model", " has", " already", " read", ",", " so", " each"]
NEW = [" new", " token", " only", " asks", " once", ".", "\n", "\n", "The", " price", " is", " memory", " that"]
JUDGED = [
    (" the", "accepted"),
    (" river", "accepted"),
    (" bank", "rejected"),
    (" mouth", "resampled"),
    (" where", "accepted"),
    (" sea", "bonus"),
    (" in", "plain"),
    (" and", "accepted"),
    (" to", "unjudged"),
]


class _Rows:
    name = "ledger"
    head = ("cache length", "phase", "counted bytes", "difference", "token")
    rows = tuple((n, "decode" if n > 12 else "prefill", 46_080 * n, 0, " so" if n % 2 else "") for n in range(1, 65))


def schema() -> dict[str, Any]:
    """The KV cache's schema as narrowed to a model of 30 layers without a chat template."""
    fields = KVCacheParams.model_json_schema()
    fields["properties"]["trace_layers"]["items"].update(minimum=0, maximum=29)
    fields["properties"]["chat"]["disabled"] = "This model has no chat template."
    return fields


def views() -> dict[str, View]:
    """The views by the id of the element that shows them."""
    values = {**KVCacheParams().model_dump(mode="json"), "do_sample": True, "temperature": 0.8, "trace_layers": [0, 9]}
    presets = [{"question": p.question, "params": p.params} for p in PRESETS]
    controls = Controls(
        schema=schema(),
        values=values,
        presets=presets,
        models=[{"id": "a", "label": "SmolLM2-135M-Instruct"}, {"id": "b", "label": "Gemma-3-270m"}],
        model="a",
        groups=("main", "sampling"),
    )
    runner = RunnerBar()
    runner.show("running", 0.72, "token 37 of 52 · 24.8 tokens/s")
    heartbeat = Heartbeat(pace={"ping": 100, "dead": 400, "first": 1000})
    heartbeat.show(mode="live", model="SmolLM2-135M · fp32 · CPU")
    error = ErrorPanel()
    error.show(
        "The prompt has 9,000 tokens; SmolLM2-135M-Instruct reads at most 8,192.", "Shorten it by 808.", "bad_input"
    )
    player = Player()
    player.show(step=20, available=37, total=52)
    table = DataTable()
    table.show(_Rows(), caption="Bytes in the cache at each length")
    card = RunCardButton()
    card.show(_card())
    link = LinkButton()
    link.show({"prompt": "The cache", "max_new_tokens": 48, "note": "12", "do_sample": True})
    export = ExportMenu(prefix="kv_cache")
    export.show(
        [
            {"id": "png", "label": "Pictures as PNG"},
            {"id": "csv", "label": "Data as CSV", "note": "tokens, bytes and times"},
            {"id": "recording", "label": "The run, replays without the model", "disabled": "The run has not ended."},
        ]
    )
    return {
        "heartbeat": heartbeat,
        "controls": controls,
        "runner": runner,
        "controls_rest": controls.part("compare", "break"),
        "error": error,
        "player": player,
        **_strips(),
        "figures": _figures(),
        **_layers(),
        "table": table,
        **_proofs(),
        "card": card,
        "link": link,
        "export": export,
        "lesson": _lesson(),
        **speculative_views(),
        **quantization_views(),
        **lora_views(),
        **pruning_views(),
        **_compared(),
        "front": front_page(),
    }


def _card() -> RunCard:
    return RunCard(
        experiment="kv_cache",
        model="smollm2-135m-instruct",
        weight_hash="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        dtype="float32",
        device="cpu",
        attention="sdpa",
        threads=2,
        versions={"torch": "2.13.0", "transformers": "5.24.0"},
        params=KVCacheParams().model_dump(mode="json"),
    )


def tokens() -> list[dict[str, Any]]:
    """A prompt and what a model wrote after it."""
    listed = [{"text": text, "kind": "prompt"} for text in PROMPT] + [{"text": text, "kind": "new"} for text in NEW]
    listed[-1]["kind"] = "newest"
    return listed


def _strips() -> dict[str, View]:
    strip, judged, weighted = TokenStrip(), TokenStrip(), TokenStrip()
    strip.show(tokens(), locked=15, selected=18)
    judged.show([{"text": text, "kind": kind, "id": i} for i, (text, kind) in enumerate(JUDGED)])
    shown = tokens()
    weighted.show(shown, weights=[1.0 if i == 0 else (i * 37 % 11) / 14 for i in range(len(shown))])
    return {"strip": strip, "judged": judged, "weighted": weighted}


def _figures() -> FigureRow:
    row = FigureRow()
    row.show(
        [
            {"id": "a", "value": "2.81", "unit": "MiB in the cache", "badge": "MEASURED", "note": "64 tokens"},
            {"id": "b", "value": "45.0", "unit": "KiB a token", "badge": "DERIVED", "note": ""},
            {
                "id": "c",
                "value": "3.4",
                "unit": "× faster, token 64",
                "badge": "MEASURED",
                "note": "24 ms against 82 ms",
            },
            {"id": "d", "value": "", "unit": "MiB saved", "badge": "SIMULATED", "note": ""},
        ]
    )
    return row


def _layers() -> dict[str, View]:
    full, mixed = LayerStrip(), LayerStrip(title="Bytes of each layer, windows")
    full.show(
        [{"bytes": 98_304, "kind": "full", "positions": 64}] * 30,
        9,
        caption="Layer 0 to 29, 96.0 KiB each. All keep every position; a sliding layer stops growing.",
    )
    kinds = ["sliding", "sliding", "sliding", "sliding", "sliding", "full"] * 3
    mixed.show(
        [{"bytes": 40_000 if k == "sliding" else 98_304, "kind": k} for k in kinds]
        + [{"bytes": 20_000, "kind": "other"}]
    )
    return {"layers": full, "layers_mixed": mixed}


def _proofs() -> dict[str, View]:
    equal, pending, tie, different = ProofLine(), ProofLine(), ProofLine(), ProofLine()
    equal.show("equal", "Identical to `generate()`: 52 of 52 tokens, fp32", [["top-2 gap, least", "0.0131"]])
    pending.show("pending", "Comparing with `generate()`: 12 of 52 tokens", can_cancel=True)
    tie.show("tie", "Identical to `generate()` up to a tie: 41 of 52. The top two are 3e-5 apart.")
    different.show("different", "Not identical to `generate()`: 3 of 52 agree. The last prompt token was fed twice.")
    return {"proof": equal, "proof_pending": pending, "proof_tie": tie, "proof_different": different}


def _compared() -> dict[str, View]:
    settings, figures = SideBySide(label="Settings", first="setting"), SideBySide(label="Both", against="B against A")
    settings.show([SideRow("prompt", "Prompt", "The cache remembers", "Once"), SideRow("seed", "Seed", "0", "7")])
    figures.show(
        [
            SideRow("decode", "decode step, median", "29.7 ms", "50.5 ms", "1.7 ×", "MEASURED", (0.59, 1.0)),
            SideRow("score", "score of the best text", "−0.871", "−3.43", "– ¹", "MEASURED"),
        ]
    )
    choice = FileChoice(label="Open a recording as A", accept=".safetensors", limit=1024)
    return {"settings_apart": settings, "figures_of_both": figures, "file_choice": choice}


def _lesson() -> Lesson:
    lesson = Lesson()
    lesson.show(
        [
            {
                "title": "The idea",
                "paragraphs": [
                    "To write the next token the model looks back at all earlier ones. What it looks at, a key and a "
                    "value for each token, layer and head, is the same every time. Keep it, and each step computes one "
                    "token instead of all."
                ],
                "math": "2 · layers · kv_heads · head_dim · T · bytes",
            },
            {"paragraphs": ["Here 2 · 30 · 3 · 64 · 4 = 46,080 bytes a token."]},
            {
                "title": "Three tokens, by hand",
                "table": {
                    "head": ["step", "token", "output"],
                    "rows": [["1", "(1, 0)", "(1, 0)"], ["2", "(0, 1)", "(0.33, 0.67)"]],
                },
            },
            {
                "title": "Predict first",
                "paragraphs": ["This model shares 3 key/value heads among 9 query heads."],
                "question": {
                    "text": "How much larger would the cache be without sharing?",
                    "choices": ["2 ×", "3 ×", "9 ×"],
                    "answer": 1,
                    "reply": "9 / 3 = 3: the dashed line in the picture.",
                },
            },
            {"title": "This is not", "paragraphs": ["the memory of the weights (513 MiB)."]},
        ]
    )
    return lesson


@cache
def _built() -> dict[str, View]:
    """Built once for all pages, which get copies of their states."""
    return views()


@cache
def gallery_json() -> str:
    """Modules and states, as an exported page would hold them."""
    return json.dumps({name: as_drawn(view) for name, view in _built().items()})


def as_drawn(view: View) -> dict[str, Any]:
    """What the page needs to draw a view: its module, its state, and what else its class sends to the page."""
    own = {name: getattr(view, name) for name in ("item", "bits") if view.has_trait(name)}
    return {"module": view.module, "state": view.state, "traits": own}


@cache
def _styles() -> str:
    return "\n".join(assets.css(module) for module in dict.fromkeys(view.module for view in _built().values()))


def _body(path: str) -> tuple[str, str] | None:
    if path == "/":
        return (Path(__file__).parent / "gallery.html").read_text(encoding="utf-8"), "text/html"
    if path == "/gallery.json":
        return gallery_json(), "application/json"
    if path == "/stand_in.js":
        return assets.stand_in(), "text/javascript"
    if path == "/all.css":
        return _styles(), "text/css"
    if path.startswith("/module/"):
        return assets.esm(path.removeprefix("/module/").removesuffix(".js")), "text/javascript"
    return None


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = _body(self.path.partition("?")[0])
        self.send_response(200 if found else 404)
        body, kind = found or ("", "text/plain")
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_args: Any) -> None:
        """Tests need no log of requests."""


@contextmanager
def serve() -> Iterator[str]:
    """The gallery's address on loopback."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def set_state(page: Page, view: str, **changes: Any) -> None:
    """Change some keys of a view's state, as Python would."""
    page.evaluate(
        "([view, changes]) => { const m = views[view].model; m.set('state', {...m.get('state'), ...changes}); }",
        [view, changes],
    )


def sent(page: Page, view: str, kind: str) -> list[dict[str, Any]]:
    """The messages of this type that a view has sent."""
    return [m for m in page.evaluate("view => views[view].model.sent", view) if m["type"] == kind]


def wait_sent(page: Page, view: str, kind: str, count: int = 1) -> list[dict[str, Any]]:
    """The same, once there are `count` of them."""
    page.wait_for_function(
        "([view, kind, count]) => views[view].model.sent.filter(m => m.type === kind).length >= count",
        arg=[view, kind, count],
        timeout=5000,
    )
    return sent(page, view, kind)
