"""How a node is asked to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from node.stop import StopRequest


@pytest.fixture
def stop() -> Iterator[StopRequest]:
    """Listens; the handlers of before come back."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = [signal.getsignal(number) for number in numbers]
    request = StopRequest()
    request.listen()
    yield request
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)
    request.event.set()  # ends its thread


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_is_a_request_with_its_exit_code(stop, number, code):
    """Nothing is interrupted; who waits is woken."""
    told = threading.Event()
    stop.on_request(told.set)
    signal.raise_signal(number)
    assert (True, code) == (stop.is_requested, stop.exit_code)
    assert told.wait(10)


def test_while_a_node_starts_a_signal_ends_it_at_once(stop):
    """Imports and dials are not waited for."""
    stop.is_starting = True
    with pytest.raises(SystemExit) as ended:
        signal.raise_signal(signal.SIGTERM)
    assert (143, True) == (ended.value.code, stop.is_requested)
