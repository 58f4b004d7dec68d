"""The app and its client over a real connection."""

from __future__ import annotations

import json
import socket
import threading
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from lab.backend.http import HttpBackend
from lab.backend.patience import patient_protocol
from lab.backend.protocol import InspectRequest, RunRequest
from lab.backend.serve import listen
from lab.backend.wire import depth
from lab.errors import BackendUnavailable, BadInput, Busy, LabError, ModelError, NotFound, Unauthorized
from lab.events import ModelFacts, Progress, Queued, RunCancelled, RunFailed, RunFinished, decode_line

from .conftest import TOKEN, Served
from .toys import assert_whole, first_of, until


def ask_for(**params: object) -> RunRequest:
    return RunRequest(experiment="count", model="toy", params=dict(params))


def post(served: Served, path: str, body: bytes, **headers: str) -> httpx.Response:
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json", **headers}
    return httpx.post(served.url + path, content=body, headers=headers, timeout=10)


def test_the_client_sees_what_the_local_backend_gives(served: Served) -> None:
    assert served.http.models() == served.local.models()
    assert served.http.experiments("toy") == served.local.experiments("toy")
    health = served.http.health()
    assert health.pid == served.local.health().pid
    assert health.version
    events = list(served.http.run(ask_for(steps=30)))
    assert_whole(events)
    local = list(served.local.run(ask_for(steps=30)))
    assert [e for e in events if isinstance(e, Progress)] == [e for e in local if isinstance(e, Progress)]
    question = InspectRequest(experiment="count", model="toy", name="ask", params={"index": 2})
    assert served.http.inspect(question) == served.local.inspect(question) == {
        "layers": 1, "index": 2, "low": float("-inf"),
    }  # fmt: skip


def test_errors_travel_with_their_kind_message_and_remedy(served: Served) -> None:
    with pytest.raises(NotFound, match="no experiment 'dance'"):
        served.http.run(RunRequest(experiment="dance", model="toy"))
    with pytest.raises(BadInput, match=r"steps is 0; it must be at least 1. Use at least 1"):
        served.http.run(ask_for(steps=0))
    with pytest.raises(ModelError, match="no model 'x'"):
        served.http.experiments("x")
    with pytest.raises(NotFound, match="no question 'why'"):
        served.http.inspect(InspectRequest(experiment="count", model="toy", name="why"))
    end = list(served.http.run(ask_for(fail_at=1)))[-1]
    assert isinstance(end, RunFailed)
    assert end.code == "error"
    assert "/root" not in end.message


@pytest.mark.parametrize("path", ["/health", "/models", "/experiments", "/docs", "/openapi.json", "/runs"])
@pytest.mark.parametrize("header", [None, "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x"])
def test_nothing_but_liveness_answers_without_the_token(shared: Served, path: str, header: str | None) -> None:
    headers = {} if header is None else {"authorization": header}
    response = httpx.get(shared.url + path, headers=headers)
    assert response.status_code == 401
    assert response.json()["code"] == "unauthorized"
    assert response.headers["www-authenticate"] == "Bearer"


def test_liveness_says_nothing_else(shared: Served) -> None:
    assert httpx.get(shared.url + "/live").json() == {"ok": True}


def test_the_client_says_that_its_token_is_wrong(shared: Served) -> None:
    stranger = HttpBackend(shared.url, "wrong")
    with pytest.raises(Unauthorized):
        stranger.health()
    stranger.close()


def test_there_are_no_documentation_pages(shared: Served) -> None:
    for path in ("/docs", "/redoc", "/openapi.json", "/nothing"):
        response = httpx.get(shared.url + path, headers={"authorization": f"Bearer {TOKEN}"})
        assert response.status_code == 404
        assert response.json()["code"] == "not_found"


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 422, "not JSON"),
        (b"{", 422, "not JSON"),
        (b"\xff\xfe", 422, "not JSON"),
        (b"[]", 422, "JSON list"),
        (b"{}", 422, "experiment is missing"),
        (b'{"experiment": "count", "surprise": 1}', 422, "no field 'surprise'"),
        (b'{"experiment": 3}', 422, "experiment is 3"),
        (b'{"experiment": "count", "fresh": "yes"}', 422, "fresh is 'yes'"),
        (b'{"experiment": "count", "model": "toy", "params": {"steps": 1e999}}', 422, "steps is inf"),
        (
            b'{"experiment": "count", "params": ' + b"[" * 100 + b"]" * 100 + b"}",
            422,
            "101 levels deep; the limit is 16",
        ),
        (b"[" * 100_000, 422, "levels deep"),
        (b'"' + b"x" * 200_000 + b'"', 413, "the limit is 200,000"),
    ],
)
def test_bad_bodies_have_one_shape(shared: Served, body: bytes, status: int, words: str) -> None:
    response = post(shared, "/runs", body)
    assert response.status_code == status
    assert response.json().keys() == {"code", "message", "remedy"}
    assert words in response.json()["message"]
    assert response.json()["remedy"]


