"""Run by `peer_processes`: forks peers that take commands as JSON lines.

python peer_program.py <unix socket>          one line on stdin = one fork
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing.util
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch

import torch
from hivemind.utils import MPFuture, get_dht_time

import bt_p2p.swarm.averager as averager_module
from bt_p2p.averaging.averager import PartnerReport
from bt_p2p.averaging.gate import Gate
from bt_p2p.errors import AveragingError
from bt_p2p.protocol.address import parse_peer_addresses
from bt_p2p.protocol.identity import PeerIdentity
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.swarm.averager import HivemindAverager
from bt_p2p.swarm.block_rpc import HivemindBlockServer
from bt_p2p.swarm.process import PeerOptions, start_peer
from bt_p2p.swarm.reducing import CompleteRunner
from bt_p2p.testing.tiny import tiny_service

TOLERANCE = 1e-5


class Peer:
    """The commands; each returns what JSON can hold."""

    def __init__(self) -> None:
        self._swarm = None
        self._averager = None
        self._pending = None
        self._gate = None
        self._trained: dict[str, torch.Tensor] = {}
        self._identity = PeerIdentity.generate()

    def join(self, *, initial_peers: list[str], folder: str) -> dict[str, Any]:
        """Start the peer."""
        path = Path(folder) / f"{os.getpid()}.key"
        self._identity.save(path)
        self._swarm = start_peer(
            PeerOptions(
                initial_peers=tuple(parse_peer_addresses(initial_peers)),
                identity_path=path,
                listen=("/ip4/127.0.0.1/tcp/0",),
            )
        )
        return {"peer_id": self._swarm.peer_id, "addresses": self._swarm.addresses()}

    def open_averager(
        self,
        *,
        manifest: dict[str, Any],
        block: int,
        sizes: list[int],
        exchange_s: float,
        membership: str = "",
    ) -> dict[str, Any]:
        """Start an averager of flat tensors; an exchange may take `exchange_s`."""
        averager_module.average_timeout_s = lambda *_sizes: exchange_s
        handler = signal.getsignal(signal.SIGINT)
        self._shapes = {f"t{index}": (size,) for index, size in enumerate(sizes)}
        self._averager = HivemindAverager(
            self._swarm.dht,
            RunManifest.build(manifest),
            block,
            self._shapes,
            bytes.fromhex(membership) or None,
        )
        self._gate = Gate(self._swarm.peer_id, _distances)
        return {"sigint_kept": handler is signal.getsignal(signal.SIGINT)}

    def begin(self, *, round_index: int, ends_at_s: float) -> None:
        """Begin a round."""
        report = PartnerReport(round_index=round_index)
        self._pending = self._averager.begin(report, ends_at_s=ends_at_s)

    def finish(
        self, *, seed: int, samples: int, timeout_s: float, groups: list[list[list[int]]]
    ) -> dict[str, Any]:
        """Bring weights made from a seed; which group's mean came back.

        Args:
            groups: possible groups, each as [[seed, samples] of each member]. The answer is the
                index of the one whose mean came back everywhere, -1 for a mean of none of them.
        """
        weights = self._weights(seed)
        given = {name: tensor.clone() for name, tensor in weights.items()}
        expected = [self._mean(group) for group in groups]
        answer: dict[str, Any] = {"error": "", "kind": "", "group": -1}
        start = {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
        started_s = time.monotonic()
        try:
            average = self._pending.finish(
                weights, start=start, num_samples=samples, timeout_s=timeout_s
            )
        except AveragingError as exc:
            answer |= {"error": str(exc) or "?", "kind": type(exc).__name__}
        else:
            for index, mean in enumerate(expected):
                if all(_is_close(mean[name], average.weights[name]) for name in mean):
                    answer["group"] = index
            answer["partners"] = sorted(average.partners)
        answer["took_s"] = time.monotonic() - started_s
        answer["untouched"] = all(torch.equal(given[name], weights[name]) for name in weights)
        return answer

    def bring_unchecked(self, *, seed: int, value: float) -> None:
        """As a hostile replica: weights with one bad element, without the check of `finish`."""
        weights = self._weights(seed)
        weights["t0"][0] = value
        with self._averager._averager.get_tensors():
            for name, buffer in self._averager._buffers.items():
                buffer.copy_(weights[name])
        self._pending._control.weight = 1.0
        self._pending._control.allow_allreduce()
        with contextlib.suppress(Exception):
            self._pending._control.result(10)

    def gated_round(self, *, number: int, ends_at_s: float, flip: float) -> dict[str, Any]:
        """A round of a make-believe training towards ones, with the real gate and averager.

        Args:
            number: of the round.
            ends_at_s: when it ends.
            flip: 0 for an honest replica; else it brings its change times -flip.
        """
        start = dict(self._trained) or {n: torch.zeros(s) for n, s in self._shapes.items()}
        noise = torch.Generator().manual_seed(os.getpid() * 1000 + number)
        own = {
            name: tensor + 0.3 * (1 - tensor) + 0.1 * torch.randn(tensor.shape, generator=noise)
            for name, tensor in start.items()
        }
        brought = own
        if flip:
            brought = {name: start[name] - flip * (own[name] - start[name]) for name in own}
        report = PartnerReport(round_index=number)
        pending = self._averager.begin(report, ends_at_s=ends_at_s, trust=self._gate.trust)
        time.sleep(max(0.0, ends_at_s - time.time()))
        answer = {"error": "", "partners": []}
        adopted = own
        try:
            average = pending.finish(brought, start=start, num_samples=8, timeout_s=8)
            answer["partners"] = sorted(average.partners)
            reason = self._gate.reason_to_refuse(average, own, start, round_index=number)
            answer["error"] = reason
            adopted = own if reason and not flip else average.weights
        except AveragingError as exc:
            answer["error"] = str(exc)
        self._gate.end_round(is_alone=not answer["partners"])
        self._trained = adopted
        error = torch.cat([1 - tensor.flatten() for tensor in adopted.values()])
        return answer | {"refused": self._gate.refused, "rms": float(error.square().mean().sqrt())}

    def starve(self, *, peer_id: str) -> None:
        """From now on (before `open_averager`) send one member the first part of its share only."""
        original = CompleteRunner._generate_input_for_peer

        async def generate(self: Any, peer_index: int) -> Any:
            num_sent = 0
            async for message in original(self, peer_index):
                if num_sent and str(self.ordered_peer_ids[peer_index]) == peer_id:
                    raise ConnectionError("starved on purpose")
                num_sent += 1
                yield message

        CompleteRunner._generate_input_for_peer = generate

    def freeze_averager(self) -> None:
        """Stop the averager's process alone."""
        os.kill(self._averager._averager.pid, signal.SIGSTOP)

    def thaw_averager(self) -> None:
        """Let it go on."""
        os.kill(self._averager._averager.pid, signal.SIGCONT)

    def serve(self, *, manifest: dict[str, Any], block: int, round_index: int) -> None:
        """Serve a block with its initial weights."""
        service = tiny_service(RunManifest.build(manifest), block, round_index=round_index)
        server = HivemindBlockServer(self._swarm.p2p, service)
        self._swarm.loop.run(server.start(), timeout_s=5)

    def store(self, *, key: str, subkey: str, value: str, ttl_s: float) -> bool:
        """Store a raw record as a peer without manners; subkey and value are hex."""
        return bool(
            self._swarm.dht.store(
                key,
                bytes.fromhex(value),
                get_dht_time() + ttl_s,
                subkey=bytes.fromhex(subkey),
                return_future=True,
            ).result(5)
        )

    def stop(self) -> None:
        """Stop everything in order."""
        if self._averager is not None:
            self._averager.stop()
        self._swarm.stop()

    def _weights(self, seed: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return {
            name: torch.rand(shape, generator=generator) for name, shape in self._shapes.items()
        }

    def _mean(self, group: list[list[int]]) -> dict[str, torch.Tensor]:
        total = sum(samples for _, samples in group)
        mean = {name: torch.zeros(shape) for name, shape in self._shapes.items()}
        for seed, samples in group:
            for name, tensor in self._weights(seed).items():
                mean[name].add_(tensor, alpha=samples / total)
        return mean


def _distances(candidates: Sequence[Mapping[str, torch.Tensor]]) -> list[torch.Tensor]:
    """In place of losses: of each piece of the weights, how far from ones it is."""
    return [
        torch.stack(
            [
                (1 - piece).square().mean()
                for tensor in weights.values()
                for piece in tensor.chunk(16)
            ]
        )
        for weights in candidates
    ]


def _is_close(expected: torch.Tensor, actual: torch.Tensor) -> bool:
    return bool((expected - actual).abs().max() < TOLERANCE)


def serve(path: str) -> None:
    """One peer: commands in, answers out, until the socket closes."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    os.set_inheritable(connection.fileno(), False)
    file = connection.makefile("rw", encoding="utf-8")

    def answer(value: dict[str, Any]) -> None:
        file.write(json.dumps(value) + "\n")
        file.flush()

    answer({"result": {"pid": os.getpid()}})
    peer = Peer()
    while line := file.readline():
        request = json.loads(line)
        try:
            answer({"result": getattr(peer, request.pop("command"))(**request)})
        except Exception as exc:  # noqa: BLE001 - whatever it is, the test shall see it
            traceback.print_exc()
            answer({"error": type(exc).__name__, "message": str(exc)})


def main() -> None:
    """Fork a peer for every line on stdin."""
    multiprocessing.util.get_temp_dir()  # all peers share it; it is removed with this process
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # dead peers leave no zombies
    for _ in sys.stdin:
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            MPFuture.reset_backend()  # locks of its own: a killed peer may hold one for ever
            try:
                serve(sys.argv[1])
            finally:
                os._exit(0)  # without stop(): the children have to notice by themselves


if __name__ == "__main__":
    main()
