"""When the node's checkpoint is written, and what is told when the disk does not take it."""

from __future__ import annotations

import logging
from pathlib import Path

from bt_p2p.clock import Clock
from bt_p2p.errors import CheckpointError
from bt_p2p.model.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from bt_p2p.training.trainer import BlockTrainer
from node.events.event import Saved
from node.reasons.code import ReasonCode
from node.record import NodeRecord
from node.resources import folder_size_bytes, free_bytes, low_disk_words

logger = logging.getLogger(__name__)

SAVE_PERIOD_S = 60.0


class CheckpointSaver:
    """The checkpoint of one block. A full disk is shown and ends nothing: the swarm has copies."""

    def __init__(
        self,
        path: Path,
        record: NodeRecord,
        clock: Clock,
        *,
        state_path: Path,
        checkpoint_bytes: int,
    ) -> None:
        """Nothing is read or written yet.

        Args:
            path: of the checkpoint.
            record: shows the use of the disk, and warnings about it.
            clock: paces the saves.
            state_path: the node's folder, whose size is shown.
            checkpoint_bytes: about what one checkpoint takes.
        """
        self._path = path
        self._record = record
        self._clock = clock
        self._state_path = state_path
        self._checkpoint_bytes = checkpoint_bytes
        self._saved_at_s = clock.monotonic_s()
        self._is_told = False

    def load(self) -> Checkpoint | None:
        """The newest good checkpoint; None when there is none, or none that is good.

        Raises:
            CheckpointError: the disk cannot be read.
        """
        try:
            return load_checkpoint(self._path)
        except CheckpointError as exc:
            logger.warning("%s", exc)
            return load_checkpoint(self._path)  # none, if damaged files were moved aside

    def save_if_due(self, trainer: BlockTrainer) -> None:
        """Save when the last attempt was `SAVE_PERIOD_S` ago."""
        if self._clock.monotonic_s() - self._saved_at_s >= SAVE_PERIOD_S:
            self.save(trainer)

    def save(self, trainer: BlockTrainer) -> bool:
        """Save now; says whether the disk took it. The checkpoint before stays if it did not."""
        self._saved_at_s = self._clock.monotonic_s()
        tensors, facts = trainer.state()
        try:
            save_checkpoint(self._path, tensors, facts)
        except CheckpointError as exc:
            if not self._is_told:
                logger.warning("%s", exc)
            self._is_told = True
            self._record.note(ReasonCode.DISK_FULL, str(exc))
            return False
        self._is_told = False
        self._record.clear(ReasonCode.DISK_FULL)
        block = self._record.snapshot.block
        if block is not None:
            self._record.tell(
                Saved(at_s=self._clock.now_s(), block=block, round=trainer.round_index)
            )
        self.look_at_disk()
        return True

    def look_at_disk(self) -> None:
        """Show what the node takes of the disk, and warn when little is left."""
        try:
            used, free = folder_size_bytes(self._state_path), free_bytes(self._state_path)
        except OSError as exc:
            self._record.note(
                ReasonCode.DISK_UNREADABLE, f"cannot look at {self._state_path}: {exc}"
            )
            return
        self._record.clear(ReasonCode.DISK_UNREADABLE)
        self._record.update(disk_used_bytes=used, disk_free_bytes=free)
        self._record.show(ReasonCode.DISK_LOW, low_disk_words(free, self._checkpoint_bytes))
