"""Real peers for the hivemind half of the contract tests: started once, when first asked for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def hivemind_peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list]:
    """Three peers that know each other."""
    from tests.swarm.local_peers import local_swarm

    with local_swarm(tmp_path_factory.mktemp("peers"), 3) as peers:
        yield peers
