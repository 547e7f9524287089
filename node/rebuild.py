"""How a node whose processes are broken becomes whole: the process is replaced by itself.

hivemind's processes can only be forked before there are threads, so they cannot be started anew in
the same program. `exec` of the same command line keeps what others know of the node: process id,
terminal, identity, state folder. What the old program tells the new one is in the environment.

Design: docs/design/0011-supervision.md.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import sys
import threading
import time
from collections.abc import Callable

import psutil
from pydantic import BaseModel, ConfigDict, ValidationError

from bt_p2p.errors import SwarmError
from bt_p2p.protocol.limits import (
    HEALTHY_AFTER_S,
    MAX_REBUILD_S,
    MAX_REBUILDS_IN_A_ROW,
    REBUILD_GRACE_S,
)
from bt_p2p.swarm.temp_folder import remove_temp_folders
from node import exit_codes
from node.stop import StopRequest

logger = logging.getLogger(__name__)

_VARIABLE = "BT_NODE_REBUILD"
_KILL_TIMEOUT_S = 5.0


class Rebuild(BaseModel):
    """What a program is told by the one that it replaces."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    reason: str
    num_in_a_row: int
    """Rebuilds so far, each soon after the one before it."""
    num_total: int
    delay_s: float
    """How long to wait before anything is started."""
    kept: dict[str, str]
    """What the node goes on with, by name."""


def next_rebuild(
    before: Rebuild | None,
    reason: str,
    *,
    ran_s: float,
    kept: dict[str, str],
    chance: random.Random,
) -> Rebuild | None:
    """The rebuild that follows; None when there were too many in a row.

    Args:
        before: the last one; None if there was none.
        reason: what is broken, in plain words.
        ran_s: how long the program has run.
        kept: what the node goes on with.
        chance: spreads the delays of nodes that broke together.
    """
    num_before = 0 if before is None or ran_s >= HEALTHY_AFTER_S else before.num_in_a_row
    if num_before >= MAX_REBUILDS_IN_A_ROW:
        return None
    return Rebuild(
        reason=reason,
        num_in_a_row=num_before + 1,
        num_total=1 + (0 if before is None else before.num_total),
        delay_s=min(MAX_REBUILD_S, 2.0**num_before) * chance.uniform(0.5, 1.0),
        kept=kept,
    )


class Supervisor:
    """Runs a node, and replaces the program by itself when a part of the node is broken.

    Attributes:
        last: why this program is there; None for one that the user has started.
        kept: what the next program is told, by name, beside what this one was told.
    """

    def __init__(self, stop: StopRequest, say: Callable[[str], None]) -> None:
        """Read what the program before this one has left.

        Args:
            stop: ends the node, or asks for its rebuild.
            say: tells the user, and the log.
        """
        self._stop = stop
        self._say = say
        self._started_s = time.monotonic()
        self._is_over = threading.Event()
        self._is_replacing = threading.Lock()
        self.last = _read_environment()
        self.kept: dict[str, str] = {} if self.last is None else dict(self.last.kept)

    def run(self, run: Callable[[], None]) -> int:
        """Run the node to its end, or to its rebuild; returns the exit code.

        Raises:
            SwarmError: too many rebuilds in a row, or a first start failed.
        """
        if self.last is not None:
            self._stop.event.wait(self.last.delay_s)
            if self._stop.is_requested:
                return self._stop.exit_code
        self._stop.on_request(
            lambda: threading.Thread(target=self._watch_the_end, name="end", daemon=True).start()
        )
        try:
            run()
        except SwarmError as exc:
            # who starts a node by hand is told at once; a rebuilt one is nobody's to look after
            if self._stop.signal_number or (self.last is None and not self._stop.rebuild_reason):
                raise
            self._stop.ask_to_rebuild(str(exc))
        finally:
            self._is_over.set()
        if self._stop.rebuild_reason and not self._stop.signal_number:
            self._replace(self._stop.rebuild_reason)
        return self._stop.exit_code

    def _watch_the_end(self) -> None:
        """A node that does not stop in order is replaced as it is; its last checkpoint is good."""
        if self._stop.rebuild_reason and not self._is_over.wait(REBUILD_GRACE_S):
            try:
                self._replace(f"{self._stop.rebuild_reason}; it did not stop in order either")
            except SwarmError as exc:
                self._say(str(exc))
            os._exit(self._stop.exit_code or exit_codes.FAILED)

    def _replace(self, reason: str) -> None:
        """Does not return, unless a signal ends the node."""
        with (
            self._is_replacing
        ):  # the other of the two callers waits here for the end of the program
            following = next_rebuild(
                self.last,
                reason,
                ran_s=time.monotonic() - self._started_s,
                kept=self.kept,
                chance=random.SystemRandom(),
            )
            if following is None:
                _end_children()
                raise SwarmError(
                    f"gave up after {MAX_REBUILDS_IN_A_ROW} rebuilds in a row: {reason}; start the "
                    f"node again once that is cured"
                )
            text = (
                f"{reason}: this node is rebuilt in {following.delay_s:.1f} s (number "
                f"{following.num_in_a_row} of at most {MAX_REBUILDS_IN_A_ROW} in a row)"
            )
            self._say(text)
            _end_children()
            remove_temp_folders(os.getpid())
            if self._stop.signal_number:  # meanwhile
                return
            os.environ[_VARIABLE] = following.model_dump_json()
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - ourselves


def _read_environment() -> Rebuild | None:
    """Taken out, so that no program started from here reads it."""
    text = os.environ.pop(_VARIABLE, None)
    if text is None:
        return None
    try:
        return Rebuild.model_validate_json(text)
    except ValidationError as exc:
        logger.warning("%s is ignored: %s", _VARIABLE, exc)
        return None


def _end_children() -> None:
    """Kill what is left below this process: as its id stays, it would not notice by itself."""
    children = psutil.Process().children(recursive=True)
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(children, timeout=_KILL_TIMEOUT_S)
