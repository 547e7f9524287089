"""benchmarks.chaos, without its swarms: the plan, the links, what counts as lost, the report."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from benchmarks.chaos.blame import lay_to_faults
from benchmarks.chaos.config import KINDS, ChaosConfig, read_config
from benchmarks.chaos.exits import ExitReport, ExitResult
from benchmarks.chaos.exits import render as render_exits
from benchmarks.chaos.faults import Injected
from benchmarks.chaos.frames import bad_frames
from benchmarks.chaos.links import Link, LinkBoard
from benchmarks.chaos.plan import block_of, is_steady, make_plan
from benchmarks.chaos.report import ChaosReport, SwarmResult, draw_plot, make_set_up, render
from benchmarks.chaos.watch import Missed, Point, drift
from benchmarks.ports import free_port, is_free
from bt_p2p.errors import ConfigError

CONFIG = ChaosConfig(
    num_faults=200, fault_every_s=5, quiet_s=20, shares=dict.fromkeys(KINDS, 1.0), seed=3
)
ENDS_PROCESSES = {"kill", "kill_child", "restart"}


@pytest.mark.parametrize("name", ["quick", "full"])
def test_configs_beside_the_code_are_valid(name):
    """And have every kind of fault."""
    assert set(KINDS) == set(read_config(name).shares)


def test_a_config_without_any_fault_is_refused(tmp_path):
    """It would disturb nothing, and say that all is well."""
    path = tmp_path / "none.toml"
    path.write_text("num_faults = 1\nfault_every_s = 1\nquiet_s = 1\n[shares]\nkill = 0\n")
    with pytest.raises(ConfigError, match="all shares are 0"):
        read_config(str(path))


def test_the_plan_follows_from_the_seed_alone():
    """So that a run that went wrong can be repeated."""
    assert make_plan(CONFIG) == make_plan(CONFIG)
    assert make_plan(CONFIG) != make_plan(CONFIG.model_copy(update={"seed": 4}))


def test_the_plan_has_every_kind_in_order_of_time():
    """About as often as the shares say."""
    plan = make_plan(CONFIG)
    assert sorted(plan, key=lambda fault: fault.at_s) == plan
    counts = Counter(fault.kind for fault in plan)
    assert set(KINDS) == set(counts)
    assert all(22 <= count <= 23 for count in counts.values())


def test_one_volunteer_of_each_block_keeps_its_processes():
    """Leaks are looked for in it, and the block never loses all its replicas."""
    steady = [number for number in range(6) if is_steady(number, CONFIG)]
    assert {0, 1} == {block_of(number, CONFIG) for number in steady}
    for fault in make_plan(CONFIG):
        if fault.kind in ENDS_PROCESSES:
            assert not set(steady) & set(fault.victims)


def test_bad_frames_are_the_same_for_a_seed():
    """And no two of them are alike."""
    frames = bad_frames(1)
    assert frames == bad_frames(1)
    assert len(frames) == len(set(frames))


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while data := self.request.recv(100):
                self.request.sendall(data)


class Echo:
    """A server behind a link, and its clients."""

    def __init__(self, board: LinkBoard, server: socketserver.TCPServer) -> None:
        self.board = board
        self.link: Link = board.add(server.server_address[1])

    def dial(self, source_port: int = 0) -> socket.socket:
        """Connect through the link."""
        return socket.create_connection(
            ("127.0.0.1", self.link.port), 5, source_address=("127.0.0.1", source_port)
        )

    def ask(self, client: socket.socket) -> bytes:
        """What comes back within a moment; empty if the connection ends or stays silent."""
        client.settimeout(0.3)
        try:
            client.sendall(b"x")
            return client.recv(1)
        except OSError:
            return b""

    def ask_anew(self) -> bytes:
        """The same on a connection of its own."""
        with self.dial() as client:
            client.settimeout(2)
            return self.ask(client)


@pytest.fixture
def echo() -> Iterator[Echo]:
    board = LinkBoard()
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Echo) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield Echo(board, server)
        board.stop()
        server.shutdown()
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["reset", "silence"])
def test_a_cut_link_passes_nothing_until_it_is_mended(echo, mode):
    """New connections and old ones; silence ends where it began, a reset needs a new dial."""
    with echo.dial() as client:
        assert b"x" == echo.ask(client)
        echo.board.cut(echo.link, mode)
        assert (b"", b"") == (echo.ask(client), echo.ask_anew())
        echo.board.mend(echo.link)
        assert b"x" == echo.ask_anew()
        assert (b"x" if mode == "silence" else b"") == echo.ask(client)


def test_what_a_volunteer_opens_itself_goes_through_its_link_too(echo):
    """It is known by its source port."""
    source_port = free_port()
    own_link = echo.board.add(source_port)
    with echo.dial(source_port) as client:
        assert b"x" == echo.ask(client)
        echo.board.cut(own_link, "reset")
        assert b"" == echo.ask(client)


def test_a_port_is_free_until_somebody_listens(echo):
    """As it is looked at after the end of a node."""
    assert not is_free(echo.link.port)
    assert is_free(free_port())


def lost_at(at_s: float, slot: int, *, is_lost: bool = True) -> Missed:
    return Missed(
        at_s=at_s,
        block=0,
        slot=slot,
        volunteer="volunteer-0",
        outcome="dropped",
        is_own_fault=False,
        is_lost=is_lost,
    )


def fault_at(at_s: float, until_s: float, *, block: int = 0) -> Injected:
    return Injected(
        at_s=at_s, until_s=until_s, kind="freeze", victim="volunteer-2", block=block, detail="all"
    )


@pytest.mark.parametrize(
    ("faults", "cause"),
    [
        pytest.param([], None, id="none"),
        pytest.param([fault_at(31.0, 40.0)], None, id="later"),
        pytest.param([fault_at(1.0, 9.0)], None, id="long over"),
        pytest.param([fault_at(1.0, 12.0)], 0, id="just over"),
        pytest.param([fault_at(20.0, 40.0), fault_at(25.0, 26.0)], 1, id="the latest"),
        pytest.param([fault_at(20.0, 40.0), fault_at(25.0, 26.0, block=1)], 0, id="own block"),
        pytest.param([fault_at(25.0, 26.0, block=1)], 0, id="another block"),
    ],
)
def test_a_lost_round_is_laid_to_a_fault_that_was_there(faults, cause):
    """That of its own block comes first; one that can be none is not laid to any."""
    expected = None if cause is None else faults[cause]
    assert [expected] == lay_to_faults([lost_at(30.0, 3)], faults, round_s=10.0)


def test_lost_rounds_are_laid_to_faults_of_their_own():
    """If there are enough; else one cost two."""
    first, second = fault_at(20.0, 28.0), fault_at(25.0, 26.0)
    lost = [lost_at(30.0, 3), lost_at(40.0, 4)]
    assert {first, second} == set(lay_to_faults(lost, [first, second], round_s=10.0))
    assert [second, second] == lay_to_faults(lost, [second], round_s=10.0)
    assert [] == lay_to_faults([], [first], round_s=10.0)
    early = lost_at(22.0, 2)  # only the first was there
    assert [second, first] == lay_to_faults([lost[0], early], [first, second], round_s=10.0)


def test_drift_leaves_the_start_out():
    """The last quarter against the second one."""
    assert drift([1.0, 2.0, 3.0]) is None
    assert 0.0 == drift([50.0, 60.0, *[100.0] * 6])
    assert 0.5 == pytest.approx(drift([0.0, 0.0, 100.0, 100.0, 7.0, 7.0, 150.0, 150.0]))


def swarm_result(**changes: object) -> SwarmResult:
    values: dict[str, object] = {
        "title": "twin",
        "run_id": "run",
        "final_nats": 1.5,
        "per_block_nats": (1.6, 1.7),
        "averaged": 100,
        "alone": 2,
        "failed": 1,
        "missed": (),
        "crashes": (),
        "stalls": (),
        "sizes": {},
        "curve": (Point(at_s=0.0, loss=5.5), Point(at_s=5.0, loss=2.5)),
        "leftover_processes": 0,
        "leftover_ports": 0,
        "leftover_files": (),
    }
    return SwarmResult.model_validate(values | changes)


def report_of(**changes: object) -> ChaosReport:
    fault = Injected(
        at_s=1.0, until_s=2.0, kind="kill", victim="volunteer-2", block=0, detail="all"
    )
    return ChaosReport(
        set_up=make_set_up("python -m benchmarks.chaos"),
        config=CONFIG,
        injected=(fault,),
        skipped=3,
        slow_leavers=(),
        disturbed=swarm_result(title="disturbed", **changes),
        twin=swarm_result(),
    )


def test_a_good_report_has_no_problems(tmp_path):
    """It says so, and can be drawn."""
    report = report_of(missed=(lost_at(3.0, 1), lost_at(4.0, 2, is_lost=False)))
    assert [] == report.problems()
    text = render(report, "quick")
    assert "All targets are met." in text
    assert "| kill -9, then a restart | 1 | 1 | 1 |" in text
    draw_plot(report, tmp_path / "quick.svg")
    assert (tmp_path / "quick.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"crashes": ("volunteer-1 at 7 s",)}, "a healthy node ended"),
        ({"stalls": ("volunteer-1 at 7 s",)}, "a node hangs"),
        ({"missed": (lost_at(3.0, 1), lost_at(9.0, 2))}, "2 rounds lost by one fault: kill at 1 s"),
        ({"missed": (lost_at(60.0, 6),)}, "1 rounds lost with no fault near"),
        ({"final_nats": 1.56}, "cross entropy is +0.060"),
        ({"final_nats": float("nan")}, "cross entropy is +nan"),
        ({"leftover_processes": 1}, "left 1 processes"),
        ({"leftover_files": ("socket",)}, "1 files"),
    ],
)
def test_every_missed_target_is_named(changes, words):
    """Each makes the run a failure."""
    report = report_of(**changes)
    assert any(words in problem for problem in report.problems())
    assert f"- FAILED: {report.problems()[0]}" in render(report, "quick")


def exit_result(**changes: object) -> ExitResult:
    values: dict[str, object] = {
        "moment": "step",
        "signal": "SIGTERM",
        "state": "training",
        "is_hit": True,
        "seconds": 1.5,
        "exit_code": 143,
        "processes": (),
        "ports": 0,
        "files": (),
        "traceback": False,
    }
    return ExitResult.model_validate(values | changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seconds": None}, "did not end in time"),
        ({"exit_code": 1}, "exit code 1"),
        ({"processes": ("p2pd 7",)}, "p2pd 7"),
        ({"ports": 1}, "left 1 ports"),
        ({"files": ("bt-node-7-x",)}, "bt-node-7-x"),
        ({"traceback": True}, "a traceback"),
    ],
)
def test_what_an_end_leaves_behind_is_named(changes, words):
    """And makes the report a failure."""
    result = exit_result(**changes)
    assert words in "; ".join(result.problems())
    report = ExitReport(set_up=make_set_up("exits"), results=(exit_result(), result))
    assert "FAILED" in render_exits(report)


def test_ends_that_leave_nothing_have_no_problems():
    """A start may be ended by the signal itself, SIGKILL has to be."""
    results = [
        exit_result(),
        exit_result(moment="bootstrap", exit_code=-15),
        exit_result(signal="SIGKILL", exit_code=-9),
    ]
    assert [[], [], []] == [result.problems() for result in results]
    text = render_exits(ExitReport(set_up=make_set_up("exits"), results=tuple(results)))
    assert "Nothing was left behind in 3 runs." in text
