"""Chunks of a download kept on the disk, so that a node that was stopped goes on where it was.

    block-<b>.<start of the offer's id>.part

Nothing says which chunks are there: each is compared with its hash when the file is opened again.
"""

from __future__ import annotations

import logging
from pathlib import Path

from bt_p2p.chain.weights_offer import WeightsOffer

logger = logging.getLogger(__name__)

_ID_CHARS = 16


class PartialFiles:
    """The unfinished downloads of one block; at most one is kept."""

    def __init__(self, folder: Path, block: int) -> None:
        """Name the folder, which may be missing."""
        self._folder = folder
        self._block = block

    def has(self, offer: WeightsOffer) -> bool:
        """Whether something of an offer may be there."""
        return self._path(offer).exists()

    def open(self, offer: WeightsOffer, data: bytearray) -> set[int]:
        """Begin or go on with the download of an offer; others are removed.

        Args:
            offer: what is downloaded.
            data: of its size; chunks that are there are read into it.

        Returns:
            The chunks that are there.
        """
        path = self._path(offer)
        self.clear(but=path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            kept = path.read_bytes()[: offer.size_bytes]
        except OSError as exc:
            logger.warning("an unfinished download cannot be kept in %s: %s", path, exc)
            return set()
        there = set()
        for index in range(offer.num_chunks):
            part = offer.chunk_slice(index)
            chunk = kept[part]
            if offer.holds(index, chunk):
                data[part] = chunk
                there.add(index)
        return there

    def write(self, offer: WeightsOffer, index: int, chunk: bytes) -> None:
        """Keep a chunk; a disk that is full is logged, and the download goes on without."""
        try:
            with self._path(offer).open("r+b") as file:
                file.seek(offer.chunk_slice(index).start)
                file.write(chunk)
        except FileNotFoundError:
            logger.debug("chunk %d came after the download had ended", index)
        except OSError as exc:
            logger.warning("chunk %d of a download cannot be kept: %s", index, exc)

    def clear(self, *, but: Path | None = None) -> None:
        """Remove what is kept."""
        for path in self._folder.glob(f"block-{self._block}.*.part"):
            if path != but:
                try:
                    path.unlink(missing_ok=True)
                except OSError as exc:
                    logger.warning("cannot remove %s: %s", path, exc)

    def _path(self, offer: WeightsOffer) -> Path:
        name = offer.offer_id.hex()[:_ID_CHARS]
        return self._folder / f"block-{self._block}.{name}.part"
