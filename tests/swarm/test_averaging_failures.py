"""Replicas that die, stall, starve or poison others in the middle of an average.

The survivors are whole: each gets the complete average of a group, or an error in time, and its
own weights as they were.
"""

from __future__ import annotations

import asyncio
import math
import signal
import time
from types import SimpleNamespace

import pytest

from bt_p2p.averaging.schedule import matchmaking_s
from bt_p2p.protocol.limits import LATE_PARTNER_S
from bt_p2p.testing.tiny import tiny_manifest
from tests.swarm.names import unique_name
from tests.swarm.peer_processes import PeerFailedError, kill_all, wait_gone
from tests.swarm.waiting import wait_for_time

pytestmark = [pytest.mark.swarm, pytest.mark.slow, pytest.mark.timeout(120)]

ROUND_S = 4.0
SEARCH_S = matchmaking_s(ROUND_S) + 0.5
BIG = [2_000_000, 1_500_000, 2_500_000]  # 24 MB: the exchange takes about a second
SMALL = [40_000, 300_000]
SAMPLES = [3, 5, 9]


class Group:
    """Three peers that average with each other; the last one is to fail."""

    def __init__(self, start, sizes: list[int], exchange_s: float = 8.0) -> None:
        self.start = start
        self.manifest = tiny_manifest(unique_name(), round_s=ROUND_S).model_dump(mode="json")
        self.sizes, self.exchange_s = sizes, exchange_s
        self.peers = [start() for _ in range(3)]

    def open(self, peer) -> None:
        """Start the peer's averager."""
        answer = peer.ask(
            "open_averager",
            manifest=self.manifest,
            block=0,
            sizes=self.sizes,
            exchange_s=self.exchange_s,
        )
        assert answer["sigint_kept"]

    def begin(self, number: int) -> float:
        """All begin round `number`; when it ends."""
        ends_at_s = time.time() + SEARCH_S + 0.2
        for peer in self.peers:
            peer.ask("begin", round_index=number, ends_at_s=ends_at_s)
        return ends_at_s

    def seeds(self, number: int) -> list[int]:
        """Every member's seed in a round."""
        return [10 * number + index for index in range(3)]

    def send_finish(self, number: int, index: int, *, timeout_s: float) -> None:
        """Let a member bring its weights; the possible groups are all three, and each pair."""
        members = [list(pair) for pair in zip(self.seeds(number), SAMPLES, strict=True)]
        groups = [members, members[:2], [members[0], members[2]], members[1:]]
        self.peers[index].send(
            "finish",
            seed=members[index][0],
            samples=members[index][1],
            timeout_s=timeout_s,
            groups=groups,
        )

    def check_whole(self, answer: dict, *, timeout_s: float) -> None:
        """What a survivor got is the mean of a whole group, or an error in time."""
        assert answer["untouched"]
        assert timeout_s + LATE_PARTNER_S > answer["took_s"]
        if not answer["error"]:
            assert answer["group"] in (0, 1), answer

    def healthy_round(self, number: int) -> None:
        """All three average completely."""
        wait_for_time(self.begin(number))
        for index in range(3):
            self.send_finish(number, index, timeout_s=10)
        answers = [peer.wait() for peer in self.peers]
        assert [0, 0, 0] == [answer["group"] for answer in answers], answers


def test_a_replica_killed_mid_average_leaves_no_torn_mix(processes):
    """SIGKILL of its main process at five moments; afterwards the survivors average again."""
    group = Group(processes, BIG)
    for peer in group.peers:
        group.open(peer)
    outcomes = []
    for number, delay_s in enumerate([0.05, 0.2, 0.4, 0.7, 1.1]):
        if number:
            group.peers[2] = group.start()
            group.open(group.peers[2])
        ends_at_s = group.begin(number)
        for index in range(3):
            group.send_finish(number, index, timeout_s=8)
        wait_for_time(ends_at_s + delay_s)
        group.peers[2].signal_main(signal.SIGKILL)
        answers = [peer.wait() for peer in group.peers[:2]]
        for answer in answers:
            group.check_whole(answer, timeout_s=8)
        outcomes.append([answer["group"] for answer in answers])
        group.peers[2].end()
    assert 5 == len(outcomes)


def test_a_replica_that_stalls_mid_average_is_an_error_in_time(processes):
    """SIGSTOP of all its processes, as on a sleeping laptop, at two moments."""
    group = Group(processes, BIG, exchange_s=4.0)
    for peer in group.peers:
        group.open(peer)
    for number, delay_s in enumerate([0.1, 0.4]):
        if number:
            group.peers[2] = group.start()
            group.open(group.peers[2])
        ends_at_s = group.begin(number)
        for index in range(3):
            group.send_finish(number, index, timeout_s=6)
        wait_for_time(ends_at_s + delay_s)
        frozen = group.peers[2].freeze()
        for peer in group.peers[:2]:
            group.check_whole(peer.wait(), timeout_s=6)
        kill_all(frozen)
        group.peers[2].end()


