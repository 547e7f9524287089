"""node.doctor: what the user asks of a run is held against the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from bt_p2p.corpus.corpus import describe_text
from bt_p2p.protocol.limits import TOKEN_WARNING_S
from bt_p2p.protocol.membership import issue_membership, token_of
from bt_p2p.testing.clock import START_S
from bt_p2p.testing.tiny import tiny_identity, tiny_manifest
from node.doctor import machine, wishes
from node.doctor.options import readable_token, well_formed_span

OWNER, PEER = tiny_identity(1), tiny_identity(2).peer_id
OPEN = tiny_manifest()
"""Three blocks; its text comes with Python."""
CLOSED = OPEN.model_copy(update={"owner": OWNER.peer_id})
BOOKS = b"all the books " * 1000
WITH_TEXT = OPEN.model_copy(update={"corpus": describe_text("text", "books", BOOKS)})


def token(left_s: float, *, peer_id: str = PEER) -> str:
    """As the owner issues it."""
    expires_at_s = int(START_S + left_s)
    return token_of(
        issue_membership(OWNER, run_id=CLOSED.run_id, peer_id=peer_id, expires_at_s=expires_at_s)
    )


@pytest.mark.parametrize(
    ("block", "span", "severity", "part"),
    [
        (2, None, "ok", "trains block 2 of 3"),
        (None, range(3), "ok", "thinnest block of 3, serves blocks 0 to 2"),
        (3, None, "problem", "block 3 is not one of this run's"),
        (None, range(2, 4), "problem", "ends behind"),
        (0, range(1, 3), "problem", "not in span 1:3"),
    ],
)
def test_blocks_that_the_run_does_not_have_are_a_problem(block, span, severity, part) -> None:
    """Or a block outside of the span."""
    found = wishes.blocks(OPEN, block, span)
    assert severity == found.severity
    assert part in found.text


def test_the_text_has_to_be_that_of_the_run(tmp_path: Path) -> None:
    """Byte for byte."""
    path = tmp_path / "books.txt"
    path.write_bytes(BOOKS)
    fine = wishes.text(WITH_TEXT, path, cache_dir=tmp_path)
    assert ("ok", True) == (fine.severity, "14,000 bytes" in fine.text)
    path.write_bytes(BOOKS[1:])
    other = wishes.text(WITH_TEXT, path, cache_dir=tmp_path)
    assert ("problem", "text-unusable") == (other.severity, other.code)
    assert "byte for byte" in other.fix
    for data in (None, tmp_path / "nowhere"):
        assert "problem" == wishes.text(WITH_TEXT, data, cache_dir=tmp_path).severity
    assert "text-unused" == wishes.text(OPEN, path, cache_dir=tmp_path).code


def test_without_a_known_run_the_text_has_to_be_there(tmp_path: Path) -> None:
    """More cannot be told."""
    assert "ok" == wishes.is_there(tmp_path).severity
    assert "text-unusable" == wishes.is_there(tmp_path / "nowhere").code


@pytest.mark.parametrize(
    ("peer_id", "given", "code"),
    [
        (PEER, token(TOKEN_WARNING_S + 60), ""),
        (PEER, token(TOKEN_WARNING_S - 60), "run-token-expires-soon"),
        (PEER, token(-3600), "run-token-unfit"),
        (PEER, token(1e6, peer_id=tiny_identity(3).peer_id), "run-token-unfit"),
        (PEER, "not a token", "run-token-unfit"),
        (PEER, None, "run-token-unfit"),
        (None, token(1e6), "run-token-unfit"),
    ],
)
def test_a_closed_run_needs_a_token_for_this_very_peer(peer_id, given, code) -> None:
    """Which is good now, and not only for some days."""
    found = wishes.run_token(CLOSED, peer_id, given, now_s=START_S)
    assert code == found.code
    assert bool(code) == bool(found.fix)
    assert ("problem" if code == "run-token-unfit" else found.severity) == found.severity


def test_an_open_run_uses_no_token() -> None:
    """Worth knowing, no more."""
    assert "note" == wishes.run_token(OPEN, PEER, token(1e6), now_s=START_S).severity


def test_a_key_that_others_may_read_is_a_warning(tmp_path: Path) -> None:
    """With the command that hides it."""
    path = tmp_path / "identity.key"
    tiny_identity(2).save(path)
    fine = machine.identity(path)
    assert ("ok", True) == (fine.severity, PEER in fine.text)
    path.chmod(0o640)
    found = machine.identity(path)
    assert ("warning", f"chmod 600 {path}") == (found.severity, found.fix)
    path.write_bytes(b"no key")
    assert "identity-unusable" == machine.identity(path).code


def test_malformed_options_are_named_and_left_out(tmp_path: Path) -> None:
    """A span and a token; what is well-formed is kept."""
    assert (range(2), []) == well_formed_span("0:2")
    assert (None, []) == well_formed_span(None)
    assert (None, ["span-malformed"]) == (
        well_formed_span("2")[0],
        [each.code for each in well_formed_span("2")[1]],
    )
    path = tmp_path / "token.txt"
    path.write_text("word")
    assert ("word", []) == readable_token(None, path)
    for given in (("word", path), (None, tmp_path / "nowhere")):
        kept, found = readable_token(*given)
        assert (None, ["run-token-unreadable"]) == (kept, [each.code for each in found])
