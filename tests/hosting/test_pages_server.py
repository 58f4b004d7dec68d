"""The pages' server of a hosted lab: who comes in, how many and how often, what is served, what every answer says."""

from __future__ import annotations

import asyncio
import json
import re
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from backend.toys import until
from pages_server import SECRET, TOKEN, PagesServer, pages_server
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from lab.backend.hosting import HostedSettings
from widgets.voila.handlers import HEARTBEAT, STARTING_S, Page, TornadoVoilaHandler
from widgets.voila.headers import page_headers

PAGE = "voila/render/page.ipynb"
SEATS = 2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PagesServer]:
    settings = HostedSettings(
        base_url="/lab/",
        behind_proxy=True,
        visitors=SEATS,
        pages_per_minute=3,
        logins_per_minute=2,
        upload_mib_per_minute=1,
        message_mib=2,
        idle_s=1,
    )
    with pages_server(tmp_path_factory.mktemp("hosted"), settings) as server:
        yield server


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PagesServer]:
    """Not hosted."""
    with pages_server(tmp_path_factory.mktemp("own"), None) as server:
        yield server


def kernel_of(page: str) -> str:
    (found,) = re.findall(r'"kernelId": "([0-9a-f-]{36})"', page)
    return str(found)


@contextmanager
def opened(server: PagesServer) -> Iterator[tuple[httpx.Client, str]]:
    """A visitor with a page of its own, once a seat is free, and the page; its kernel ends with it."""
    found: list[tuple[httpx.Client, str]] = []

    def open_page() -> bool:
        visitor = server.visitor()
        answer = visitor.get(PAGE)
        if answer.status_code == 200:
            found.append((visitor, answer.text))
        return answer.status_code == 200

    until(open_page, "a seat came free", 60)
    yield found[0]
    end(*found[0])


def end(visitor: httpx.Client, page: str) -> None:
    """The farewell of a page that is closed."""
    visitor.post(f"voila/api/shutdown/{kernel_of(page)}", data={"_xsrf": visitor.cookies["_xsrf"]})


def test_without_the_token_there_is_a_form_and_nothing_else(server: PagesServer) -> None:
    stranger = server.visitor(token=False)
    asked = stranger.get(PAGE)
    assert asked.status_code == 302
    assert asked.headers["location"].startswith("/lab/login?next=")
    form = stranger.get(asked.headers["location"].removeprefix("/lab/"))
    assert "This lab needs a token." in form.text
    kernel = "api/kernels/00000000-0000-0000-0000-000000000000"
    assert [stranger.get(kernel).status_code, stranger.get(kernel + "/channels").status_code] == [403, 403]
    assert stranger.get(PAGE, params={"token": TOKEN + "x"}).status_code == 302
    xsrf = stranger.cookies["_xsrf"]
    wrong = stranger.post("login", data={"password": "a-guess", "_xsrf": xsrf})
    assert wrong.status_code == 401
    assert "That token is not the lab’s." in wrong.text
    right = stranger.post("login", params={"next": "/lab/nothing"}, data={"password": TOKEN, "_xsrf": xsrf})
    assert (right.status_code, right.headers["location"]) == (302, "/lab/nothing")
    assert stranger.get("nothing").status_code == 404
    often = stranger.post("login", data={"password": "a-guess", "_xsrf": xsrf})
    assert often.status_code == 429
    assert int(often.headers["retry-after"]) >= 1
    log = server.log.read_text()
    assert TOKEN not in log


def test_the_proxy_says_who_came_and_how(server: PagesServer) -> None:
    plain = server.visitor(token=False).get("nothing", params={"token": TOKEN})
    secure = server.visitor(token=False, **{"x-forwarded-proto": "https"}).get("nothing", params={"token": TOKEN})
    for answer, is_secure in ((plain, False), (secure, True)):
        (cookie,) = [c for c in answer.headers.get_list("set-cookie") if c.startswith("username-")]
        assert "HttpOnly" in cookie
        assert "Path=/lab/" in cookie
        assert ("Secure" in cookie) == is_secure


def test_the_seats_are_counted_and_come_free(server: PagesServer) -> None:
    with opened(server), ExitStack() as stack:
        visitor, page = stack.enter_context(opened(server))
        full = server.visitor().get(PAGE)
        assert full.status_code == 503
        assert full.headers["retry-after"] == "30"
        assert "All seats are taken." in full.text
        assert "knows no token" in page
        assert SECRET not in page
        stack.close()  # one page is closed
        again = server.visitor().get(PAGE)
        assert again.status_code == 200
        end(visitor, again.text)