def test_a_replica_that_starves_one_member_tears_nobody(processes):
    """It sends its whole weights to one member and the first part to the other."""
    group = Group(processes, [40_000, 1_500_000])  # four parts for each reducer
    group.peers[2].ask("starve", peer_id=group.peers[1].peer_id)
    for peer in group.peers:
        group.open(peer)
    for number in range(2):
        wait_for_time(group.begin(number))
        for index in range(3):
            group.send_finish(number, index, timeout_s=8)
        answers = [peer.wait() for peer in group.peers]
        for answer in answers[:2]:
            group.check_whole(answer, timeout_s=8)
        assert answers[1]["group"] in (-1, 1), answers  # never with the one that starved it


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
def test_a_hostile_replicas_broken_weights_reach_nobody(processes, value):
    """It skips the check that keeps honest replicas from sending them."""
    group = Group(processes, SMALL)
    for peer in group.peers:
        group.open(peer)
    wait_for_time(group.begin(0))
    group.peers[2].send("bring_unchecked", seed=group.seeds(0)[2], value=value)
    for index in range(2):
        group.send_finish(0, index, timeout_s=8)
    for peer in group.peers[:2]:
        answer = peer.wait()
        group.check_whole(answer, timeout_s=8)
        assert answer["group"] in (-1, 1), answer  # never with the hostile one
    group.peers[2].wait()
    group.healthy_round(1)


def test_an_averager_that_does_not_listen_is_an_error_in_time(processes):
    """`begin` waits for the averager's process with a deadline, and works when it is back."""
    group = Group(processes, SMALL)
    peer = group.peers[0]
    group.open(peer)
    peer.ask("freeze_averager")
    with pytest.raises(PeerFailedError, match="does not listen") as caught:
        peer.ask("begin", round_index=0, ends_at_s=time.time() + SEARCH_S, timeout_s=6)
    assert "SwarmError" == caught.value.kind
    peer.ask("thaw_averager")
    for other in group.peers[1:]:
        group.open(other)
    group.healthy_round(1)


def test_an_averager_whose_process_is_gone_says_so(processes):
    """SwarmError, in time, whether or not the process has been collected already."""
    group = Group(processes, SMALL)
    peer = group.peers[0]
    before = {process.pid for process in peer.tree()}
    group.open(peer)
    [child] = [process for process in peer.tree() if process.pid not in before]
    child.kill()
    wait_gone([child], deadline_s=5)
    with pytest.raises(PeerFailedError, match=r"has ended|does not listen") as caught:
        peer.ask("begin", round_index=0, ends_at_s=time.time() + SEARCH_S, timeout_s=6)
    assert "SwarmError" == caught.value.kind


def test_groups_form_again_and_again(processes):
    """Three rounds in a row, all complete."""
    group = Group(processes, SMALL)
    for peer in group.peers:
        group.open(peer)
    for number in range(3):
        group.healthy_round(number)


def test_all_processes_end_with_their_main_one_in_the_middle_of_an_average(processes):
    """SIGKILL of the node takes the averager, the DHT and the daemon with it, exchange or not."""
    group = Group(processes, BIG)
    for peer in group.peers:
        group.open(peer)
    ends_at_s = group.begin(0)
    for index in range(3):
        group.send_finish(0, index, timeout_s=8)
    wait_for_time(ends_at_s + 0.2)
    trees = [peer.tree() for peer in group.peers]
    assert [4, 4, 4] == [len(tree) for tree in trees]  # node, DHT, daemon, averager
    for peer in group.peers:
        peer.signal_main(signal.SIGKILL)
    wait_gone([process for tree in trees for process in tree], deadline_s=8)


def test_a_stop_in_mid_average_gives_up_its_groups():
    """Those that run and those still formed; hivemind's own takes one for the other and fails."""
    from bt_p2p.swarm.averager import _CompleteAverager

    class Runner:
        is_given_up = False

        def finalize(self, *, cancel):
            self.is_given_up = cancel

    removed = []

    async def remove_p2p_handlers(p2p, namespace):
        removed.append(namespace)

    async def story():
        loop = asyncio.get_running_loop()
        forming, running, failed = (loop.create_future() for _ in range(3))
        runner = Runner()
        running.set_result(runner)
        failed.set_exception(ValueError("lost"))
        averager = SimpleNamespace(
            _running_groups={b"a": forming, b"b": running, b"c": failed},
            _p2p=None,
            prefix="run",
            remove_p2p_handlers=remove_p2p_handlers,
        )
        await _CompleteAverager._shutdown(averager, 1.0)
        return forming.cancelled(), runner.is_given_up

    assert (True, True) == asyncio.run(story())
    assert ["run"] == removed
