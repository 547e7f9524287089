"""The read-only server over real sockets: who is answered, what is dropped, how it ends."""

from __future__ import annotations

import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from node.http import brief_connection
from node.http.place import base_url
from node.http.read_only import HEADERS
from node.http.thread import HttpThread
from node.serve.server import listen

DEADLINE_S = 10.0


async def hello(_request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


async def fault(_request: Request) -> PlainTextResponse:
    raise ZeroDivisionError("a fault of ours")


@pytest.fixture
def url() -> Iterator[str]:
    """A server of two paths."""
    listener = listen("127.0.0.1", 0)
    found = base_url(listener)
    server = HttpThread(Starlette(routes=[Route("/", hello), Route("/fault", fault)]), listener)
    server.start()
    yield found
    server.stop()
    server.stop()
    with pytest.raises(OSError, match="refused"):
        ask(found)


def ask(url: str, **options: object) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, **options), timeout=DEADLINE_S) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, dict(exc.headers), exc.read()


def connect(url: str) -> socket.socket:
    """A connection on which nothing is asked."""
    host, _, port = url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=DEADLINE_S)


def is_dropped(connection: socket.socket) -> bool:
    """Whether the server ends a connection."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_every_answer_has_the_headers_and_only_reading_is_allowed(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Errors too; HEAD has no body; another name for this machine is refused."""
    evil = {"Host": "evil.example"}
    answers = [
        (200, b"hello", ask(url)),
        (200, b"", ask(url, method="HEAD")),
        (405, b"only GET and HEAD\n", ask(url, method="POST", data=b"x")),
        (403, b"this server answers to localhost only\n", ask(url, headers=evil)),
        (404, b"Not Found", ask(f"{url}/nothing")),
        (500, b"Internal Server Error", ask(f"{url}/fault")),
    ]
    for status, body, (found_status, headers, found_body) in answers:
        assert (status, body) == (found_status, found_body)
        lower = {name.lower(): value for name, value in headers.items()}
        assert HEADERS == {name: lower.get(name.lower()) for name in HEADERS}
    end_s = time.monotonic() + DEADLINE_S
    while "GET /fault failed" not in caplog.text:  # it is logged after the answer
        assert time.monotonic() < end_s


def test_silent_visitors_are_dropped_and_the_next_one_is_answered(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are, and however long they would stay."""
    monkeypatch.setattr(brief_connection, "MAX_CONNECTIONS", 3)
    held = [connect(url) for _ in range(3)]
    with connect(url) as one_too_many:
        assert is_dropped(one_too_many)
    for connection in held:
        connection.close()
    end_s = time.monotonic() + DEADLINE_S
    while True:
        try:
            assert 200 == ask(url)[0]
            break
        except OSError:  # the server has not seen yet that they have gone
            assert time.monotonic() < end_s
    monkeypatch.setattr(brief_connection, "MAX_CONNECTION_S", 0.05)
    with connect(url) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: local")
        assert is_dropped(slow)
