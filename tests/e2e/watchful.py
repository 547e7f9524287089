"""The programs with short pauses between their looks at themselves: `watchful.py node join ...`.

A rebuilt program runs this file again, so that its pauses are short as well.
"""

from __future__ import annotations

import runpy
import sys

from bt_p2p.protocol import limits

limits.DHT_TIMEOUT_S = 5.0
limits.HEALTH_PERIOD_S = 0.5
limits.HEALTH_TIMEOUT_S = 3.0
limits.NEIGHBOURS_PERIOD_S = 0.5
limits.ISOLATED_AFTER_S = 2.0
limits.ROUTINE_REDIAL_S = 5.0
limits.MIN_REDIAL_S = 0.5

sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
