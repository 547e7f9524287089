"""How this node stands in the network, told in plain words."""

from __future__ import annotations

from dataclasses import dataclass

from bt_p2p.swarm.dial_back import Reachability, fix_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """How this node stands in the network, for its record."""

    reachable: str
    """yes, no, relayed or unknown."""
    detail: str
    """In plain words: where, or why not and what to do."""


def standing_of(found: Reachability, *, port: int) -> Standing:
    """What to tell of a node that listens."""
    match found.verdict:
        case "yes":
            return Standing(reachable="yes", detail=f"others reach it at {', '.join(found.works)}")
        case "unknown":
            return Standing(reachable="unknown", detail="no other peer could tell yet")
        case "elsewhere":
            return Standing(
                reachable="no",
                detail=f"others reach it at {found.works[0]} only, which it does not announce; "
                f"{fix_of(found, port)}",
            )
        case "no":
            return Standing(
                reachable="no", detail=f"{'; '.join(found.reasons)}; {fix_of(found, port)}"
            )
