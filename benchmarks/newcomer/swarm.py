"""Donors that train on, and newcomers one after another, all as the real programs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from benchmarks.chain.child import Child
from benchmarks.chain.config import Link
from benchmarks.newcomer.report import LinkTimes, NewcomerTimes
from benchmarks.newcomer.words import download_words
from benchmarks.ports import free_port
from bt_p2p.clock import SystemClock
from bt_p2p.errors import SwarmError
from bt_p2p.model.sizes import block_sizes
from bt_p2p.protocol.manifest import RunManifest
from node.demo.processes import DemoProcess, DemoSwarm
from node.snapshot import NodeSnapshot
from node.tui.terminal import make_console

LINKS = (Link(), Link(one_way_ms=10, mbit_per_s=20))
_RELAY_TIMEOUT_S = 20.0
_START_TIMEOUT_S = 180.0
_ROUNDS_TIMEOUT = 8
_POLL_S = 0.1


def measure_links(*, repeats: int, num_donors: int, round_s: float) -> list[LinkTimes]:
    """All newcomers over all links. No process outlives it.

    Raises:
        SwarmError: a node does not start, or never averages.
    """
    console = make_console(stderr=True)
    found = []
    for link in LINKS:
        with _swarm(link, num_donors=num_donors, round_s=round_s) as swarm:
            times = []
            for number in range(repeats):
                times.append(swarm.measure(f"newcomer-{number}"))
                console.print(f"{link.title}: {times[-1]}")
            found.append(
                LinkTimes(link=link, newcomers=tuple(times), num_bypasses=swarm.num_bypasses)
            )
    return found


class NewcomerSwarm(DemoSwarm):
    """Use `measure_links`.

    Attributes:
        num_bypasses: connections seen between nodes that did not go through the relays.
    """

    def __init__(self, folder: Path, link: Link, *, num_donors: int, round_s: float) -> None:
        """Start nothing yet."""
        super().__init__(folder)
        self.num_bypasses = 0
        self._link = link
        self._num_donors = num_donors
        self._round_s = round_s
        self._manifest = RunManifest.build({"name": "newcomer", "rounds": {"round_s": round_s}})
        self._manifest_path = folder / "manifest.json"
        self._ports: list[int] = []
        self._relays: list[Child] = []

    def start(self) -> None:
        """Start the donors; returns when all have averaged with each other."""
        self._manifest_path.write_bytes(self._manifest.canonical_bytes())
        first = self._join("donor-0", ["--manifest", str(self._manifest_path)])
        self._wait(first, lambda node: bool(node.addresses), _START_TIMEOUT_S)
        for number in range(1, self._num_donors):
            self._join(f"donor-{number}", self._way_in())
        alone = self._num_donors == 1
        for donor in self.volunteers:
            self._wait(
                donor,
                lambda node: node.rounds_averaged > 0 or (alone and node.round_index > 0),
                _START_TIMEOUT_S + _ROUNDS_TIMEOUT * self._round_s,
            )

    def measure(self, name: str) -> NewcomerTimes:
        """One newcomer, from its start to its first average; it leaves."""
        clock = SystemClock()
        started_at_s = clock.now_s()
        newcomer = self._join(name, self._way_in())
        self._wait(newcomer, lambda node: node.state == "training", _START_TIMEOUT_S)
        synced_s = clock.now_s() - started_at_s
        self._count_bypasses()
        node = self._wait(
            newcomer,
            lambda node: node.first_average_s is not None,
            _ROUNDS_TIMEOUT * self._round_s,
        )
        took = download_words(newcomer.log_path.read_text(encoding="utf-8"))
        if took is None:
            raise SwarmError(f"{name} has not said that it took weights: {newcomer.last_lines()}")
        assert node.last_average_at_s is not None
        spec = self._manifest
        sizes = block_sizes(spec.model, spec.objective, batch_size=1)
        newcomer.send(signal.SIGINT)
        newcomer.wait_ended(timeout_s=_START_TIMEOUT_S)
        self.volunteers.remove(newcomer)
        return NewcomerTimes(
            synced_s=synced_s,
            first_average_s=node.last_average_at_s - started_at_s,
            download_s=took[1],
            size_bytes=sizes.weights_size_bytes,
            num_donors=took[0],
            rounds_alone=node.rounds_alone + node.rounds_failed,
            load=os.getloadavg()[0],
        )

    def stop_all(self) -> None:
        """End everything; idempotent."""
        self.stop(timeout_s=30)
        self.kill_leftovers()
        for relay in self._relays:
            relay.end()

    def _join(self, name: str, arguments: list[str]) -> DemoProcess:
        port = free_port()
        announced = port if self._link.is_loopback else self._relay(port)
        self._ports.append(port)
        volunteer = DemoProcess(
            name,
            self.folder,
            [
                *("node", "join", "--block", "0", "--host", "127.0.0.1", "--port", str(port)),
                *("--announce", f"/ip4/127.0.0.1/tcp/{announced}", "--threads", "1", "--plain"),
                *arguments,
            ],
            self.token,
        )
        self.volunteers.append(volunteer)
        return volunteer

    def _relay(self, port: int) -> int:
        relay = Child("benchmarks.chain.relay", [str(port)], self.folder / "relay.log")
        self._relays.append(relay)
        [announced] = relay.hear(timeout_s=_RELAY_TIMEOUT_S)
        relay.tell(json.dumps(self._link.model_dump()))
        relay.hear(timeout_s=_RELAY_TIMEOUT_S)
        return int(announced)

    def _way_in(self) -> list[str]:
        donor = self.volunteers[0].snapshot
        assert donor is not None
        return ["--run", self._manifest.run_id, "--initial-peers", donor.addresses[0]]

    def _wait(
        self, node: DemoProcess, condition: Callable[[NodeSnapshot], bool], timeout_s: float
    ) -> NodeSnapshot:
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            snapshot = node.snapshot
            if snapshot is not None and condition(snapshot):
                return snapshot
            if not node.is_running:
                raise SwarmError(f"{node.name} ended early: {node.last_lines()}")
            time.sleep(_POLL_S)
        raise SwarmError(f"{node.name} was not ready in {timeout_s:.0f} s: {node.last_lines()}")

    def _count_bypasses(self) -> None:
        """Nodes that talk to a node's own port although there is a relay before it."""
        if self._link.is_loopback:
            return
        ports = set(self._ports)
        for volunteer in self.volunteers:
            with contextlib.suppress(psutil.NoSuchProcess):
                main = psutil.Process(volunteer.pid)
                for process in (main, *main.children(recursive=True)):
                    self.num_bypasses += sum(
                        one.status == psutil.CONN_ESTABLISHED and one.raddr.port in ports
                        for one in process.net_connections(kind="tcp")
                    )


@contextlib.contextmanager
def _swarm(link: Link, *, num_donors: int, round_s: float) -> Iterator[NewcomerSwarm]:
    with tempfile.TemporaryDirectory(prefix="btn-") as folder:
        swarm = NewcomerSwarm(Path(folder), link, num_donors=num_donors, round_s=round_s)
        try:
            swarm.start()
            yield swarm
        finally:
            swarm.stop_all()
