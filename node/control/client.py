"""The commands' end of the control socket."""

from __future__ import annotations

import socket
from pathlib import Path

from pydantic import ValidationError

from bt_p2p.errors import BtError
from node.control.messages import ANSWER_TIMEOUT_S, MAX_LINE_BYTES, Answer, Request
from node.control.socket import short_path
from node.snapshot import read_snapshot


class NodeNotReachedError(BtError):
    """No node takes commands in a state folder, or it did not do what was asked."""


def ask_node(state_dir: Path, request: Request) -> Answer:
    """Have the node that runs with a state folder do something.

    Raises:
        NodeNotReachedError: no node runs there, it does not answer, or it refuses.
    """
    try:
        line = _exchange(state_dir, request.model_dump_json().encode() + b"\n")
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError) as exc:
        snapshot = read_snapshot(state_dir)
        if snapshot is None:
            raise NodeNotReachedError(
                f"no node runs with state folder {state_dir}; start one with bt-node join, or name "
                f"its folder with --state-dir"
            ) from exc
        raise NodeNotReachedError(
            f"the node of process {snapshot.pid} is {snapshot.state} and takes no commands now; try "
            f"again in a few seconds"
        ) from exc
    except PermissionError as exc:
        raise NodeNotReachedError(
            f"the node with state folder {state_dir} obeys its own user only; run this as that user"
        ) from exc
    except OSError as exc:
        raise NodeNotReachedError(
            f"the node with state folder {state_dir} does not answer ({exc}); look at its node.log"
        ) from exc
    try:
        answer = Answer.model_validate_json(line)
    except ValidationError as exc:
        raise NodeNotReachedError(
            f"the node with state folder {state_dir} gave no answer; it obeys its own user only, see "
            f"its node.log"
        ) from exc
    if answer.error:
        raise NodeNotReachedError(f"the node of process {answer.pid} refused: {answer.error}")
    return answer


def _exchange(state_dir: Path, line: bytes) -> bytes:
    """Send a line and read one, up to the cap."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_TIMEOUT_S)
        with short_path(state_dir) as path:
            connection.connect(path)
        connection.sendall(line)
        received = b""
        while not received.endswith(b"\n") and len(received) <= MAX_LINE_BYTES:
            data = connection.recv(MAX_LINE_BYTES)
            if not data:
                break
            received += data
    return received
