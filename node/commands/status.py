"""`bt-node status`: a live dashboard on a terminal, one plain snapshot elsewhere."""

from __future__ import annotations

import functools
import json
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from bt_p2p.clock import SystemClock
from node import exit_codes
from node.log_setup import set_up_logging
from node.snapshot import read_snapshot
from node.state_dir import StateDir
from node.stop import StopRequest
from node.tui.dashboard import run_dashboard
from node.tui.snapshot_text import status_document, status_text
from node.tui.terminal import can_redraw, is_ascii, make_console


def show_status(
    *,
    initial_peers: Sequence[str],
    run: str | None,
    once: bool,
    as_json: bool,
    state_path: Path,
    debug: bool,
) -> int:
    """Show the swarm; returns the exit code.

    Raises:
        ConfigError: there is nobody to ask, or it is not clear which run is meant.
        BootstrapError: nobody answers.
    """
    set_up_logging(is_debugging=debug)
    state = StateDir(state_path)
    console = make_console()
    stop = StopRequest()
    stop.is_starting = True  # signals raise SystemExit wherever it is, so that everything is undone
    stop.listen()
    is_live = can_redraw(console) and not once and not as_json
    errors = make_console(stderr=True)
    with errors.status("asking the swarm (loading hivemind takes a few seconds) ..."):
        from node.client import entry_points, visit

        addresses = entry_points(initial_peers, state)
        here = read_snapshot(state.path)
        visiting = visit(addresses, run=run, run_here=here.run_id if here else None)
        found = visiting.__enter__()
    try:
        commands_peers = [address.text for address in addresses[:1]]
        if is_live:
            ended_by = run_dashboard(
                lambda: (found.overview(), None),
                console=console,
                stop=threading.Event(),
                initial_peers=commands_peers,
                look=functools.partial(read_snapshot, state.path),
            )
            # Ctrl-C is the usual way to end a dashboard
            return exit_codes.OK if ended_by in {0, signal.SIGINT} else 128 + ended_by
        overview, snapshot = found.overview(), read_snapshot(state.path)
        now_s = SystemClock().now_s()
        if as_json:
            text = json.dumps(status_document(overview, snapshot, now_s)) + "\n"
        else:
            text = status_text(
                overview,
                snapshot,
                now_s,
                console.width,
                ascii_only=is_ascii(sys.stdout),
                initial_peers=commands_peers,
            )
        sys.stdout.write(text)
        sys.stdout.flush()
        return exit_codes.OK
    finally:
        visiting.__exit__(None, None, None)
