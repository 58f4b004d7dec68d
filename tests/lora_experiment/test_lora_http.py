"""A visitor's own lines over HTTP: learnt, or refused with what is wrong and what to do."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from lora_given import LINES

from lab.backend.local import LocalBackend
from lab.backend.serve import address_of, listen, make_server
from lab.events import Event, RunFinished, decode_line
from lab.events.lora import Trained, TrainingData

TOKEN = "a-token-for-tests"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server around a backend of its own."""
    local, sock = LocalBackend(), listen("127.0.0.1", 0)
    server = make_server(local, TOKEN)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    with contextlib.closing(sock):
        yield address_of(sock)
        local.close()
        server.should_exit = True
        thread.join(30)


@pytest.fixture(scope="module")
def model(tiny_directory: Callable[..., Path]) -> str:
    return str(tiny_directory("llama"))


def post(url: str, model: str, lines: Any, **params: Any) -> httpx.Response:
    small = {"steps": 2, "batch": 2, "rank": 2, "prompt": "the cache", "max_new_tokens": 2, "chat": False}
    asked = {"task": "train", "learn": "lines", "lines": lines, **small, **params}
    body = json.dumps({"experiment": "lora", "model": model, "device": "cpu", "params": asked})
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    return httpx.post(f"{url}/runs", content=body.encode(), headers=headers, timeout=120)


def events_of(response: httpx.Response) -> list[Event]:
    assert response.status_code == 200, response.text
    return [decode_line(line) for line in response.text.splitlines() if line.strip() and '"event"' in line]


def test_lines_that_were_pasted_are_learnt(url: str, model: str) -> None:
    pasted = LINES.replace("\n", "\r\n") + '\r\n\r\n{"prompt": "the cache", "completion": "keeps"}\r\n'
    events = events_of(post(url, model, pasted))
    (data,) = [e for e in events if isinstance(e, TrainingData)]
    assert data.train_examples + data.heldout_examples == 15
    assert [e.steps for e in events if isinstance(e, Trained)] == [2]
    assert isinstance(events[-1], RunFinished)


@pytest.mark.parametrize(
    ("lines", "status", "words"),
    [
        ("", 422, "There are 0 lines to train on; at least 2 are needed."),
        ("\n \n", 422, "There are 0 lines to train on"),
        ("a => b", 422, "There is 1 line to train on; at least 2 are needed."),
        ("a => b\n" * 10_000, 422, "lines has 70,000 characters; the limit is 60,000."),
        ("a=>b\n" * 10_000, 422, "There are 10,000 lines to train on; at most 500 are taken."),
        ("a => b\nc => " + "x" * 5_000, 422, "Line 2 has 5,005 characters; at most 4,000 are read."),
        ("a => " + "x" * 1_000_000, 422, "lines has 1,000,005 characters; the limit is 60,000."),
        ("a => " + "x" * 1_200_000, 413, "the limit is 1,048,576."),
        ("a => b\nno arrow", 422, 'Line 2 has no "=>"'),
        (["a => b"], 422, "lines"),
        (7, 422, "lines"),
    ],
    ids=["none", "blank", "one", "many", "short", "long", "megabyte", "body", "arrow", "list", "number"],
)
def test_lines_that_cannot_be_are_refused_in_words(url: str, model: str, lines: Any, status: int, words: str) -> None:
    response = post(url, model, lines)
    body = response.json()
    assert (response.status_code, words in body["message"]) == (status, True), body
    assert body["remedy"]
    assert len(response.content) < 1000  # what was sent is not sent back
