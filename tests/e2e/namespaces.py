"""Network namespaces: hosts of their own on this machine, joined by cables. They need root."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest


@dataclass(frozen=True, kw_only=True)
class Island:
    """A host that is connected to the hub alone: no route leads to other islands."""

    namespace: str
    address: str
    hub_address: str
    """The hub's end of the cable."""


@dataclass(frozen=True, kw_only=True)
class Archipelago:
    """A hub in the middle, which forwards nothing, and islands around it."""

    hub: str
    islands: tuple[Island, ...]


@contextlib.contextmanager
def archipelago(num_islands: int) -> Iterator[Archipelago]:
    """Make it, and take it away; skips the test where that is not permitted."""
    if shutil.which("ip") is None:
        pytest.skip("network namespaces need the command ip (iproute2)")
    prefix = f"bt{os.getpid()}"
    hub = f"{prefix}-hub"
    with contextlib.ExitStack() as stack:
        _add(hub, stack)
        islands = []
        for index in range(1, num_islands + 1):
            island = Island(
                namespace=f"{prefix}-{index}",
                address=f"10.77.{index}.2",
                hub_address=f"10.77.{index}.1",
            )
            _add(island.namespace, stack)
            ends = (f"c{index}", "hub")
            _ip("link", "add", ends[0], "netns", hub, "type", "veth",
                "peer", "name", ends[1], "netns", island.namespace)  # fmt: skip
            _plug(hub, ends[0], island.hub_address)
            _plug(island.namespace, ends[1], island.address)
            islands.append(island)
        yield Archipelago(hub=hub, islands=tuple(islands))


@dataclass(frozen=True, kw_only=True)
class Host:
    """A host in a local network."""

    namespace: str
    address: str


@contextlib.contextmanager
def local_network(num_hosts: int) -> Iterator[tuple[Host, ...]]:
    """Hosts at one switch, as at home; skips the test where that is not permitted."""
    if shutil.which("ip") is None:
        pytest.skip("network namespaces need the command ip (iproute2)")
    prefix = f"bt{os.getpid()}"
    switch = f"{prefix}-switch"
    with contextlib.ExitStack() as stack:
        _add(switch, stack)
        try:
            _ip("-n", switch, "link", "add", "switch", "type", "bridge")
        except subprocess.CalledProcessError as exc:
            pytest.skip(f"no switch can be made here: {exc.stderr.strip()}")
        _ip("-n", switch, "link", "set", "switch", "up")
        hosts = []
        for index in range(1, num_hosts + 1):
            host = Host(namespace=f"{prefix}-host{index}", address=f"192.168.77.{index}")
            _add(host.namespace, stack)
            _ip("link", "add", f"c{index}", "netns", switch, "type", "veth",
                "peer", "name", "lan", "netns", host.namespace)  # fmt: skip
            _ip("-n", switch, "link", "set", f"c{index}", "master", "switch", "up")
            _plug(host.namespace, "lan", host.address)
            hosts.append(host)
        yield tuple(hosts)


def _add(namespace: str, stack: contextlib.ExitStack) -> None:
    try:
        _ip("netns", "add", namespace)
    except subprocess.CalledProcessError as exc:
        pytest.skip(f"no network namespaces here: {exc.stderr.strip()}")
    stack.callback(_ip, "netns", "del", namespace)
    _ip("-n", namespace, "link", "set", "lo", "up")


def _plug(namespace: str, device: str, address: str) -> None:
    _ip("-n", namespace, "addr", "add", f"{address}/24", "dev", device)
    _ip("-n", namespace, "link", "set", device, "up")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=10)