def test_a_page_that_fell_silent_gives_its_seat_back(server: PagesServer) -> None:
    async def come_and_go(visitor: httpx.Client, page: str) -> None:
        connection = await connected(server, visitor, kernel_of(page))
        connection.close()
        while await connection.read_message() is not None:
            pass

    with opened(server) as (visitor, page):
        path = f"api/kernels/{kernel_of(page)}"
        asyncio.run(come_and_go(visitor, page))
        until(lambda: visitor.get(path).status_code == 404, "the idle kernel ended", 30)
        assert "Culling" in server.log.read_text()


def test_seats_that_are_asked_for_at_once_are_counted_too(server: PagesServer) -> None:
    visitors = [server.visitor() for _ in range(2 * SEATS + 2)]

    async def rush() -> list[httpx.Response]:
        async with httpx.AsyncClient(timeout=60, trust_env=False) as client:
            asked = [client.get(server.url + PAGE, headers=v.headers, cookies=dict(v.cookies)) for v in visitors]
            return await asyncio.gather(*asked)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of cookies for one request
        answers = asyncio.run(rush())
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) == {200, 503}
    assert statuses.count(200) <= SEATS
    for visitor, answer in zip(visitors, answers, strict=True):
        if answer.status_code == 200:
            end(visitor, answer.text)


def test_one_address_opens_only_so_many_pages(server: PagesServer) -> None:
    with opened(server), opened(server):  # all seats: what follows needs no kernel
        visitor = server.visitor()
        answers = [visitor.get(PAGE) for _ in range(4)]
        assert [a.status_code for a in answers] == [503, 503, 503, 429]
        assert 1 <= int(answers[3].headers["retry-after"]) <= 20
        assert "Too many pages at once." in answers[3].text
        assert server.visitor().get(PAGE).status_code == 503


DISCLOSING = [
    "voila/files/page.ipynb",
    "voila/files/notes.txt",
    "voila/files/../outside.py",
    "voila/files/%2e%2e/outside.py",
    "files/page.ipynb",
    "files/../outside.py",
    "voila/render/notes.txt",
    "voila/render/below/hidden.ipynb",
    "voila/render/../outside.py",
    "voila/render/..%2foutside.py",
    "voila/render//etc/passwd",
    "voila/render/page.ipynb%00.py",
    "voila/static/../../../../../../../../../../../../../../etc/passwd",
    "voila/static/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "voila/static//etc/passwd",
    "static/../../../../../../../../etc/passwd",
    "voila/templates/inference-lab/static/../index.html.j2",
    "voila/templates/inference-lab/index.html.j2",
    "voila/templates/../../etc/passwd",
    "voila/templates/%2e%2e/static/..%2f..%2fetc%2fpasswd",
    "voila/templates/x",
    "voila/labextensions/../../../../../../../../../../../../../etc/passwd",
    "voila/labextensions/%2e%2e%2f%2e%2e%2f%2e%2e%2f%2e%2e%2f%2e%2e%2f%2e%2e%2f%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "voila/api/themes/../../../../../../../../../../../etc/passwd",
    "voila/tree",
    "voila/tree/below",
    "voila/api/contents",
    "voila/api/contents/page.ipynb",
    "api/contents",
    "api/contents/page.ipynb",
    "api/kernels",
    "api/kernelspecs",
    "api/sessions",
    "api/terminals",
    "api/config/x",
    "api",
    "nbconvert/html/page.ipynb",
    "voila/execution/00000000-0000-0000-0000-000000000000",
    "voila/query/00000000-0000-0000-0000-000000000000",
]


@pytest.mark.parametrize("path", DISCLOSING)
def test_no_file_no_source_and_no_list_is_served(server: PagesServer, path: str) -> None:
    visitor = server.visitor()
    cookies = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
    answer = server.raw("/lab/" + path, Cookie=cookies)
    status = int(answer.split()[1])
    assert status in (403, 404), answer[:300]
    for word in (SECRET, "root:x:0", "hidden.ipynb", str(server.folder), "Traceback", "voila_setup"):
        assert word.encode() not in answer


def test_a_page_that_there_is_would_be_seen(server: PagesServer) -> None:
    assert b"200 OK" in server.raw("/lab/voila/templates/base/static/voila.js")[:20]


def test_no_kernel_is_made_or_restarted_by_a_client(server: PagesServer) -> None:
    with opened(server) as (visitor, page):
        kernel = kernel_of(page)
        xsrf = {"x-xsrftoken": visitor.cookies["_xsrf"]}
        assert visitor.post("api/kernels", json={"name": "python3"}, headers=xsrf).status_code == 404
        assert visitor.post(f"api/kernels/{kernel}/restart", headers=xsrf).status_code == 404
        assert visitor.delete(f"api/kernels/{kernel}").status_code == 403  # no XSRF token: another site's page sent it


