"""`bt-node doctor`: a dry run of joining, with numbered findings."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from node.log_setup import set_up_logging
from node.state_dir import StateDir
from node.tui.terminal import make_console


def run_doctor(
    *,
    initial_peers: Sequence[str],
    run: str | None,
    manifest: Path | None,
    block: int | None,
    span: str | None,
    data: Path | None,
    host: str,
    port: int,
    announce: Sequence[str],
    device: str,
    run_token: str | None,
    run_token_file: Path | None,
    quick: bool,
    as_json: bool,
    identity: Path | None,
    state_path: Path,
    debug: bool,
) -> int:
    """Examine this machine and its network; returns the exit code."""
    set_up_logging(is_debugging=debug)
    errors = make_console(stderr=True)
    with errors.status("loading torch and hivemind takes a few seconds") as status:
        from node.doctor.examination import examine
        from node.doctor.finding import exit_code
        from node.doctor.options import DoctorOptions, readable_token, well_formed, well_formed_span
        from node.doctor.report import document_of, text_of

        addresses, announced, malformed = well_formed(initial_peers, announce, host)
        blocks, malformed_span = well_formed_span(span)
        token, no_token = readable_token(run_token, run_token_file)
        state = StateDir(state_path)
        findings, plan = examine(
            DoctorOptions(
                initial_peers=addresses,
                state_dir=state,
                identity_path=identity or state.identity_path,
                manifest_path=manifest,
                run=run,
                block=block,
                span=blocks,
                data=data,
                host=host,
                port=port,
                announce=announced,
                device=device,
                run_token=token,
            ),
            status.update,
            is_quick=quick,
        )
        findings = [*malformed, *malformed_span, *no_token, *findings]
    text = json.dumps(document_of(findings, plan)) + "\n" if as_json else text_of(findings)
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, errors="replace").decode(encoding))
    sys.stdout.flush()
    return exit_code(findings)
