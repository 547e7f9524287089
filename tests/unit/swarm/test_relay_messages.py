"""bt_p2p.swarm.relay_messages: the few fields of libp2p's relay messages that we read."""

from __future__ import annotations

import pytest

from bt_p2p.swarm.relay_messages import status_of


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (bytes([0x08, 0x02, 0x28, 0x64]), 100),
        (bytes([0x08, 0x02, 0x28, 0xC8, 0x01]), 200),
        (bytes([0x08, 0x02, 0x1A, 0x03, 0x28, 0x01, 0x02, 0x28, 0x64]), 100),
        (bytes([0x08, 0x02]), 0),
        (b"", 0),
        (bytes([0x28]), 0),
        (bytes([0x28, 0xFF]), 0),
        (bytes([0x2D, 0, 0, 0, 0]), 0),
        (bytes([0x1A, 0x7F]), 0),
    ],
)
def test_only_a_whole_message_has_a_status(message: bytes, expected: int) -> None:
    """HopMessage { type = 1; reservation = 3; status = 5 }; a cut one grants nothing."""
    assert expected == status_of(message)