def test_every_answer_has_the_headers(server: PagesServer) -> None:
    stranger = server.visitor(token=False)
    with opened(server) as (visitor, page):
        kernel = kernel_of(page)
        answers = [
            visitor.get(""),
            visitor.get("nothing"),
            visitor.get("voila/templates/base/static/voila.js"),
            visitor.get("voila/templates/base/static/none.js"),
            visitor.get("voila/static/none.js"),
            visitor.get("voila/labextensions/none.js"),
            visitor.get(f"api/kernels/{kernel}"),
            visitor.get(f"api/kernels/{kernel}/channels"),
            visitor.post("voila/api/shutdown/x"),
            visitor.request("BREW", PAGE),
            stranger.get(PAGE),
            stranger.get("login"),
        ]
    assert [a.status_code for a in answers] == [302, 404, 200, 404, 403, 404, 200, 400, 403, 405, 302, 200]
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] in ("same-origin", "no-referrer")
        policy = answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert "default-src 'self'" in policy or "default-src 'none'" in policy
        assert "*" not in policy
        assert "server" not in answer.headers


def test_a_site_that_may_frame_the_pages_is_named() -> None:
    headers = page_headers(["https://school.example"])
    assert "frame-ancestors https://school.example" in headers["content-security-policy"]
    assert "x-frame-options" not in headers


async def connected(server: PagesServer, visitor: httpx.Client, kernel: str) -> WebSocketClientConnection:
    cookies = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
    address = server.url.replace("http", "ws") + f"api/kernels/{kernel}/channels?session_id=s"
    return await websocket_connect(HTTPRequest(address, headers={"Cookie": cookies}))


def comm(text: str) -> str:
    header = {"msg_id": "1", "msg_type": "comm_msg", "session": "s", "username": "", "version": "5.3", "date": ""}
    content = {"comm_id": "none", "data": {"text": text}}
    return json.dumps({"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"})


@pytest.mark.parametrize(("size", "messages", "cut"), [(200_000, 3, False), (200_000, 6, True), (100, 4000, True)])
def test_a_page_that_sends_too_much_is_cut_off(server: PagesServer, size: int, messages: int, cut: bool) -> None:
    async def send(visitor: httpx.Client, kernel: str) -> int | None:
        connection = await connected(server, visitor, kernel)
        for _ in range(messages):
            if connection.protocol is None or connection.close_code is not None:
                break
            await connection.write_message(comm("x" * size))
        if not cut:
            connection.close(1000)
        while await connection.read_message() is not None:
            pass
        connection.close()
        return connection.close_code

    with opened(server) as (visitor, page):
        assert asyncio.run(send(visitor, kernel_of(page))) == (1008 if cut else 1000)


def test_one_users_own_lab_answers_to_no_other_name(own: PagesServer) -> None:
    """A page elsewhere whose name was made to lead to this machine must not reach a lab without a token."""
    assert b"302 Found" in own.raw("/")[:20]
    request = f"GET / HTTP/1.1\r\nHost: evil.example:{own.port}\r\nConnection: close\r\n\r\n"
    answer = httpx.get(own.url, headers={"host": "evil.example"}, trust_env=False)
    assert answer.status_code == 403, request
    assert httpx.get(own.url + "voila/files/notes.txt", trust_env=False).status_code == 404
    assert "x-frame-options" in answer.headers


@pytest.mark.parametrize("dies", [True, False])
def test_a_kernel_that_never_comes_is_said(monkeypatch: pytest.MonkeyPatch, dies: bool) -> None:
    async def parts(*_: Any, **__: Any) -> AsyncIterator[str]:
        yield "head"
        for _ in range(STARTING_S):
            yield f"<script>{HEARTBEAT}</script>"
            if not dies:
                yield "a cell"

    async def read() -> list[str]:
        page: Any = object.__new__(Page)
        page.voila_configuration = SimpleNamespace(http_keep_alive_timeout=10)
        page.render_template = lambda name: name
        return [part async for part in page.get_generator()]

    monkeypatch.setattr(TornadoVoilaHandler, "get_generator", parts)
    monkeypatch.setattr(Page, "log", SimpleNamespace(error=lambda *_: None))
    found = asyncio.run(read())
    assert found[-1].startswith("lab_failed.html") == dies
    assert len(found) == (11 if dies else 1 + 2 * STARTING_S)
