"""The upload cap of a node: one for all bytes that its processes write to streams of other peers.

Averages leave from the averager's process, snapshots and answers from the node's own. They share one
bucket and one count of the day, in a file that is mapped by both. The lock on it is of the kind that the
system drops when a process dies, since a node outlives a killed averager.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import threading
import weakref
from collections.abc import Iterator

from bt_p2p.clock import Clock
from bt_p2p.errors import BusyError
from bt_p2p.swarm.token_bucket import TokenBucket

_STATE = struct.Struct("<dq")
"""Until when all bytes are paid for, and the bytes counted."""


_threads = threading.Lock()
"""A process that is forked while another thread holds it would wait for ever, so forks wait for it."""
os.register_at_fork(
    before=_threads.acquire, after_in_parent=_threads.release, after_in_child=_threads.release
)


class UploadCap:
    """Paces and counts bytes that leave; make it before the processes that share it are forked."""

    def __init__(
        self, clock: Clock, *, bytes_per_s: float | None = None, max_bytes: int | None = None
    ) -> None:
        """Count from zero.

        Args:
            clock: its monotonic time is the same in all processes of a machine.
            bytes_per_s: the rate; None paces nothing.
            max_bytes: after so many counted bytes nothing new is begun; None is no limit.
        """
        self.bucket = None if bytes_per_s is None else TokenBucket(bytes_per_s=bytes_per_s)
        self.max_bytes = max_bytes
        self._clock = clock
        self._file = os.memfd_create("upload")
        weakref.finalize(self, os.close, self._file)
        os.ftruncate(self._file, _STATE.size)
        self._state = mmap.mmap(self._file, _STATE.size)
        _STATE.pack_into(self._state, 0, float("-inf"), 0)

    @property
    def sent_bytes(self) -> int:
        """Bytes counted by all processes since the count was set."""
        with self._locked():
            return int(_STATE.unpack_from(self._state)[1])

    @property
    def is_used_up(self) -> bool:
        """Whether nothing new may be begun."""
        return self.max_bytes is not None and self.sent_bytes >= self.max_bytes

    def set_sent_bytes(self, size_bytes: int) -> None:
        """Go on counting from here: what a day began with, or zero at midnight."""
        with self._locked():
            paid_until_s, _ = _STATE.unpack_from(self._state)
            _STATE.pack_into(self._state, 0, paid_until_s, size_bytes)

    def take(self, size_bytes: int) -> float:
        """Count a piece that is to leave; returns the seconds to wait before it does."""
        with self._locked():
            paid_until_s, sent_bytes = _STATE.unpack_from(self._state)
            wait_s = 0.0
            if self.bucket is not None:
                now_s = self._clock.monotonic_s()
                paid_until_s, wait_s = self.bucket.take(paid_until_s, size_bytes, now_s=now_s)
            _STATE.pack_into(self._state, 0, paid_until_s, sent_bytes + size_bytes)
        return wait_s

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with _threads:
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN)


_current: UploadCap | None = None
"""One for the process, since hivemind's streams belong to no object of ours."""


def limit_upload(cap: UploadCap | None) -> None:
    """From now on this process, and those forked later, write to streams within a cap; None lifts it."""
    global _current
    _current = cap


def refuse_if_used_up() -> None:
    """Begin nothing new for others once the day's upload is used up.

    Raises:
        BusyError: it is.
    """
    if _current is not None and _current.is_used_up:
        raise BusyError("busy: this holder has used up its upload of the day; ask another holder")


def pieces(message: bytes | memoryview) -> Iterator[memoryview]:
    """A message in the pieces in which it leaves; whole if nothing is paced."""
    view = memoryview(message)
    bucket = None if _current is None else _current.bucket
    size_bytes = max(1, len(view)) if bucket is None else bucket.piece_bytes
    for offset in range(0, len(view), size_bytes):
        yield view[offset : offset + size_bytes]


def upload_wait_s(size_bytes: int) -> float:
    """Count a piece that is to leave; returns the seconds to wait before it does."""
    return 0.0 if _current is None else _current.take(size_bytes)
