"""What was fetched before a restart is there after it, and nothing that is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from bt_p2p.chain.weights_offer import make_offer
from bt_p2p.protocol.limits import WEIGHTS_CHUNK_SIZE_BYTES as CHUNK
from node.partial_download import PartialFiles

DATA = b"".join(bytes([index + 1]) * CHUNK for index in range(3)) + b"rest"
OFFER = make_offer(DATA, 5)


def keep(folder: Path, *indices: int) -> PartialFiles:
    """A download of which these chunks have come."""
    partial = PartialFiles(folder, 0)
    partial.open(OFFER, bytearray(OFFER.size_bytes))
    for index in indices:
        partial.write(OFFER, index, DATA[OFFER.chunk_slice(index)])
    return partial


@pytest.mark.parametrize("indices", [(), (0,), (2, 0), (3,), (3, 1, 0, 2)], ids=str)
def test_kept_chunks_are_read_again(tmp_path: Path, indices) -> None:
    """Whichever they are, and nothing else."""
    keep(tmp_path, *indices)
    data = bytearray(OFFER.size_bytes)
    assert set(indices) == PartialFiles(tmp_path, 0).open(OFFER, data)
    for index in range(OFFER.num_chunks):
        part = OFFER.chunk_slice(index)
        assert (bytes(data[part]) == DATA[part]) == (index in indices)


def test_damaged_chunks_are_fetched_again(tmp_path: Path) -> None:
    """A flipped bit, and an end that was never written."""
    keep(tmp_path, 0, 1, 2, 3)
    [path] = tmp_path.iterdir()
    path.write_bytes(DATA[:10] + b"!" + DATA[11:-1])
    assert {1, 2} == PartialFiles(tmp_path, 0).open(OFFER, bytearray(OFFER.size_bytes))


def test_only_the_download_under_way_is_kept(tmp_path: Path) -> None:
    """Of this block; those of others are not touched."""
    keep(tmp_path, 0)
    other_block = PartialFiles(tmp_path, 1)
    other_block.open(OFFER, bytearray(OFFER.size_bytes))
    newer = make_offer(DATA, 6)
    partial = PartialFiles(tmp_path, 0)
    assert set() == partial.open(newer, bytearray(newer.size_bytes))
    assert [False, True] == [partial.has(OFFER), partial.has(newer)]
    partial.clear()
    assert [False, True] == [partial.has(newer), other_block.has(OFFER)]


def test_a_disk_that_cannot_be_written_does_not_stop_a_download(tmp_path: Path) -> None:
    """Nothing is kept, which is logged."""
    (tmp_path / "file").write_bytes(b"")
    partial = PartialFiles(tmp_path / "file", 0)
    assert set() == partial.open(OFFER, bytearray(OFFER.size_bytes))
    partial.write(OFFER, 0, DATA[:CHUNK])
    partial.clear()
    assert not partial.has(OFFER)
