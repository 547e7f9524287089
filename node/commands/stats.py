"""`bt-node stats`: what this computer has given, and how its joins went."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

from pydantic import ValidationError

from bt_p2p.errors import ConfigError
from node import exit_codes
from node.log_setup import set_up_logging
from node.receipts import RECEIPTS_NAME, Receipt, Receipts, read_receipts
from node.tui.format import format_bytes, format_count, format_duration, plain, plural
from node.tui.terminal import is_ascii


def show_stats(*, as_json: bool, state_path: Path, debug: bool) -> int:
    """Print the receipts of a state folder; returns the exit code.

    Raises:
        ConfigError: they cannot be read.
    """
    set_up_logging(is_debugging=debug)
    try:
        receipts = read_receipts(state_path)
    except (OSError, ValidationError) as exc:
        raise ConfigError(
            f"{state_path / RECEIPTS_NAME} cannot be read; a node that starts there moves it aside "
            f"and begins anew: {exc}"
        ) from exc
    if as_json:
        text = json.dumps(receipts.model_dump(mode="json")) + "\n"
    else:
        text = plain_lines(receipts, state_path)
    sys.stdout.write(text)
    sys.stdout.flush()
    return exit_codes.OK


def plain_lines(receipts: Receipts, state_path: Path) -> str:
    """The same as text."""
    lines: list[str] = []
    for run_id, receipt in receipts.runs.items():
        lines += _run_lines(run_id, receipt)
    if not receipts.runs:
        lines.append(f"nothing was given from {state_path} yet; begin with: bt-node join")
    if receipts.joins_tried:
        lines.append(_joins_words(receipts))
    ascii_only = is_ascii(sys.stdout)
    return "".join(f"{plain(line, ascii_only=ascii_only)}\n" for line in lines)


def _run_lines(run_id: str, receipt: Receipt) -> list[str]:
    first = receipt.first_contributions_s
    lines = [
        f"run {run_id}",
        f"  {plural(receipt.rounds, 'round')}, {receipt.rounds_averaged} of them averaged with "
        f"others; {receipt.trained_s / 3600:.2f} hours in {plural(receipt.num_starts, 'start')}",
        f"  {format_count(receipt.samples)} samples, {format_bytes(receipt.bytes_trained)} of text",
        f"  {format_bytes(receipt.bytes_sent)} sent, {format_bytes(receipt.bytes_received)} received",
    ]
    if first:
        lines.append(
            f"  first accepted contribution after {format_duration(first[-1])}"
            + (
                f", in the median of {len(first)} starts {format_duration(statistics.median(first))}"
                if len(first) > 1
                else ""
            )
        )
    return lines


def _joins_words(receipts: Receipts) -> str:
    failures = ", ".join(f"{cause} {num}" for cause, num in receipts.join_failures.items())
    num_failed = sum(receipts.join_failures.values())
    return (
        f"joins: {receipts.joins_tried} tried, {receipts.joins_trained} came to train, "
        f"{num_failed} failed" + (f" ({failures})" if failures else "")
    )
