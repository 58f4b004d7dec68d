"""A room full of people: `python -m benchmarks.visitors [--json] [--visitors N]`.

One model process as `lab up` starts it, and N real kernels (30), each with a page's widgets, on loopback. Three parts:

- arriving over 60 s: kernels start one after another; each page makes the run that it opens with, and two more;
- all at once: the same pages, open now, all press Run in the same moment;
- after that: Stop among running neighbours, and the process's memory over 200 runs.

Half of the visitors have cards of their own; the others share theirs. Each distinct run is first made alone, for what
it should say and how long it takes. Throughput is that of distinct runs: the sum of their times alone over the time in
which all were served. Fairness is the fastest progress over the slowest: time alone over time among others, of runs
that ended while others still waited for a turn. What a browser itself takes is not counted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from benchmarks.memory_watch import MIB, pss_bytes
from benchmarks.visitor import Visit, visit
from benchmarks.visitor_page import Page, Run, open_page
from lab.backend.http import HttpBackend
from lab.backend.process import ModelProcess
from lab.backend.protocol import RunRequest
from lab.events import RunCancelled
from lab.paths import CACHE_VARIABLE, models_dir
from lab.settings import BACKEND_TOKEN, BACKEND_URL
from widgets.voila.forked import fork_kernels

ARRIVE_S = 60.0
FLAT_RUNS = 200
MIX: tuple[tuple[str, dict[str, Any]], ...] = (
    ("kv_cache", {"max_new_tokens": 32, "without_cache_tokens": 0}),
    ("beam_search", {"max_new_tokens": 16}),
    ("speculative", {"max_new_tokens": 32}),
    ("lora", {"max_new_tokens": 16}),
)


def runs_of(visitor: int) -> list[Run]:
    """Two runs of the mix; every second visitor's have a prompt of their own."""
    found = []
    for turn in range(2):
        name, params = MIX[(visitor + turn) % len(MIX)]
        own = {"prompt": f"Visitor {visitor} asks: which river runs through city {visitor}?"} if visitor % 2 else {}
        found.append((name, {**params, **own}))
    return found


def opened_by(visitor: int) -> Run:
    """The run that a visitor's page makes when it is opened: that of its experiment's defaults."""
    return runs_of(visitor)[0][0], {}


@contextlib.contextmanager
def lab() -> Iterator[tuple[ModelProcess, dict[str, str]]]:
    """A model process with an empty cache of runs, and the environment of a kernel of it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "models").symlink_to(models_dir())
        environment = {**os.environ, CACHE_VARIABLE: folder, "PYTHONPATH": str(Path.cwd())}
        with ModelProcess(environment=environment) as process:
            process.wait_ready()
            yield process, {**environment, BACKEND_URL: process.url, BACKEND_TOKEN: process.token}


def alone(runs: Sequence[Run]) -> dict[str, tuple[float, Visit]]:
    """Each distinct run by itself: how long it takes from its first event, and what it says."""
    found: dict[str, tuple[float, Visit]] = {}
    with lab() as (process, _):
        backend = HttpBackend(process.url, process.token)
        for name, params in MIX:
            visit(backend, name, params, fresh=True)  # loads what is loaded once
        for name, params in runs:
            key = key_of((name, params))
            if key not in found:
                one = visit(backend, name, params, fresh=True)
                found[key] = one.ended - one.first, one
        backend.close()
    return found


def key_of(run: Run) -> str:
    return json.dumps(run, sort_keys=True)


def in_threads(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def arriving(visitors: int, process: ModelProcess, environment: dict[str, str]) -> tuple[list[Page], dict[str, Any]]:
    """Kernels start over `ARRIVE_S`, and each makes its runs as soon as its page is there."""
    began = time.monotonic()

    def come(visitor: int) -> Page:
        wait = began + visitor * ARRIVE_S / visitors - time.monotonic()
        threading.Event().wait(max(0.0, wait))
        page = open_page(visitor, opened_by(visitor)[0], environment)
        page.run(runs_of(visitor))
        page.look()
        return page

    pages = in_threads([lambda v=v: come(v) for v in range(visitors)])
    wall_s = time.monotonic() - began
    for page in pages:
        page.pss = pss_bytes(page.manager.provisioner.pid)
    return pages, {"wall_s": wall_s, "model_process_mib": _pss(process)}


def at_once(pages: list[Page]) -> dict[str, Any]:
    """All press Run together: cards that nobody made before, so that nothing comes from a recording."""
    for page in pages:
        page.visits = []
    began = time.monotonic()
    in_threads([lambda p=p: p.run([second(p.visitor)]) for p in pages])
    return {"wall_s": time.monotonic() - began}


def second(visitor: int) -> Run:
    """A run of the part "all at once": each visitor's own card, or one that the others of its experiment share."""
    name, params = MIX[visitor % len(MIX)]
    who = f"visitor {visitor}" if visitor % 2 else "the whole class"
    return name, {**params, "prompt": f"A question of {who}: what is the tallest mountain?"}


