"""Where programs answer HTTP: ports named, usual and taken."""

from __future__ import annotations

import socket

import pytest

from bt_p2p.errors import ConfigError
from node.http.place import HttpPlace, base_url, check_free, http_place, open_place
from node.rebuild import Supervisor
from node.stop import StopRequest


@pytest.fixture
def taken():
    """A port that somebody else has."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def supervisor() -> Supervisor:
    return Supervisor(StopRequest(), print)


def test_a_usual_port_that_is_taken_gives_way_to_any_other(taken: int) -> None:
    """A second node on a machine needs no option."""
    place = HttpPlace(host="127.0.0.1", port=None)
    check_free(place)
    with open_place(place, taken, print, supervisor()) as listener:
        assert taken != listener.getsockname()[1]
        assert base_url(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_named_port_that_is_taken_is_an_error(taken: int) -> None:
    """Early, and again when it is lost on the way."""
    place = HttpPlace(host="127.0.0.1", port=taken)
    message = f"port {taken} is in use on 127.0.0.1; choose another with --http-port"
    with pytest.raises(ConfigError, match=message):
        check_free(place)
    with pytest.raises(ConfigError, match=message):
        open_place(place, 1, print, supervisor())


def test_a_rebuilt_program_is_where_it_was_and_never_ends_for_want_of_a_port(
    taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is there to choose another."""
    first = supervisor()
    with open_place(HttpPlace(host="127.0.0.1", port=0), 1, print, first) as listener:
        port = listener.getsockname()[1]
    left = '{"reason": "", "num_in_a_row": 1, "num_total": 1, "delay_s": 0, "kept": {"http_port": "%d"}}'
    monkeypatch.setenv("BT_NODE_REBUILD", left % port)
    with open_place(HttpPlace(host="127.0.0.1", port=0), 1, print, supervisor()) as listener:
        assert port == listener.getsockname()[1]
    monkeypatch.setenv("BT_NODE_REBUILD", left % taken)
    with open_place(HttpPlace(host="127.0.0.1", port=taken), 1, print, supervisor()) as listener:
        assert taken != listener.getsockname()[1]


def test_an_address_that_is_not_here_is_told_and_stops_nothing() -> None:
    """Where no port was named, the program goes on without HTTP."""
    said: list[str] = []
    place = HttpPlace(host="203.0.113.7", port=None)
    assert open_place(place, 31380, said.append, supervisor()) is None
    (line,) = said
    assert line.startswith("no HTTP: cannot listen on 203.0.113.7 port 31380: ")


def test_a_place_that_makes_no_sense_is_refused() -> None:
    """Names are no addresses, and what is off has no port."""
    assert http_place("127.0.0.1", None, is_off=True) is None
    with pytest.raises(ConfigError, match="--http-host 'here' is not an IP address"):
        http_place("here", None, is_off=False)
    with pytest.raises(ConfigError, match="exclude each other"):
        http_place("127.0.0.1", 80, is_off=True)
