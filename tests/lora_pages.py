"""The `lora` page without a browser, and the simulated run of each task."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from lora_answers import scale_answer
from lora_runs import compare_run, merge_run, swap_run, train_run
from pages import walk

from lab.events import Event
from widgets.experiment import Desk, build_views
from widgets.lora.views import LoraViews

RUNS: dict[str, Callable[..., Any]] = {
    "compare": compare_run,
    "train": train_run,
    "swap": swap_run,
    "merge": merge_run,
}


class Page:
    """The views with answers by the name of a question, or with a backend that is not there."""

    def __init__(self, answers: dict[str, Any] | None = None) -> None:
        self.asked: list[tuple[str, dict[str, Any], bool]] = []

        def ask(name: str, params: dict[str, Any], reply: Callable[..., None], *, of_run: bool) -> None:
            self.asked.append((name, params, of_run))
            found = (answers or {}).get(name)
            if name == "scale" and found is not None:
                found = scale_answer(params["factor"], params["row"])
            reply(found, "" if found is not None else "This was never asked while the run was recorded.")

        self.desk = Desk(ask=ask, touch=lambda: None, lock=threading.RLock())
        made = build_views("lora", self.desk)
        assert isinstance(made, LoraViews)
        self.views = made

    def run(self, events: list[Event], *, live: bool = False) -> Page:
        self.views.reset()
        for event in events:
            self.views.fold(event)
        if not live:
            self.views.settle()
        self.views.render(live=live)
        return self

    def text(self) -> str:
        return json.dumps([view.state for view in walk(self.views.widget)], ensure_ascii=False)
