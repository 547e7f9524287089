"""Whose clock is wrong: a vote in which every clock counts once, ours too."""

from __future__ import annotations

from collections.abc import Sequence

from bt_p2p.protocol.limits import MAX_CLOCK_LEAD_S


def clock_problem(leads_s: Sequence[float]) -> str:
    """What is wrong with this computer's clock, in plain words; empty if nothing.

    The median of all clocks is right, so a minority of wrong ones changes nothing for the others.
    Between two halves, or two peers, nobody can tell, and both are told.

    Args:
        leads_s: by how much the clocks of peers are ahead of ours; may be empty.
    """
    clocks = sorted([0.0, *leads_s])
    middle = len(clocks) // 2
    candidates = clocks[middle - 1 : middle + 1] if len(clocks) % 2 == 0 else [clocks[middle]]
    lead_s = max(candidates, key=abs)
    if abs(lead_s) <= MAX_CLOCK_LEAD_S:
        return ""
    direction = "behind" if lead_s > 0 else "ahead of"
    if min(candidates, key=abs) == lead_s or abs(min(candidates, key=abs)) > MAX_CLOCK_LEAD_S:
        whose = f"the swarm ({len(leads_s)} peers asked)"
    elif len(leads_s) == 1:
        whose = "that of the only peer asked, and one of the two is wrong"
    else:
        whose = f"those of half of the {len(leads_s)} peers asked, and one half is wrong"
    return (
        f"your clock is {abs(lead_s):.0f} s {direction} {whose}; rounds are by the clock: turn on "
        f"time synchronisation"
    )
