"""The ordinary baseline: all layers train together as one block.

The manifest guarantees that such a run has a single block, so its local loss is the loss of the
whole model and nothing differs from `plain` but the name.
"""

from __future__ import annotations

from bt_p2p.objective.plain import PlainObjective


class EndToEndObjective(PlainObjective):
    """Next-byte cross entropy of the whole model."""

    name = "end_to_end"
