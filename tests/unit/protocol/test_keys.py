"""bt_p2p.protocol.keys: two runs never share a key."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bt_p2p.protocol.keys import RUNS_KEY, averaging_prefix, block_key, joining_key
from bt_p2p.protocol.manifest import RunManifest

NAMES = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?", fullmatch=True)
NAMES_THAT_COULD_CLASH = st.sampled_from(["a", "a-b", "a-b1", "b1", "block-1", "joining", "a-joi"])


def keys_of(manifest: RunManifest) -> list[str]:
    """Every key one run uses."""
    blocks = range(12)
    return [
        RUNS_KEY,
        joining_key(manifest.run_id),
        *(block_key(manifest.run_id, block) for block in blocks),
        *(averaging_prefix(manifest.run_id, block) for block in blocks),
    ]


@settings(max_examples=50)
@given(NAMES | NAMES_THAT_COULD_CLASH, NAMES | NAMES_THAT_COULD_CLASH, st.integers(0, 3))
def test_keys_of_different_runs_never_clash(name: str, other_name: str, seed: int) -> None:
    """Nor do the keys of one run; only the list of runs is common to all."""
    run, other = RunManifest(name=name, seed=seed), RunManifest(name=other_name, seed=4)
    assert len(keys_of(run)) == len(set(keys_of(run)))
    assert {RUNS_KEY} == set(keys_of(run)) & set(keys_of(other))


@given(NAMES, st.integers(0, 255))
def test_averaging_prefixes_have_no_dot(name: str, block: int) -> None:
    """hivemind splits its keys at dots."""
    assert "." not in averaging_prefix(RunManifest(name=name).run_id, block)
