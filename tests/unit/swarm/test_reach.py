"""bt_p2p.swarm.reach: plain words for whatever answers, or does not, at an address."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from bt_p2p.protocol.address import PeerAddress, parse_peer_address
from bt_p2p.swarm import reach
from bt_p2p.testing.tiny import tiny_identity

PEER = tiny_identity(0).peer_id


def at(host: str, port: int) -> PeerAddress:
    """The address of a peer that is expected there."""
    family = "ip6" if ":" in host else "ip4"
    return parse_peer_address(f"/{family}/{host}/tcp/{port}/p2p/{PEER}")


@contextlib.contextmanager
def listener(family: int, host: str) -> Iterator[socket.socket]:
    """A socket that listens, and accepts nothing by itself."""
    with socket.socket(family, socket.SOCK_STREAM) as found:
        try:
            found.bind((host, 0))
        except OSError as exc:
            pytest.skip(f"this machine has no {host} ({os.strerror(exc.errno or 0)})")
        found.listen(1)
        yield found


@contextlib.contextmanager
def program(greeting: bytes) -> Iterator[int]:
    """Another program than a peer: it says something to everybody, and hangs up."""

    def serve(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection:
                    connection.sendall(greeting)

    with listener(socket.AF_INET, "127.0.0.1") as server:
        thread = threading.Thread(target=serve, args=(server,), daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def problem(address: PeerAddress) -> str:
    """What is wrong there."""
    return asyncio.run(reach.problem_of(address))


def test_a_closed_port_is_refused() -> None:
    """The host is up."""
    with listener(socket.AF_INET, "127.0.0.1") as server:
        port = server.getsockname()[1]
    assert problem(at("127.0.0.1", port)).startswith("refused")


@pytest.mark.parametrize(
    "greeting", [b"", b"SSH-2.0-x\r\n", b"\x13/multistream/1.0.0\n", b"\xff" * 400]
)
def test_another_program_is_told_from_a_peer(greeting: bytes) -> None:
    """Whatever it says, it proves no peer id."""
    with program(greeting) as port:
        assert "another program than a peer listens there" in problem(at("127.0.0.1", port))


def test_a_name_that_does_not_resolve_is_told() -> None:
    """`invalid` is reserved for that."""
    assert "no such host" == problem(parse_peer_address(f"/dns4/nope.invalid/tcp/1/p2p/{PEER}"))


def test_what_is_not_tcp_is_left_to_the_daemon() -> None:
    """QUIC cannot be told from here."""
    assert "" == problem(parse_peer_address(f"/ip4/127.0.0.1/udp/1/quic-v1/p2p/{PEER}"))


def test_no_network_of_that_family_is_told() -> None:
    """In words that name the family."""
    words = reach._words_of(OSError(errno.ENETUNREACH, "Network is unreachable"))
    assert "no route" in words


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.1")]
)
def test_a_silent_address_costs_little_when_another_answers(
    monkeypatch: pytest.MonkeyPatch, family: int, host: str
) -> None:
    """One that swallows all packets, beside one that answers at once."""

    async def answer(hosts: list[str], port: int) -> str:
        if port == silent_port:
            await asyncio.sleep(60)
        return PEER

    monkeypatch.setattr(reach, "_first_answer", answer)
    with listener(family, host) as silent:
        silent_port = silent.getsockname()[1]
        started_s = time.monotonic()
        found = reach.probe([at(host, silent_port), at("127.0.0.1", 1)])
        took_s = time.monotonic() - started_s

    assert ["", True] == [found[1].problem, "no answer within" in found[0].problem]
    assert took_s < reach.GRACE_S + 3  # DIAL_TIMEOUT_S otherwise
