"""How a user founds a closed run, lets a peer in, and how the node looks at what it was given."""

from __future__ import annotations

from pathlib import Path

import pytest

from bt_p2p.errors import ConfigError
from bt_p2p.protocol.membership import membership_of
from bt_p2p.testing.clock import START_S, ManualClock
from bt_p2p.testing.tiny import tiny_identity, tiny_manifest
from node.commands.token import issue_token
from node.membership import own_membership, read_token

OWNER, PEER = tiny_identity(1), tiny_identity(2).peer_id
OPEN = tiny_manifest()
CLOSED = OPEN.model_copy(update={"owner": OWNER.peer_id})
DAY_S = 86400.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The owner's key and both manifests."""
    OWNER.save(tmp_path / "owner.key")
    tiny_identity(9).save(tmp_path / "other.key")
    (tmp_path / "closed.json").write_bytes(CLOSED.canonical_bytes())
    (tmp_path / "open.json").write_bytes(OPEN.canonical_bytes())
    return tmp_path


def issue(folder: Path, *, key="owner.key", manifest="closed.json", peer=PEER) -> None:
    """As the owner does."""
    issue_token(
        owner_key=folder / key,
        manifest=folder / manifest,
        peer=peer,
        days=3,
        clock=ManualClock(),
    )


def test_an_issued_token_lets_the_peer_in_for_its_days(folder: Path, capsys) -> None:
    """The token alone is on stdout, ready for a file."""
    issue(folder)
    printed = capsys.readouterr()
    (folder / "token.txt").write_text(printed.out)
    token = read_token(None, folder / "token.txt")

    assert "in run tiny-" in printed.err
    assert membership_of(token) == own_membership(CLOSED, PEER, token, now_s=START_S + 2.9 * DAY_S)
    with pytest.raises(ConfigError, match=rf"has expired .* a token for peer {PEER}"):
        own_membership(CLOSED, PEER, token, now_s=START_S + 3.1 * DAY_S)
    with pytest.raises(ConfigError, match="not signed for peer"):
        own_membership(CLOSED, tiny_identity(3).peer_id, token, now_s=START_S)


def test_a_closed_run_asks_for_a_token_and_an_open_one_does_not() -> None:
    """The user is told whom to ask, and for which peer id."""
    with pytest.raises(ConfigError, match=f"is closed; ask the owner .* for peer {PEER}"):
        own_membership(CLOSED, PEER, None, now_s=START_S)
    with pytest.raises(ConfigError, match="is not a run token"):
        own_membership(CLOSED, PEER, "?", now_s=START_S)
    assert own_membership(OPEN, PEER, None, now_s=START_S) is None
    assert own_membership(OPEN, PEER, "left over", now_s=START_S) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"manifest": "open.json"}, "is open: everybody may join"),
        ({"key": "other.key"}, "but run tiny-.* belongs to"),
        ({"key": "none.key"}, "cannot be read"),
        ({"peer": "x"}, "is not a peer id"),
    ],
)
def test_a_token_that_would_not_work_is_not_issued(folder: Path, changes, message) -> None:
    """Better now than at the volunteer's."""
    with pytest.raises(ConfigError, match=message):
        issue(folder, **changes)


def test_a_token_is_given_once(folder: Path) -> None:
    """In a file that can be read."""
    with pytest.raises(ConfigError, match="given twice"):
        read_token("a", folder / "token.txt")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_token(None, folder / "missing.txt")