def judged(
    visits: list[tuple[Run, Visit]],
    pages: list[tuple[Run, list[str]]],
    single: dict[str, tuple[float, Visit]],
    wall_s: float,
) -> dict[str, Any]:
    """What came of all visits, and of the pages' own runs, beside each run alone."""
    wrong = [one.name for run, one in visits if _said(one) != _said(single[key_of(run)][1])]
    wrong += [f"page of {run[0]}" for run, told in pages if tuple(told) != _said(single[key_of(run)][1])]
    distinct = {key_of(run) for run, _ in visits} | {key_of(run) for run, _ in pages}
    work = sum(single[key][0] for key in distinct)
    rates = progress_of([(key_of(run), one) for run, one in visits], single)
    waits = [one.first - one.asked for _, one in visits]
    return {
        "runs": len(visits) + len(pages),
        "distinct": len(distinct),
        "wrong": wrong,
        "unfinished": [one.end for _, one in visits if one.end != "run_finished"],
        "told_to_come_back": sum(one.refused for _, one in visits),
        "first_event_s": {"median": statistics.median(waits), "max": max(waits)},
        "throughput": work / wall_s,
        "fairness": max(rates) / min(rates) if rates else None,
        "fairness_of": len(rates),
        "wall_s": wall_s,
    }


def progress_of(visits: Sequence[tuple[str, Visit]], single: dict[str, tuple[float, Visit]]) -> list[float]:
    """How fast each distinct run went forward among others, of its speed alone.

    Of visitors who shared a run the first counts: the others came to what was there. Counted are runs that ended while
    others still waited for a turn, so that all had as many neighbours.
    """
    runs: dict[str, Visit] = {}
    for key, one in sorted(visits, key=lambda pair: pair[1].first):
        if not one.recorded:
            runs.setdefault(key, one)
    full_until = max((one.first for one in runs.values()), default=0.0)
    return [single[key][0] / (one.ended - one.first) for key, one in runs.items() if one.ended <= full_until]


def _said(one: Visit) -> tuple[str, str, str]:
    return one.end, one.digest, one.verdict


def stopping(process: ModelProcess) -> dict[str, float]:
    """Stop one of four runs that take turns: until its place is free, and the longest slice of its neighbours."""
    backend = HttpBackend(process.url, process.token)
    streams = [
        backend.run(
            RunRequest(
                experiment="kv_cache",
                fresh=True,
                params={"max_new_tokens": 256, "without_cache_tokens": 0, "prompt": f"Story {n}"},
            )
        )
        for n in range(4)
    ]
    took = []
    iterators = [iter(stream) for stream in streams]
    for iterator in iterators:
        for _ in zip(range(8), iterator, strict=False):
            pass
    for left, stream in zip(range(3, -1, -1), streams, strict=True):
        began = time.monotonic()
        stream.close()
        while backend.health().runs_active > left:
            threading.Event().wait(0.002)
        took.append((time.monotonic() - began) * 1e3)
    ends = [isinstance(list(iterator)[-1], RunCancelled) for iterator in iterators]
    backend.close()
    return {"median_ms": statistics.median(took), "max_ms": max(took), "cancelled": sum(ends)}


def flat(process: ModelProcess) -> dict[str, float]:
    """Memory of the model process over many short runs, each of a card of its own."""
    backend = HttpBackend(process.url, process.token)
    sizes = []
    for number in range(FLAT_RUNS):
        name, params = MIX[number % len(MIX)]
        visit(backend, name, {**params, "max_new_tokens": 4, "prompt": f"Run {number} of many"})
        sizes.append(_pss(process))
    backend.close()
    quarter = FLAT_RUNS // 4
    return {"after_50_mib": max(sizes[quarter // 2 : quarter]), "after_200_mib": max(sizes[-quarter // 2 :])}


def _pss(process: ModelProcess) -> float:
    pid = process.pid
    return round(pss_bytes(pid) / MIB, 1) if pid is not None else 0.0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--visitors", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(argv)
    visitors = range(asked.visitors)
    fork_kernels()  # as the pages' server does
    single = alone([run for v in visitors for run in (opened_by(v), *runs_of(v), second(v))])
    result: dict[str, Any] = {
        "visitors": asked.visitors,
        "cores": os.cpu_count(),
        "load_before": psutil.getloadavg()[0],
    }
    with lab() as (process, environment):
        pages, came = arriving(asked.visitors, process, environment)
        try:
            result["memory_per_visitor_mib"] = {
                "median": round(statistics.median(page.pss for page in pages) / MIB, 1),
                "max": round(max(page.pss for page in pages) / MIB, 1),
            }
            result["controls_s"] = {"first": pages[0].controls_s, "max": max(page.controls_s for page in pages)}
            visits = [pair for page in pages for pair in zip(runs_of(page.visitor), page.visits, strict=True)]
            shown = [(opened_by(page.visitor), page.shown) for page in pages]
            result["arriving"] = judged(visits, shown, single, came["wall_s"]) | {
                "model_process_mib": came["model_process_mib"]
            }
            together = at_once(pages)
            visits = [(second(page.visitor), page.visits[0]) for page in pages]
            result["at_once"] = judged(visits, [], single, together["wall_s"])
        finally:
            for page in pages:
                page.client.stop_channels()
                page.manager.shutdown_kernel(now=True)
        result["stop"] = stopping(process)
        result["memory"] = flat(process)
        result["restarts"] = process.restarts
    print(json.dumps(result, indent=1 if not asked.json else None))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
