"""The real experiment on a tiny real model, through the backend: turns, questions, recordings, HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.backend.http import HttpBackend
from lab.backend.local import LocalBackend
from lab.backend.protocol import RunRequest
from lab.backend.serve import address_of, listen, make_server
from lab.backend.store import RunStore
from lab.events import Event, Proof, RunFinished, RunStarted
from lab.events.kv_cache import AttentionRead, TokenDecoded

from .conftest import TOKEN
from .toys import assert_whole, until


@pytest.fixture
def back(tmp_path: Path) -> Iterator[LocalBackend]:
    backend = LocalBackend(store=RunStore(tmp_path, 10**8))
    yield backend
    backend.close()


@pytest.fixture
def requests(tiny_directory: Callable[..., Path]) -> list[RunRequest]:
    model = str(tiny_directory("llama"))

    def ask(**params: Any) -> RunRequest:
        return RunRequest(experiment="kv_cache", model=model, device="cpu", fresh=True, params=params)

    return [
        ask(prompt="one two three", max_new_tokens=12, without_cache_tokens=6),
        ask(prompt="a longer prompt than the other", max_new_tokens=9, do_sample=True, seed=3, temperature=0.7),
        ask(prompt="zz", max_new_tokens=10, trace_layers=[0]),
    ]


def result(events: list[Event]) -> dict[str, object]:
    """What must not depend on what else runs: tokens, attention, verdict; not the times."""
    end = events[-1]
    assert isinstance(end, RunFinished), end
    return {
        "tokens": [(e.token_id, e.log_prob, e.gap, e.top) for e in events if isinstance(e, TokenDecoded)],
        "attention": [e.weights for e in events if isinstance(e, AttentionRead)],
        "verdicts": [e.verdict for e in events if isinstance(e, Proof)],
        "text": (end.token_ids, end.text),
    }


def test_runs_that_take_turns_equal_each_alone(back: LocalBackend, requests: list[RunRequest]) -> None:
    alone = [result(list(back.run(request))) for request in requests]
    streams = [back.run(request) for request in requests]
    together = [list(stream) for stream in streams]
    assert [result(events) for events in together] == alone
    assert all(r["verdicts"] == ["equal"] for r in alone)
    assert len({str(r["text"]) for r in alone}) == len(alone)  # a mix-up would be seen
    beside = [e[-1].ran_beside for e in together if isinstance(e[-1], RunFinished)]
    assert max(beside) == 2  # they did run beside each other
    for events in together:
        assert_whole(events)


def test_the_card_names_all_that_decides_and_its_recording_answers_it(
    back: LocalBackend, requests: list[RunRequest]
) -> None:
    live = list(back.run(requests[0]))
    started = live[0]
    assert isinstance(started, RunStarted)
    card = started.card
    assert (card.dtype, card.device, card.attention) == ("float32", "cpu", "sdpa")
    assert card.weight_hash == started.facts.weight_hash != ""
    assert card.threads > 0
    assert {"lab", "torch", "transformers", "tokenizers"} <= card.versions.keys()
    assert card.params["max_new_tokens"] == 12
    assert back._recorder is not None
    assert back._recorder.flush()
    request = RunRequest(**{**vars(requests[0]), "fresh": False})
    again = list(back.run(request))
    assert isinstance(again[0], RunStarted)
    assert again[0].recorded
    assert again[-1] == live[-1]
    assert result(again) == result(live)


def test_over_http_it_is_the_same(back: LocalBackend, requests: list[RunRequest]) -> None:
    local = result(list(back.run(requests[1])))
    sock = listen("127.0.0.1", 0)
    server = make_server(back, TOKEN)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    until(lambda: server.started, "the server started")
    http = HttpBackend(address_of(sock), TOKEN)
    assert result(list(http.run(requests[1]))) == local
    facts = http.experiments(requests[1].model)[0]
    assert facts.name == "kv_cache"
    assert facts.schema["properties"]["trace_layers"]["items"]["maximum"] >= 1
    http.close()
    server.should_exit = True
    thread.join(10)
    sock.close()


def test_a_stopped_run_leaves_the_worker_free(back: LocalBackend, requests: list[RunRequest]) -> None:
    stream = back.run(requests[0])
    seen = iter(stream)
    while not isinstance(next(seen), TokenDecoded):
        pass
    stream.close()
    assert list(seen)[-1].event == "run_cancelled"
    until(lambda: back.health().runs_active == 0, "the run left")
    assert isinstance(list(back.run(requests[2]))[-1], RunFinished)
