"""`python -m node.demo`: six volunteers train a model of three blocks, with no coordinator."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bt_p2p.clock import SystemClock
from bt_p2p.errors import BtError, SwarmError
from bt_p2p.protocol.address import parse_peer_addresses
from bt_p2p.protocol.limits import LEASE_TTL_S
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.protocol.overview import SwarmOverview
from node.client import visit
from node.command_line import run_app
from node.demo.camera import Camera
from node.demo.folder import make_empty
from node.demo.processes import DemoSwarm
from node.demo.report import DemoReport
from node.demo.scenario import DemoPlan, Scenario, write_report
from node.log_setup import set_up_logging
from node.snapshot import NodeSnapshot
from node.stop import StopRequest
from node.tui.dashboard import run_dashboard
from node.tui.terminal import can_redraw, make_console

_NUM_STORY_LINES = 3
"""Lines of the story shown above the dashboard."""


app = typer.Typer(add_completion=False)


def full_plan() -> DemoPlan:
    """Three thin blocks, two replicas each: about five minutes on two cores."""
    manifest = RunManifest.build(
        {
            "name": "demo",
            "model": {"layers_per_block": 2},
            "rounds": {"round_s": 10, "decay_rounds": 24},
        }
    )
    return DemoPlan(
        manifest=manifest, num_volunteers=6, train_s=200, eval_bytes=32_768, new_bytes=120
    )


def quick_plan() -> DemoPlan:
    """Two small blocks, two replicas each: for tests."""
    manifest = RunManifest.build(
        {
            "name": "quick-demo",
            "model": {"num_blocks": 2, "layers_per_block": 1, "d_model": 64, "context": 64},
            "rounds": {"round_s": 5, "decay_rounds": 15},
            "optimizer": {"learning_rate": 4e-3, "batch_size": 16},
        }
    )
    return DemoPlan(
        manifest=manifest, num_volunteers=4, train_s=60, eval_bytes=16_384, new_bytes=40
    )


@app.command()
def main(
    folder: Annotated[
        Path,
        typer.Option(help="State, output and report; the files of an earlier demo are removed."),
    ] = Path(".demo"),
    quick: Annotated[bool, typer.Option("--quick", help="A smaller and shorter story.")] = False,
    picture: Annotated[
        Path | None, typer.Option(help="SVG file for a picture of the dashboard.")
    ] = None,
) -> int:
    """Run the demo; 0 only if the model learned, averaging happened and nothing is left."""
    set_up_logging(is_debugging=False)
    make_empty(folder)
    stop = StopRequest()
    stop.listen()
    console = make_console()
    swarm = DemoSwarm(folder)
    try:
        report = _play(quick_plan() if quick else full_plan(), swarm, console, stop, picture)
    finally:
        swarm.stop(timeout_s=10)
        swarm.kill_leftovers()
    if report is None:
        return stop.exit_code
    path = write_report(report, folder)
    problems = report.problems(lease_ttl_s=LEASE_TTL_S)
    console.print(_summary(report, path))
    for problem in problems:
        console.print(f"FAILED: {problem}")
    return 1 if problems else 0


def _play(
    plan: DemoPlan,
    swarm: DemoSwarm,
    console: Console,
    stop: StopRequest,
    picture: Path | None,
) -> DemoReport | None:
    """Run the scenario in a thread; this one draws the dashboard, or waits."""
    clock = SystemClock()
    started_s = clock.monotonic_s()
    lines: list[str] = []

    def say(text: str) -> None:
        lines.append(f"[{clock.monotonic_s() - started_s:5.0f} s] {text}")
        if not is_live:
            console.print(lines[-1])

    is_live = False
    scenario = Scenario(plan, swarm, say)
    address = scenario.begin()
    entry = parse_peer_addresses([address])
    is_live = can_redraw(console)
    with visit(entry, run=plan.manifest.run_id) as found:

        def poll() -> tuple[SwarmOverview | None, NodeSnapshot | None]:
            return found.overview(), swarm.volunteers[0].snapshot

        camera = Camera(picture, poll, clock) if picture else None
        outcome: list[DemoReport | BaseException] = []
        is_over = threading.Event()

        def tell() -> None:
            try:
                outcome.append(scenario.run(found, camera.take if camera else None))
            except BaseException as exc:  # noqa: BLE001 - raised again in the main thread
                outcome.append(exc)
            is_over.set()

        stop.on_request(is_over.set)
        threading.Thread(target=tell, name="scenario", daemon=True).start()
        if is_live:
            ended_by = run_dashboard(
                poll,
                console=console,
                stop=is_over,
                initial_peers=[address],
                notes=lambda: lines[-_NUM_STORY_LINES:],
            )
            is_live = False
            for line in lines:
                console.print(line)
            if ended_by:
                signal.raise_signal(ended_by)
        is_over.wait()
    return _result(outcome[0]) if outcome else None


def _result(result: DemoReport | BaseException) -> DemoReport:
    """The report, or an error with what broke off the story."""
    if isinstance(result, BtError):
        raise result
    if isinstance(result, BaseException):
        raise SwarmError(f"the demo broke off: {result!r}") from result
    return result


def _summary(report: DemoReport, path: Path) -> str:
    return (
        f"\ncross entropy on {report.bytes_scored:,} held-out bytes: {report.ce_start:.3f} before, "
        f"{report.ce_end:.3f} after (order-1 byte model {report.ce_order1:.3f}) nats/byte\n"
        f"{report.rounds} rounds, {report.averaged_rounds} averages, {report.bytes_sent:,} bytes "
        f"sent, {report.peers} volunteers, {report.seconds:.0f} s, "
        f"{report.leftovers} processes left\nreport: {path}"
    )


if __name__ == "__main__":
    sys.exit(run_app(app, "demo"))
