"""The pages as Binder serves them, below 2 GB: index, replay, live runs on two pages, a killed model process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from lab_server import wait_until
from playwright.sync_api import Browser

from benchmarks.binder_memory import LIMIT_BYTES, BinderServer, Report, binder_server, visit
from benchmarks.memory_watch import kind_of

pytestmark = [pytest.mark.browser, pytest.mark.model]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, packaged_model: Any) -> Iterator[BinderServer]:
    del packaged_model  # fetched and converted, as postBuild does it
    with binder_server(tmp_path_factory.mktemp("binder")) as server:
        yield server


@pytest.fixture(scope="module")
def report(server: BinderServer, browser: Browser) -> Report:
    return visit(server, browser)


def processes(server: BinderServer, kind: str) -> set[int]:
    found = set()
    for child in psutil.Process(server.process.pid).children(recursive=True):
        try:
            if kind_of(child.cmdline()) == kind:
                found.add(child.pid)
        except psutil.Error:
            continue
    return found


def test_index_replay_and_three_live_runs_stay_below_two_gigabytes(server: BinderServer, report: Report) -> None:
    assert not server.watch.passed
    assert 0 < report.peak_bytes < LIMIT_BYTES
    assert report.peak_parts["model process"] > 400 * 2**20  # the model is in there: the watch saw the right tree
    assert set(report.proofs) == {"kv_cache", "beam_search", "speculative"}


def test_closed_pages_leave_no_kernel(server: BinderServer, report: Report) -> None:
    del report  # its pages are closed
    wait_until(lambda: not processes(server, "kernel"), 20, "a kernel outlived its page")


def test_a_killed_model_process_is_started_again_and_the_next_visit_is_live(
    server: BinderServer, report: Report, browser: Browser
) -> None:
    del report
    before = processes(server, "model process")
    assert before
    for pid in before:
        psutil.Process(pid).kill()
    wait_until(lambda: processes(server, "model process") - before, 30, "it was not started again")
    assert "it is started again" in server.said()
    context = browser.new_context()
    page = context.new_page()
    wait_until(lambda: _listens(server), 60, "it does not listen")
    page.goto(server.page("kv_cache"), wait_until="commit")
    page.locator(".lab-mode", has_text="LIVE").wait_for(timeout=90_000)
    context.close()


def _listens(server: BinderServer) -> bool:
    return any(c.status == psutil.CONN_LISTEN for pid in processes(server, "model process") for c in connections(pid))


def connections(pid: int) -> list[Any]:
    try:
        return list(psutil.Process(pid).net_connections(kind="tcp"))
    except psutil.Error:
        return []
