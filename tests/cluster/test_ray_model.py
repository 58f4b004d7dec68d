"""`lab serve --ray` with the packaged model, as one would start it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from free_port import free_port

from lab.backend.http import HttpBackend
from lab.backend.protocol import RunRequest
from lab.events import Proof, RunFinished
from lab.experiments.base import RunContext
from lab.experiments.kv_cache.params import KVCacheParams
from lab.experiments.kv_cache.run import make_runner
from lab.settings import BACKEND_TOKEN

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

pytestmark = [pytest.mark.cluster, pytest.mark.model]
TOKEN = "a-token-of-the-tests"
PARAMS = {"max_new_tokens": 8, "without_cache_tokens": 0, "prompt": "The capital of France is"}


def alone(loaded: LoadedModel) -> tuple[int, ...]:
    run = make_runner().run(RunContext(loaded), KVCacheParams.model_validate(PARAMS))
    while True:
        try:
            next(run)
        except StopIteration as end:
            return tuple(end.value.token_ids)


def test_a_replica_says_what_one_process_says_and_a_signal_ends_all(
    packaged_model: LoadedModel, tmp_path: Path
) -> None:
    port = free_port()
    lab = Path(sys.executable).with_name("lab")
    command = [str(lab), "serve", "--ray", "--port", str(port), "--active-runs", "2"]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(
            command, stdout=log, stderr=log, env={**os.environ, BACKEND_TOKEN: TOKEN}, text=True
        ) as process,
    ):
        try:
            http = HttpBackend(f"http://127.0.0.1:{port}", TOKEN)
            until_up(process, tmp_path / "log")
            events = list(http.run(RunRequest(experiment="kv_cache", params=PARAMS)))
            http.close()
        finally:
            children = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(signal.SIGINT)
            code = process.wait(60)
    end = events[-1]
    assert isinstance(end, RunFinished), end
    assert tuple(end.token_ids or ()) == alone(packaged_model)
    assert [event.verdict for event in events if isinstance(event, Proof)] == ["equal"]
    assert code == 0, (tmp_path / "log").read_text()[-2000:]
    assert children
    assert not psutil.wait_procs(children, timeout=20)[1]


def until_up(process: subprocess.Popen[str], log: Path) -> None:
    from backend.toys import until

    def said() -> bool:
        assert process.poll() is None, log.read_text()[-2000:]
        return "the lab's models at" in log.read_text()

    until(said, "the cluster is up", timeout_s=120)
