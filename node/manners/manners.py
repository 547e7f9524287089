"""The manners of a node that runs: what holds now, from the user's rules, wishes and the machine."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import tzinfo
from pathlib import Path

from bt_p2p.clock import Clock
from bt_p2p.swarm.upload import UploadCap
from node.manners.decision import Facts, Pause, decide, local_time
from node.manners.machine import IdleWatch, LoadOfOthers, is_on_battery, tree_memory_bytes
from node.manners.settings import Settings
from node.manners.wishes import read_wishes, write_wishes
from node.repeated_task import RepeatedTask

logger = logging.getLogger(__name__)

_LOOK_S = 1.0
"""Hours and the end of a snooze are noticed within this time."""
_MACHINE_S = 5.0
"""Battery, load and memory change slowly, and asking costs some CPU."""
_KEEP_UPLOAD_S = 10.0
"""What a node that is killed has sent since is not counted."""
_MIB = 2**20


class Manners:
    """May this node train now? Safe to ask and to change from any thread.

    Attributes:
        settings: the user's rules.
    """

    def __init__(
        self,
        settings: Settings,
        state_dir: Path,
        clock: Clock,
        *,
        upload: UploadCap | None = None,
        zone: tzinfo | None = None,
    ) -> None:
        """Go on with what was asked for before; the machine is looked at from `start` on.

        Args:
            settings: the user's rules.
            state_dir: where wishes are kept.
            clock: wall clock, and one for periods.
            upload: counts what leaves; None if there is no cap.
            zone: of the user's hours; None is the machine's own.
        """
        self.settings = settings
        self._state_dir = state_dir
        self._clock = clock
        self._upload = upload
        self._zone = zone
        self._lock = threading.RLock()
        self._callbacks: list[Callable[[], None]] = []
        self._load = LoadOfOthers()
        self._idle = IdleWatch(max_load=settings.idle_load, after_s=settings.idle_after_s)
        self._is_idle = not settings.idle_only
        self._is_on_battery = False
        self._machine_at_s = float("-inf")
        self._kept_at_s = float("-inf")
        self._wishes = read_wishes(state_dir)
        if upload is not None and self._wishes.upload_day == self._today():
            upload.set_sent_bytes(self._wishes.uploaded_bytes)
        self._pause: Pause | None = None
        self.memory_problem = ""
        """That the memory cap is exceeded, in words."""
        self._task = RepeatedTask("manners", self.look, period_s=_LOOK_S)
        self.look()

    @property
    def pause(self) -> Pause | None:
        """Why the node may not train; None if it may."""
        with self._lock:
            return self._pause

    @property
    def is_paused(self) -> bool:
        """Whether the node may not train."""
        return self.pause is not None

    @property
    def is_finishing(self) -> bool:
        """Whether the node is to leave after its round."""
        with self._lock:
            return self._wishes.is_finishing

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call this whenever something of the above has changed, from whichever thread found out."""
        self._callbacks.append(callback)

    def start(self) -> None:
        """Look at clock and machine from now on."""
        self._task.start()

    def stop(self, *, timeout_s: float) -> None:
        """Look no more, and keep the count of the day."""
        self._task.stop(timeout_s=timeout_s)
        with self._lock:
            self._count_upload()
            self._keep()

    def ask(self, **changes: object) -> str:
        """Change wishes, keep them, and obey; returns why they cannot be kept, if so."""
        with self._lock:
            before = self._wishes
            self._wishes = before.model_copy(update=changes)
            problem = self._keep()
            is_changed = self._decide() or before != self._wishes
        if is_changed:
            self._tell()
        return problem

    def look(self) -> None:
        """See what holds now."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            memory_problem = self.memory_problem
            if now_s - self._machine_at_s >= _MACHINE_S:
                self._machine_at_s = now_s
                self._look_at_machine(now_s)
            self._count_upload()
            if self._upload is not None and now_s - self._kept_at_s >= _KEEP_UPLOAD_S:
                self._kept_at_s = now_s
                self._keep()
            is_changed = self._decide() or memory_problem != self.memory_problem
        if is_changed:
            self._tell()

    def _look_at_machine(self, now_s: float) -> None:
        self._is_on_battery = is_on_battery()
        if self.settings.idle_only:
            self._is_idle = self._idle.see(self._load.look(), now_s=now_s)
        cap = self.settings.memory_bytes
        if cap is not None:
            used = tree_memory_bytes()
            self.memory_problem = (
                f"{used // _MIB} MiB are in use, over the cap of {cap // _MIB} MiB; join a run with "
                f"smaller blocks, or raise memory_bytes"
                if used > cap
                else ""
            )

    def _count_upload(self) -> None:
        if self._upload is None:
            return
        today = self._today()
        if self._wishes.upload_day not in {"", today}:
            self._upload.set_sent_bytes(0)
        self._wishes = self._wishes.model_copy(
            update={"upload_day": today, "uploaded_bytes": self._upload.sent_bytes}
        )

    def _decide(self) -> bool:
        """Whether what holds is not what held before."""
        before = self._pause
        self._pause = decide(
            self.settings,
            self._wishes,
            Facts(
                now_s=self._clock.now_s(),
                is_on_battery=self._is_on_battery,
                is_idle=self._is_idle,
                uploaded_bytes=self._wishes.uploaded_bytes,
                zone=self._zone,
            ),
        )
        return self._pause != before

    def _keep(self) -> str:
        try:
            write_wishes(self._state_dir, self._wishes)
        except OSError as exc:
            logger.warning("manners cannot be kept in %s: %s", self._state_dir, exc)
            return f"obeyed, but a restart will not know of it: {self._state_dir} cannot be written"
        return ""

    def _tell(self) -> None:
        for callback in self._callbacks:
            callback()

    def _today(self) -> str:
        return local_time(self._clock.now_s(), self._zone).date().isoformat()
