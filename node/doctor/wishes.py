"""What the user asks of a run: which blocks, with which copy of its text, and by which token."""

from __future__ import annotations

import os
from pathlib import Path

from bt_p2p.corpus.corpus import load_corpus, require_context
from bt_p2p.errors import ConfigError
from bt_p2p.protocol.assignment import check_block, check_span
from bt_p2p.protocol.identity import PeerIdentity, short_peer_id
from bt_p2p.protocol.limits import TOKEN_WARNING_S
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.protocol.membership import membership_expires_at_s
from node.doctor.finding import Finding, finding_of, problem_of
from node.doctor.options import DoctorOptions
from node.membership import own_membership
from node.tui.format import format_duration

_TEXT = "text"
_TOKEN = "run token"  # noqa: S105 - a check


def look_at_wishes(manifest: RunManifest, options: DoctorOptions, *, now_s: float) -> list[Finding]:
    """Whether the run can give what was asked for; nothing is downloaded."""
    found = []
    if options.block is not None or options.span is not None:
        found.append(blocks(manifest, options.block, options.span))
    if options.data is not None or manifest.corpus.kind == "text":
        found.append(text(manifest, options.data, cache_dir=options.state_dir.cache_dir))
    if options.run_token is not None or manifest.owner:
        peer_id = _peer_id(options.identity_path)
        found.append(run_token(manifest, peer_id, options.run_token, now_s=now_s))
    return found


def blocks(manifest: RunManifest, block: int | None, span: range | None) -> Finding:
    """Whether the run has the blocks."""
    num_blocks = manifest.model.num_blocks

    def check() -> None:
        if block is not None:
            check_block(block, num_blocks)
        if span is not None:
            check_span(span, block, num_blocks)

    served = "" if span is None else f", serves blocks {span.start} to {span.stop - 1}"
    trained = "trains the thinnest block" if block is None else f"trains block {block}"
    return finding_of("blocks", "block-unknown", f"{trained} of {num_blocks}{served}", check)


def is_there(data: Path) -> Finding:
    """Whether a copy of a text can be read, where the run is not known."""
    if not data.exists() or not os.access(data, os.R_OK):
        return Finding(
            check=_TEXT,
            severity="problem",
            code="text-unusable",
            text=f"data {data} does not exist or cannot be read",
            fix="check the path and its permissions",
        )
    told = f"{data} can be read; whether it is the run's text shows when the run is known"
    return Finding(check=_TEXT, severity="ok", text=told)


def text(manifest: RunManifest, data: Path | None, *, cache_dir: Path) -> Finding:
    """Whether the user's copy of the text is the run's, byte for byte, and long enough."""
    if manifest.corpus.kind == "embedded":
        told = f"run {manifest.run_id} trains on text that comes with Python; --data is not used"
        return Finding(check=_TEXT, severity="note", code="text-unused", text=told)

    def check() -> None:
        corpus = load_corpus(manifest.corpus, data=data, cache_dir=cache_dir)
        require_context(corpus, manifest.model.context)

    is_fine = f"{data} is the run's text, {manifest.corpus.size_bytes:,} bytes"
    return finding_of(_TEXT, "text-unusable", is_fine, check)


def run_token(
    manifest: RunManifest, peer_id: str | None, token: str | None, *, now_s: float
) -> Finding:
    """Whether the node may hold blocks of the run, and for how long.

    Args:
        manifest: of the run.
        peer_id: who the node is; None if it has no key yet.
        token: what the user gave.
        now_s: DHT time.
    """
    if not manifest.owner:
        told = f"run {manifest.run_id} is open: everybody may join, and a token is not used"
        return Finding(check=_TOKEN, severity="note", code="run-token-unused", text=told)
    if peer_id is None:
        return Finding(
            check=_TOKEN,
            severity="problem",
            code="run-token-unfit",
            text=f"run {manifest.run_id} is closed, and this node has no key that a token can be for",
            fix="run bt-node join once: it makes a key, and says what to ask the run's owner for",
        )
    try:
        membership = own_membership(manifest, peer_id, token, now_s=now_s)
    except ConfigError as exc:
        return problem_of(_TOKEN, "run-token-unfit", exc)
    assert membership is not None
    left_s = membership_expires_at_s(membership) - now_s
    if left_s > TOKEN_WARNING_S:
        told = f"it lets peer {short_peer_id(peer_id)} in for {format_duration(left_s)}"
        return Finding(check=_TOKEN, severity="ok", text=told)
    return Finding(
        check=_TOKEN,
        severity="warning",
        code="run-token-expires-soon",
        text=f"it expires in {format_duration(left_s)}",
        fix="ask the owner of the run for a new one",
    )


def _peer_id(identity_path: Path) -> str | None:
    """None if there is no key, or none that can be used; another check says why."""
    try:
        return PeerIdentity.load(identity_path).peer_id
    except ConfigError:
        return None
