"""The benchmark of chains: the relay, what is made of answers, and whole runs in memory."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from benchmarks.chain.config import Link, read_config
from benchmarks.chain.measure import SettingRun, Timed, make_crowd, make_figures
from benchmarks.chain.relay import Lane, Relay
from benchmarks.chain.report import ChainReport, FaultReport, compare
from benchmarks.chain.run import Options, run_chain, run_faults
from benchmarks.chain.timing import Answer, TimedSession, smallest_request
from bt_p2p.chain.holders import Hop
from bt_p2p.chain.service import LocalBlockService
from bt_p2p.errors import ConfigError
from bt_p2p.model.block import weight_specs
from bt_p2p.model.wire import decode_tensors
from bt_p2p.testing.block_rpc import InMemoryBlockClient
from bt_p2p.testing.tiny import tiny_identity, tiny_lease, tiny_overview, tiny_weights

SMALL = "{ d_model = 16, num_heads = 2, num_blocks = 2, layers_per_block = 1, context = 32 }"
TINY = f"""
repeats = 2
prompt_bytes = 12
[[settings]]
name = "tiny"
trained_arm = "plain_sweep"
model = {SMALL}
objective = {{ sweep_max_bytes = 8 }}
ways = ["baseline", "ar", "draft", "sweep"]
sweep_bytes = 8
lengths = [8, 16]
links = [{{}}, {{ one_way_ms = 25 }}]
sessions = [1, 3]
[faults]
model = {SMALL}
objective = {{ sweep_max_bytes = 8 }}
new_bytes = 8
kills = 3
freezes = 1
"""


# the relay


@asynccontextmanager
async def relayed(answer, *, one_way_ms: float = 0.0, mbit_per_s: float = 0.0):
    """A connection through a relay to a server that calls `answer(reader, writer)`."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    relay = Relay(server.sockets[0].getsockname()[1])
    relay.set_link(one_way_ms=one_way_ms, mbit_per_s=mbit_per_s)
    await relay.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
    try:
        async with asyncio.timeout(10):
            yield reader, writer
    finally:
        writer.close()
        await relay.stop()
        server.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send everything back."""
    while data := await reader.read(1000):
        writer.write(data)
    writer.close()


def test_a_lane_delays_and_queues() -> None:
    lane = Lane(one_way_s=0.5, bytes_per_s=100.0)
    assert 11.5 == lane.arrival_s(100, 10.0)
    assert 12.5 == lane.arrival_s(100, 10.0)
    assert 21.5 == lane.arrival_s(100, 20.0)


@pytest.mark.asyncio
async def test_a_relay_delays_both_directions() -> None:
    async with relayed(echo, one_way_ms=40) as (reader, writer):
        for _ in range(2):  # the second without what a new connection costs
            started_s = time.perf_counter()
            writer.write(b"?")
            assert b"?" == await reader.readexactly(1)
            took_s = time.perf_counter() - started_s
        assert 0.08 <= took_s < 1.0


@pytest.mark.asyncio
async def test_a_relay_has_a_rate() -> None:
    async with relayed(echo, mbit_per_s=8) as (reader, writer):
        started_s = time.perf_counter()
        writer.write(bytes(100_000))
        await reader.readexactly(100_000)
        assert 0.1 <= time.perf_counter() - started_s < 2.0


@pytest.mark.asyncio
async def test_a_relay_keeps_all_bytes_in_order() -> None:
    data = random.Random(0).randbytes(200_000)
    async with relayed(echo, one_way_ms=5) as (reader, writer):
        writer.write(data)
        assert data == await reader.readexactly(len(data))


@pytest.mark.asyncio
async def test_a_relay_delivers_what_was_sent_before_an_end_and_closes_both_sides() -> None:
    seen = asyncio.get_running_loop().create_future()

    async def read_all(reader, writer) -> None:
        seen.set_result(await reader.read(-1))
        writer.close()

    async with relayed(read_all, one_way_ms=10) as (reader, writer):
        writer.write(b"last words")
        writer.close()
        assert b"last words" == await seen

    async def say_and_leave(reader, writer) -> None:
        writer.write(b"bye")
        writer.close()

    async with relayed(say_and_leave, one_way_ms=10) as (reader, _):
        assert b"bye" == await reader.read(-1)


@pytest.mark.asyncio
async def test_a_relay_to_nobody_closes_at_once() -> None:
    relay = Relay(9)
    await relay.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
    assert b"" == await reader.read(-1)
    writer.close()
    await relay.stop()


# figures


def answer_of(data: bytes, traversal_ms: list[float], *, is_sequential: bool) -> Answer:
    """Two hops in each traversal that compute 2 ms and 3 ms and take 2 ms more."""
    hops = tuple(
        Hop(block=block, peer_id="p", round_index=0, total_ms=compute + 2, compute_ms=compute)
        for block, compute in enumerate((2.0, 3.0))
    )
    ends_s = [sum(traversal_ms[: index + 1]) / 1000 for index in range(len(traversal_ms))]
    return Answer(
        data=data,
        chunk_s=tuple(ends_s),
        traversal_ms=tuple(traversal_ms),
        hops=(hops,) * len(traversal_ms),
        is_sequential=is_sequential,
    )


def test_figures_are_medians_without_the_first_traversal() -> None:
    answer = answer_of(b"abcd", [1000.0, 105.0, 105.0, 205.0], is_sequential=True)
    timed = [Timed(answer=answer, cpu_s={"client": 0.4})]
    figures = make_figures("s", 2, Link(one_way_ms=25), "baseline", timed, [])
    assert figures.first_byte_ms == pytest.approx(1000)
    assert figures.traversal_ms == 105.0
    assert figures.step_ms == pytest.approx(105)
    assert figures.compute_ms == 5.0
    assert figures.hop_overhead_ms == 50.0
    assert figures.trips == 4.0
    assert figures.bytes_per_s == pytest.approx(4 / 1.415)
    assert figures.cpu_ms == {"client": 100.0}
    assert figures.is_as_ar is None


def test_blocks_side_by_side_count_the_longest_of_them() -> None:
    answer = answer_of(b"abcd", [5.0, 5.0], is_sequential=False)
    timed = [Timed(answer=answer, cpu_s={})]
    figures = make_figures("s", 2, Link(), "draft", timed, [b"abcx"])
    assert (figures.compute_ms, figures.hop_overhead_ms, figures.trips) == (3.0, 2.0, None)
    assert figures.bytes_per_traversal == 2.0
    assert figures.is_as_ar is False


def test_ratios_and_trips_come_from_two_figures() -> None:
    found = []
    for one_way_ms, step_ms in ((0.0, 10.0), (25.0, 60.0)):
        for way, factor in (("baseline", 2.0), ("ar", 1.0)):
            answer = answer_of(b"ab", [factor * step_ms] * 2, is_sequential=way == "baseline")
            timed = [Timed(answer=answer, cpu_s={})]
            found.append(make_figures("s", 2, Link(one_way_ms=one_way_ms), way, timed, []))
    compared = compare(found)
    assert [1.0, 2.0, 1.0, 2.0] == pytest.approx([one.ratio for one in compared])
    assert [None, None, 4.0, 2.0] == [one.net_trips for one in compared]


def test_a_crowd_is_as_fast_as_all_together_and_as_fair_as_its_slowest() -> None:
    group = [answer_of(b"ab", [ms, ms], is_sequential=False) for ms in (500.0, 1000.0)]
    crowd = make_crowd("s", Link(), [group])
    assert (crowd.num_sessions, crowd.bytes_per_s, crowd.slowest_share) == (2, 2.0, 0.5)
    assert crowd.longest_gap_s == 1.0


# whole runs


class MemorySwarm:
    """As `ChainSwarm`, in memory and without links."""

    def __init__(self, manifest, weights, replicas: int) -> None:
        self.manifest = manifest
        self.links: list[Link] = []
        self._services, self._leases, self._away = {}, [], {}
        for index in range(replicas * manifest.model.num_blocks):
            block, identity = index % manifest.model.num_blocks, tiny_identity(index)
            service = LocalBlockService(manifest, block)
            service.adopt(tiny_weights(manifest, block) if weights is None else weights[block], 0)
            self._services[identity.peer_id] = service
            self._leases.append(tiny_lease(manifest, identity, block))
        self.client = InMemoryBlockClient(self._services)

    def set_link(self, link: Link) -> None:
        self.links.append(link)

    def session(self, precision="float32") -> TimedSession:
        return TimedSession(
            self.manifest,
            self.client,
            lambda: tiny_overview(self.manifest, self._leases),
            precision=precision,
        )

    def run(self, coroutine, *, timeout_s: float):
        return asyncio.run(coroutine)

    def ask(self) -> float:
        lease = self._leases[0]
        return asyncio.run(smallest_request(self.manifest, 0, self.client, lease.peer_id))

    def num_bypasses(self) -> int:
        return 0

    def cpu_s(self) -> dict[str, float]:
        return {"client": time.process_time()}

    def kill(self, peer_id: str) -> None:
        self._away[peer_id] = self._services.pop(peer_id)

    def freeze(self, peer_id: str) -> None:
        self.client.faults.always(peer_id, "delay")

    def revive(self, peer_id: str) -> None:
        self.client.faults.heal(peer_id)
        self._services.update(self._away)


@contextmanager
def memory_swarm(
    manifest, folder: Path, *, weights=None, replicas: int = 1, is_relayed: bool = True
) -> Iterator:
    """As `chain_swarm`."""
    assert folder.is_dir()
    if weights is not None:
        expected = weight_specs(manifest)
        weights = [decode_tensors(path.read_bytes(), expected) for path in weights]
    yield MemorySwarm(manifest, weights, replicas)


@pytest.fixture
def options(tmp_path: Path) -> Options:
    data = tmp_path / "data"
    data.mkdir()
    for name in ("wiki_train.txt", "wiki_valid.txt", "wiki_test.txt"):
        (data / name).write_text("the quick brown fox jumps over the lazy dog. " * 30)
    config = tmp_path / "tiny.toml"
    config.write_text(TINY)
    return Options(
        config=str(config),
        data=data,
        trained=tmp_path / "trained",
        out=tmp_path / "out",
        command="python -m benchmarks.chain",
    )


@pytest.mark.slow
def test_a_run_in_memory_writes_a_report(options: Options) -> None:
    assert 0 == run_chain(options, memory_swarm)
    report = ChainReport.model_validate_json((options.out / "chain.json").read_bytes())
    assert 2 * 2 * 4 == len(report.figures)
    assert all(one.is_as_ar for one in report.figures if one.way == "draft")
    assert {1, 2} == {one.traversals for one in report.figures if one.way == "sweep"}
    assert [1, 3, 1, 3] == [crowd.num_sessions for crowd in report.crowds]  # of both links
    assert "initial weights" in report.notes[0]
    text = (options.out / "chain.md").read_text()
    assert "| 25 ms, no limit | 16 | baseline (100% forwarded) |" in text
    assert str(options.out.parent) not in text
    assert (options.out / "chain.svg").read_text().startswith("<?xml")


@pytest.mark.slow
def test_holders_and_guesses_have_the_weights_they_are_given(
    options: Options, tmp_path: Path
) -> None:
    setting = read_config(options.config).settings[0]
    setting = setting.model_copy(
        update={"ways": ("ar", "draft"), "lengths": (16,), "links": [Link()]}
    )
    other = setting.manifest("plain").model_copy(update={"seed": 1})
    weights = [tiny_weights(other, 0)] * 2  # block 0 alone always guesses right
    found = SettingRun(setting, weights, [b"the quick"], memory_swarm).run(tmp_path, print, print)
    assert [16, 2] == [one.traversals for one in found.figures]
    assert found.figures[1].is_as_ar


@pytest.mark.slow
def test_disturbed_answers_are_the_undisturbed_ones(options: Options) -> None:
    assert 0 == run_faults(options, memory_swarm)
    report = FaultReport.model_validate_json((options.out / "faults.json").read_bytes())
    kills, freezes = report.figures
    assert (3, 3, 3, ()) == (
        kills.num_answers,
        kills.num_identical,
        kills.num_replaced,
        kills.errors,
    )
    assert (1, 1, 1) == (freezes.num_answers, freezes.num_identical, freezes.num_replaced)
    assert 0.2 < freezes.longest_gap_s < 5
    assert "| plain | kill -9 | 3 | **3** | 3 | 0 |" in (options.out / "faults.md").read_text()


@pytest.mark.parametrize("name", ["quick", "full"])
def test_the_shipped_configs_make_runs(name: str) -> None:
    config = read_config(name)
    for setting in config.settings:
        for objective in ("plain", "cascade"):
            manifest = setting.manifest(objective)
            assert setting.sweep_bytes <= manifest.objective.sweep_max_bytes


def test_a_wrong_config_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(TINY.replace("repeats = 2", "repeats = 0"))
    with pytest.raises(ConfigError, match="repeats"):
        read_config(str(path))
    with pytest.raises(ConfigError, match="full, quick"):
        read_config("nothing")
