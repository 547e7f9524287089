"""A closed run, as its owner founds it and a volunteer enters it."""

from __future__ import annotations

import re

import pytest

from tests.e2e.conftest import Programs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


def test_a_volunteer_enters_with_the_token_that_the_owner_issued(programs: Programs) -> None:
    """Without one it is told for which peer to ask, before it enters any swarm."""
    founded = programs.run(
        "node", "init", "--name", "closed", "--owner-key", "owner.key", "--output", "closed.json",
        "--blocks", "1", "--layers", "1", "--width", "32", "--heads", "2", "--context", "64",
        "--round-s", "2", "--batch-size", "8",
    )  # fmt: skip
    assert 0 == founded.returncode, founded.stderr
    assert "made owner.key: back it up" in founded.stderr
    join = ("node", "join", "--manifest", "closed.json", "--host", "127.0.0.1", "--threads", "1")

    refused = programs.run(*join)
    found = re.search(r"is closed; ask the owner .* for peer (\w+)", refused.stderr)
    assert found, refused.stderr
    assert 2 == refused.returncode

    issued = programs.run(
        "node", "token", "issue", found[1], "--owner-key", "owner.key", "--manifest", "closed.json"
    )
    assert 0 == issued.returncode, issued.stderr
    (programs.folder / "token.txt").write_text(issued.stdout)

    joined = programs.run(*join, "--run-token-file", "token.txt", "--max-rounds", "1")
    assert 0 == joined.returncode, joined.stderr
    assert "state saved" in joined.stderr
