"""A visitor's page from outside: a real kernel that holds it, and what is asked of it."""

from __future__ import annotations

import ast
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jupyter_client.manager import KernelManager

from benchmarks.visitor import Visit

READY_S = 300.0
Run = tuple[str, dict[str, Any]]
"""Experiment and parameters."""


@dataclass
class Page:
    """A kernel with a page in it.

    Attributes:
        controls_s: until its widgets were made.
        pss: bytes that are its own, its part of what it shares counted; at its end.
        shown: what the page's own run said.
    """

    visitor: int
    manager: KernelManager
    client: Any
    controls_s: float = 0.0
    pss: int = 0
    visits: list[Visit] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)

    def execute(self, code: str, value: str = "''") -> str:
        """Run code, then the value of an expression, a string. All by the shell's reply: output may come later."""
        asked = self.client.execute(code, user_expressions={"value": value})
        while True:
            reply = self.client.get_shell_msg(timeout=READY_S)
            if reply["parent_header"].get("msg_id") == asked:
                break
        if reply["content"]["status"] != "ok":
            raise RuntimeError(f"visitor {self.visitor}: {reply['content'].get('evalue')}")
        return str(ast.literal_eval(reply["content"]["user_expressions"]["value"]["data"]["text/plain"]))

    def run(self, runs: Sequence[Run]) -> None:
        said = self.execute(f"from benchmarks.visitor import visits\nsaid = visits({list(runs)!r})", "said")
        self.visits += [Visit(**one) for one in json.loads(said)]

    def look(self) -> None:
        """Wait for the run that the page made itself."""
        self.shown = json.loads(
            self.execute("import json\nfrom benchmarks.visitor import shown\nsaid = json.dumps(shown(page))", "said")
        )


def open_page(visitor: int, experiment: str, environment: dict[str, str]) -> Page:
    """A kernel that has made its page's widgets."""
    began = time.monotonic()
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(env=environment)
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=READY_S)
    page = Page(visitor, manager, client)
    page.execute(f"from widgets.page import Dashboard\npage = Dashboard({experiment!r})")
    page.controls_s = time.monotonic() - began
    return page
