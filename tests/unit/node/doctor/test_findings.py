"""node.doctor: each check says what it found and what to do, and the worst one decides."""

from __future__ import annotations

import dataclasses
import json
import re
import resource
from pathlib import Path

import pytest

from bt_p2p.errors import ConfigError
from bt_p2p.model.sizes import block_sizes
from bt_p2p.protocol.address import parse_peer_address
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.swarm.dial_back import Reachability
from bt_p2p.swarm.link import Echo
from bt_p2p.swarm.reach import Reach
from bt_p2p.testing.tiny import tiny_identity
from node.doctor import machine, network
from node.doctor.finding import Finding, Severity, error_of, exit_code, finding_of, worst
from node.doctor.options import well_formed
from node.doctor.plan import make_plan, plan_finding
from node.doctor.report import document_of, text_of
from node.state_dir import StateDir

PEER = tiny_identity(0).peer_id
ADDRESS = parse_peer_address(f"/ip4/203.0.113.7/tcp/31337/p2p/{PEER}")
OTHER = parse_peer_address(f"/ip4/203.0.113.8/tcp/31337/p2p/{PEER}")
MANIFEST = RunManifest.build({"model": {"num_blocks": 2}, "rounds": {"round_s": 10}})
SIZES = block_sizes(MANIFEST.model, MANIFEST.objective, batch_size=MANIFEST.optimizer.batch_size)


def finding(severity: Severity) -> Finding:
    """Any finding of a severity."""
    return Finding(check="c", severity=severity, text="t")


def echo(round_trip_s: float, size_bytes: int = 0) -> Echo:
    """A transfer as measured."""
    return Echo(round_trip_s=round_trip_s, size_bytes=size_bytes)


@pytest.mark.parametrize(
    ("severities", "expected", "code"),
    [
        ([], "ok", 0),
        (["ok", "note"], "note", 0),
        (["warning", "ok"], "warning", 0),
        (["ok", "problem", "warning"], "problem", 1),
    ],
)
def test_the_worst_finding_decides(severities: list[Severity], expected: str, code: int) -> None:
    """Only a problem is a failure."""
    found = [finding(severity) for severity in severities]
    assert (expected, code) == (worst(found), exit_code(found))


def test_an_error_becomes_a_problem_with_its_advice_as_the_fix() -> None:
    """Messages of errors end in what to do."""

    def fail() -> None:
        raise ConfigError("port 7 is in use; choose another with --port")

    found = finding_of("port", "port-not-free", "free", fail)
    assert ("problem", "port 7 is in use") == (found.severity, found.text)
    assert ("port-not-free", "choose another with --port") == (found.code, found.fix)
    fine = finding_of("port", "port-not-free", "free", lambda: None)
    assert ("ok", "", "free") == (fine.severity, fine.code, fine.text)


def test_problems_become_the_error_of_a_command() -> None:
    """The first of them, with its fix, and how many more there are."""
    busy = Finding(check="port", severity="problem", text="port 7 is in use", fix="take another")
    assert error_of([finding("warning")]) is None
    assert "port 7 is in use; take another" == str(error_of([finding("ok"), busy]))
    assert str(error_of([busy, busy, busy])).endswith(
        "(and 2 more: bt-node doctor --quick lists them)"
    )


def test_a_malformed_option_is_a_wrong_usage() -> None:
    """Whatever else is found."""
    malformed = Finding(check="options", severity="problem", text="t")
    assert 2 == exit_code([finding("problem"), malformed])
    assert 0 == exit_code([dataclasses.replace(malformed, severity="note")])


def test_each_malformed_address_is_named_and_the_others_are_kept() -> None:
    """One cut short does not hide the next."""
    good, cut = ADDRESS.text, ADDRESS.text[:-20]
    peers, announced, found = well_formed(
        [f"{good},{cut} localhost:1"], ["/ip4/0.0.0.0/tcp/1", "/ip4/8.8.8.8/tcp/1"], "localhost"
    )
    assert (ADDRESS,) == peers
    assert ("/ip4/8.8.8.8/tcp/1",) == announced
    assert [
        "address-malformed", "address-malformed", "announce-useless", "host-malformed",
    ] == [each.code for each in found]  # fmt: skip
    assert ["address-malformed"] == [each.code for each in well_formed([""], [], "0.0.0.0")[2]]


