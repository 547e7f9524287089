"""The folders of sockets go when their process ends, at whatever moment that is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bt_p2p.swarm.temp_folder import make_temp_folder

_END_RIGHT_AFTER_IT_IS_MADE = """
import tempfile
make = tempfile.mkdtemp
def make_and_end(**kwargs):
    make(**kwargs)
    raise SystemExit(3)  # as the handler of a signal does while a node starts
tempfile.mkdtemp = make_and_end
"""
_MAKE = "from bt_p2p.swarm.temp_folder import make_temp_folder; make_temp_folder()"
_KEEP = """
from bt_p2p.swarm.temp_folder import keep_shared_memory_sockets_here
keep_shared_memory_sockets_here()
"""


@pytest.mark.parametrize(
    ("program", "exit_code"),
    [
        (f"{_MAKE}; make_temp_folder(); raise SystemExit(3)", 3),
        (_END_RIGHT_AFTER_IT_IS_MADE + _MAKE, 3),
        (_END_RIGHT_AFTER_IT_IS_MADE + _KEEP, 3),
        (_KEEP, 0),
    ],
)
def test_a_process_that_ends_leaves_no_folder(tmp_path: Path, program: str, exit_code: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        timeout=60,
        check=False,
    )

    assert (exit_code, []) == (ended.returncode, list(tmp_path.iterdir()))


def test_the_folder_of_a_killed_process_goes_with_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = f"{_MAKE}; import os; os.kill(os.getpid(), 9)"
    subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        timeout=60,
        check=False,
    )
    [left] = tmp_path.iterdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    folder = make_temp_folder()

    assert [folder] == list(tmp_path.iterdir())
    assert left != folder
