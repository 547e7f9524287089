"""The wheel, installed in a clean environment outside of the source tree, has all that is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def test_the_wheel_works_in_a_clean_environment() -> None:
    """Built from the sdist; dependencies are those of the tests. `make wheel-check` fetches them."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.wheel_check", "--borrow"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=200,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        check=False,
    )

    assert 0 == done.returncode, done.stdout + done.stderr
    assert "modules imported, 0 not" in done.stdout
