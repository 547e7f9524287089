"""The only waits on another process; each has a deadline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from hivemind import DHT
from hivemind.dht.node import DHTNode

from bt_p2p.errors import SwarmError

T = TypeVar("T")

InDht = Callable[[DHT, DHTNode], Awaitable[T]]
"""Runs inside the DHT process: a module-level function or a partial of one, imported before the
fork, whose result can be pickled."""


def call_in_dht(dht: DHT, function: InDht[T], *, timeout_s: float, what: str) -> T:
    """Run a coroutine function inside the DHT process and wait for its result.

    Args:
        dht: a started DHT.
        function: what to run there.
        timeout_s: longest wait.
        what: names the action in the error.

    Raises:
        SwarmError: the DHT process is gone, or did not answer in time.
    """
    if not dht.is_alive():
        raise SwarmError(f"{what} failed: the DHT process of this node has ended")
    try:
        future = dht.run_coroutine(function, return_future=True)
        result: T = future.result(timeout_s)
    except TimeoutError as exc:
        raise SwarmError(f"{what} failed: no answer from the DHT within {timeout_s:g} s") from exc
    except (OSError, EOFError, ValueError) as exc:
        raise SwarmError(f"{what} failed: the DHT process does not listen ({exc})") from exc
    return result