def test_a_body_without_a_length_is_cut_off_at_the_limit(shared: Served) -> None:
    chunks = (b"x" * 50_000 for _ in range(100))
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    try:
        status = httpx.post(shared.url + "/runs", content=chunks, headers=headers).status_code
    except httpx.WriteError:
        status = 413  # the server had closed the connection before all was sent
    assert status == 413


def test_only_json_is_taken(shared: Served) -> None:
    response = post(shared, "/runs", b"{}", **{"content-type": "text/plain"})
    assert response.status_code == 415


def test_depth_ignores_brackets_in_strings() -> None:
    assert depth(json.dumps({"a": ["[[[[", '"{{{', "\\"]}).encode()) == 2


def test_busy_has_a_retry_after(served: Served) -> None:
    streams = [served.http.run(ask_for(hold=True, label=label)) for label in ("a", "b")]
    for stream in streams:
        first_of(iter(stream), Progress)
    waiting = served.http.run(ask_for(label="w"))
    assert first_of(iter(waiting), Queued) == Queued(position=0)
    with pytest.raises(Busy) as refused:
        served.http.run(ask_for(label="x"))
    assert refused.value.retry_after_s == 10
    response = post(
        served, "/runs", json.dumps({"experiment": "count", "model": "toy", "params": {"label": "y"}}).encode()
    )
    assert response.status_code == 503
    assert response.headers["retry-after"] == "10"
    for stream in (*streams, waiting):
        stream.close()