def test_every_code_is_in_the_documentation() -> None:
    """And the documentation names none that does not exist."""
    root = Path(__file__).parents[4]
    sources = [*(root / "node" / "doctor").glob("*.py")]
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    named = re.findall(r'"([a-z]+(?:-[a-z]+)+)"', text)
    page = (root / "docs" / "doctor.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\| `([a-z]+(?:-[a-z]+)+)` \|", page, flags=re.MULTILINE)
    assert sorted(set(named)) == sorted(documented)


@pytest.mark.parametrize(
    ("soft", "hard", "severity", "part"),
    [
        (1024, 1024, "ok", ""),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, "ok", ""),
        (256, 4096, "warning", "ulimit -n 1024"),
        (256, 256, "warning", "administrator"),
    ],
)
def test_too_few_open_files_are_a_warning(soft: int, hard: int, severity: str, part: str) -> None:
    """With the command that raises the limit, or who can."""
    found = machine.files(soft, hard)
    assert severity == found.severity
    assert part in found.fix


def test_a_block_over_the_memory_limit_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that fits in parts only, or leaves little, is a warning."""
    batch_size = MANIFEST.optimizer.batch_size
    needed = machine.needed_memory_bytes(SIZES)
    least = machine.needed_memory_bytes(SIZES, num_parts=batch_size)
    found = []
    for limit in (least - 2**20, needed - 2**20, int(needed * 1.1), needed * 4):
        monkeypatch.setattr("node.resources.memory_limit_bytes", lambda limit=limit: limit)
        monkeypatch.setattr(machine, "memory_limit_bytes", lambda limit=limit: limit)
        found.append(machine.memory(SIZES, batch_size=batch_size))
    assert ["problem", "warning", "warning", "ok"] == [each.severity for each in found]
    assert "in 2 parts" in found[1].text
    assert [True, True, True, False] == [bool(each.fix) for each in found]


def test_disk_port_and_folder_are_fine_on_an_idle_machine(tmp_path: Path) -> None:
    """The checks pass where nothing is in the way."""
    state = StateDir(tmp_path / "state")
    found = [
        machine.state_folder(state),
        machine.disk(tmp_path, SIZES),
        machine.port("127.0.0.1", 0, state),
    ]
    assert ["ok"] * 3 == [each.severity for each in found]


def test_a_folder_that_is_a_file_is_a_problem(tmp_path: Path) -> None:
    """Named, with the option that chooses another."""
    (tmp_path / "state").write_bytes(b"")
    found = machine.state_folder(StateDir(tmp_path / "state"))
    assert "problem" == found.severity
    assert "--state-dir" in found.fix


def test_an_unknown_device_is_a_problem() -> None:
    """What the machine has is named."""
    found = machine.device("cuda:99")
    assert "problem" == found.severity
    assert "cpu" in found.fix


@pytest.mark.parametrize(
    ("problem", "part"),
    [
        ("refused (the host is up)", "current address"),
        ("the name was not resolved within 5 s", "DNS"),
        ("timed out after 5 s", "firewall"),
        ("no such host", "DNS"),
        ("this machine has no route there", "IPv4 or IPv6"),
    ],
)
def test_a_dead_peer_is_a_problem_only_if_nobody_else_answers(problem: str, part: str) -> None:
    """Each has its own reason and fix."""
    dead = Reach(address=ADDRESS, problem=problem)
    alone = network.peers([dead])[0]
    assert "problem" == alone.severity
    assert problem in alone.text
    assert part in alone.fix

    beside = network.peers([dead, Reach(address=OTHER, problem="")])
    assert ["warning", "ok"] == [each.severity for each in beside]


@pytest.mark.parametrize(
    ("host", "severity"), [("ip4/8.8.8.8", "ok"), ("ip4/10.0.0.1", "note"), ("ip6/::1", "note")]
)
def test_an_address_that_not_everybody_can_dial_is_noted(host: str, severity: str) -> None:
    """And how to name a better one."""
    found = network.announced([parse_peer_address(f"/{host}/tcp/7/p2p/{PEER}")])
    assert severity == found.severity
    assert (severity != "ok") == ("--announce" in found.fix)
    assert "warning" == network.announced([]).severity


@pytest.mark.parametrize(
    ("found", "severity", "part"),
    [
        (Reachability(verdict="yes", works=("/ip4/8.8.8.8/tcp/7",)), "ok", ""),
        (Reachability(verdict="unknown"), "note", ""),
        (Reachability(verdict="elsewhere", works=("/ip4/8.8.8.8/tcp/7",)), "warning", "--announce"),
        (Reachability(verdict="no", seen_at="8.8.8.8", reasons=("r",)), "warning", "open TCP port"),
    ],
)
def test_reachability_is_told_with_its_fix(found: Reachability, severity: str, part: str) -> None:
    """Not reachable is no problem: there are relays."""
    told = network.reachability(found, port=7)
    assert severity == told.severity
    assert part in told.fix


@pytest.mark.parametrize(
    ("ahead_s", "severity"),
    [
        ([], "note"),
        ([0.2], "ok"),
        ([-3.0], "warning"),
        ([60.0, 61.0], "problem"),
        ([60.0], "problem"),
        ([60.0, 0.1, 0.0], "ok"),
    ],
)
def test_the_clock_is_compared_with_the_middle_one(ahead_s: list[float], severity: str) -> None:
    """One peer with a wrong clock is outvoted."""
    assert severity == network.clock(ahead_s).severity


@pytest.mark.parametrize(("large_s", "severity"), [(0.11, "ok"), (10.1, "warning")])
def test_a_slow_link_is_a_warning(large_s: float, severity: str) -> None:
    """1 MB there and back in 0.1 s or in 10 s, beside a round trip of 10 ms."""
    found = network.link(PEER, echo(0.01), echo(large_s, 1_000_000))
    assert severity == found.severity
    assert "10 ms round trip" in found.text


def test_the_plan_says_what_a_round_costs() -> None:
    """Two replicas each send their weights once; at their size a second, that takes a tenth of it."""
    plan = make_plan(
        MANIFEST, SIZES, block=1, num_replicas=1, link_bytes_per_s=SIZES.weights_size_bytes
    )
    assert SIZES.weights_size_bytes == plan.sent_bytes_per_round
    assert 0.1 == pytest.approx(plan.averaging_share)
    found = plan_finding(plan)
    assert "ok" == found.severity
    assert "block 1 of 2 with 1 other replicas" in found.text
    assert "10% of the time averaging" in found.text


def test_a_plan_that_mostly_averages_is_a_warning() -> None:
    """On a link that needs nine of ten seconds."""
    plan = make_plan(
        MANIFEST, SIZES, block=0, num_replicas=1, link_bytes_per_s=SIZES.weights_size_bytes / 9
    )
    assert ("warning", True) == (plan_finding(plan).severity, bool(plan_finding(plan).fix))


def test_without_a_link_there_is_no_share() -> None:
    """A swarm that was not asked."""
    plan = make_plan(MANIFEST, SIZES, block=None, num_replicas=0, link_bytes_per_s=None)
    assert plan.averaging_share is None
    assert "the thinnest block" in plan_finding(plan).text


def test_findings_are_numbered_and_fixes_stand_below_them() -> None:
    """For people, and the same for programs."""
    busy = Finding(
        check="port", severity="problem", code="port-not-free", text="busy", fix="another"
    )
    found = [finding("ok"), busy]
    lines = text_of(found).splitlines()
    assert " 2. problem  port: busy [port-not-free]" == lines[1]
    assert "fix: another" == lines[2].strip()
    assert "1 problem: join would fail; fix the problems first" == lines[-1]

    document = json.loads(json.dumps(document_of(found, None)))
    assert (False, "problem", None) == (document["ok"], document["worst"], document["plan"])
    assert {
        "number": 2, "check": "port", "severity": "problem", "code": "port-not-free",
        "text": "busy", "fix": "another",
    } == document["findings"][1]  # fmt: skip
    assert document["findings"][0]["fix"] is None
