"""Whether a port may be listened on: others that listen are found, what lingers is not in the way."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from bt_p2p.errors import ConfigError
from bt_p2p.swarm.listen import check_port_is_free


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Somebody who would share the port with everybody."""
    with socket.socket() as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "SO_REUSEPORT"):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        found.bind(("127.0.0.1", 0))
        found.listen(1)
        yield found


def test_a_port_on_which_somebody_listens_is_refused(listener: socket.socket) -> None:
    """Even where both would be allowed to share it."""
    port = listener.getsockname()[1]
    with pytest.raises(ConfigError, match=f"port {port} is in use by process"):
        check_port_is_free("127.0.0.1", port)


def test_connections_that_linger_on_a_port_are_not_in_the_way(listener: socket.socket) -> None:
    """A node that is started again at once keeps its port."""
    port = listener.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)) as client:
        accepted, _ = listener.accept()
        listener.close()
        accepted.close()  # whoever closes first lingers: here the node that has ended
        assert b"" == client.recv(1)
    check_port_is_free("127.0.0.1", port)