def raw_run(served: Served, **params: object) -> socket.socket:
    """A client without manners: a bare socket."""
    at = urlsplit(served.url)
    body = json.dumps({"experiment": "count", "model": "toy", "params": params}).encode()
    head = (
        f"POST /runs HTTP/1.1\r\nHost: {at.netloc}\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    sock = socket.create_connection((str(at.hostname), at.port or 80), timeout=10)
    sock.sendall(head.encode() + body)
    return sock


@pytest.mark.parametrize("reset", [False, True])
def test_a_client_that_vanishes_frees_its_run(served: Served, reset: bool) -> None:
    sock = raw_run(served, hold=True)
    assert b"200 OK" in sock.recv(200)
    until(lambda: served.local.health().runs_active == 1, "the run is active")
    if reset:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    sock.close()
    until(lambda: served.local.health().runs_active == 0, "the run was freed")
    assert served.runner.closed == ["a"]
    assert isinstance(list(served.http.run(ask_for()))[-1], RunFinished)


def test_a_client_that_vanishes_while_it_waits_leaves_the_queue(served: Served) -> None:
    active = [served.http.run(ask_for(hold=True, label=label)) for label in ("a", "b")]
    sock = raw_run(served, label="w")
    until(lambda: served.local.health().runs_waiting == 1, "it waits")
    sock.close()
    until(lambda: served.local.health().runs_waiting == 0, "it left")
    for stream in active:
        stream.close()


def test_a_client_that_does_not_read_holds_up_nobody(served: Served) -> None:
    sock = raw_run(served, hold=True, label="unread" * 100)
    until(lambda: len(served.runner.trace) > 2_000, "it runs on")
    assert isinstance(list(served.http.run(ask_for(steps=500)))[-1], RunFinished)
    sock.close()
    until(lambda: served.local.health().runs_active == 0, "it was freed")


def test_stop_from_another_thread_ends_the_reader_and_the_run(served: Served) -> None:
    stream = served.http.run(ask_for(hold=True))
    events: list[object] = []
    reader = threading.Thread(target=lambda: events.extend(stream))
    reader.start()
    until(lambda: served.local.health().runs_active == 1, "the run is active")
    stream.close()
    reader.join(10)
    assert not reader.is_alive()
    assert events[-1] == RunCancelled(reason="stopped, unproven")
    until(lambda: served.local.health().runs_active == 0, "the run was freed")
    stream.close()


def test_heartbeats_come_while_nothing_else_does(served: Served) -> None:
    streams = [served.http.run(ask_for(hold=True, label=label)) for label in ("a", "b")]
    sock = raw_run(served, label="w")
    received = b""
    while b"\r\n1\r\n\n\r\n1\r\n\n\r\n" not in received:
        received += sock.recv(4096)
    lines = [line for line in received.split(b"\n") if line.startswith(b"{")]
    assert [decode_line(line).event for line in lines] == ["run_started", "queued"]
    sock.close()
    for stream in streams:
        stream.close()


def test_nobody_there_is_said_in_words() -> None:
    from lab.backend.serve import address_of, listen

    sock = listen("127.0.0.1", 0)
    url = address_of(sock)
    sock.close()
    nobody = HttpBackend(url, "x" * 20)
    with pytest.raises(BackendUnavailable, match="cannot be reached"):
        nobody.health()
    with pytest.raises(BackendUnavailable, match="cannot be reached"):
        nobody.run(ask_for())
    nobody.close()
    with pytest.raises(LabError, match="not the address"):
        HttpBackend("file:///etc", "x")


LONG = "n" * 100_000


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/runs", {"experiment": LONG}),
        ("/runs", {LONG: 1}),
        ("/runs", {"experiment": "count", "model": "toy", "params": {LONG: 1}}),
        ("/inspect", {"experiment": "count", "model": "toy", "name": LONG}),
    ],
)
def test_a_name_of_any_length_gives_a_short_error(shared: Served, path: str, asked: dict[str, object]) -> None:
    response = post(shared, path, json.dumps(asked).encode())
    assert 400 <= response.status_code < 500
    assert "nnn" in response.json()["message"]
    assert len(response.content) < 1000


@pytest.mark.parametrize("params", [r'{"label": "a\ud800"}', r'{"\udc00": 1}'])
def test_half_a_character_is_said_in_words(shared: Served, params: str) -> None:
    response = post(shared, "/runs", f'{{"experiment": "count", "model": "toy", "params": {params}}}'.encode())
    assert response.status_code == 422
    assert "half a character" in response.json()["message"]


def test_an_internal_error_leaves_the_connection_for_the_next_request(served: Served) -> None:
    def broken() -> list[ModelFacts]:
        raise RuntimeError("secret /root/path")

    working, served.local.models = served.local.models, broken  # type: ignore[method-assign]
    headers = {"authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=served.url, headers=headers, limits=httpx.Limits(max_connections=1)) as client:
        response = client.get("/models")
        assert response.status_code == 500
        assert response.json()["message"] == "The request failed with an internal error (RuntimeError)."
        served.local.models = working  # type: ignore[method-assign]
        # Cut by the server, the kept connection would fail right here.
        assert client.get("/models").status_code == 200


def test_an_upgrade_to_a_websocket_is_no_way_around_the_token(shared: Served) -> None:
    headers = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-key": "eA==",
        "sec-websocket-version": "13",
    }
    assert httpx.get(shared.url + "/health", headers=headers).status_code == 401


@pytest.mark.parametrize("head", [b"", b"GET /hea", b"GET /live HTTP/1.1\r\nhost: x\r\n\r\nGET /li"])
def test_a_head_that_never_comes_is_not_waited_for(head: bytes) -> None:
    sock = listen("127.0.0.1", 0)
    config = uvicorn.Config(_alive, log_level="warning", lifespan="off", http=patient_protocol(0.05))
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    try:
        with socket.create_connection(sock.getsockname(), timeout=10) as client:
            client.sendall(head)
            while client.recv(65536):
                pass  # ends when the server closes; a server that waits makes it time out
    finally:
        server.should_exit = True
        thread.join(10)
        sock.close()


async def _alive(scope: Scope, receive: Receive, send: Send) -> None:
    del scope, receive
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})
