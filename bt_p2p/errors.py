"""Every error the library raises on purpose.

    BtError
    |-- ConfigError (ValueError)      a flag, file or manifest is wrong; exit code 2
    |-- CheckpointError               a checkpoint cannot be read or written
    |-- TrainingError                 local steps are not finite, one after another
    |-- OutOfMemoryError              not even one sequence at a time fits into memory
    |-- ProtocolError                 bytes from a peer break the protocol
    |   |-- WireFormatError           malformed, too large, or of unknown shape
    |   `-- RecordRejectedError       well formed, but expired, unsigned or out of range
    |-- PeerError                     one named peer failed us
    |   |-- PeerTimeoutError          no answer within the deadline
    |   |-- PeerUnreachableError      cannot be dialled
    |   `-- PeerRefusedError          answered with an error of its own
    |       |-- PeerBusyError         has no room for this client now
    |       `-- PeerLostCacheError    no longer keeps what it saw before
    |-- SwarmError                    the swarm as a whole cannot be used
    |   `-- BootstrapError            none of the initial peers could be reached
    |-- AveragingError                a round ended without an average
    |   |-- GroupNotFormedError       nobody else was there in time
    |   |-- AverageRefusedError       the average is whole, but may not be adopted
    |   `-- RoundFailedError          a group formed, but the average is partial
    |       |-- OwnWeightsError       own weights are not finite, so they were not sent
    |       `-- RoundTimeoutError     it was not there at its deadline
    |-- BusyError                     a holder has no room for this client now
    |-- CacheLostError                a holder has given up a client's cache
    `-- ChainError                    no text can be generated
        `-- NoRouteError              some block has no holder

Messages are one line: what failed, with which value or peer, and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


class BtError(Exception):
    """Base of all errors of this project; its text is fit to show to a user."""

    retryable = False

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by state, so that errors survive hivemind's process borders."""
        return (_rebuild, (type(self), self.args, self.__dict__))


def _rebuild(cls: type[BtError], args: tuple[object, ...], state: dict[str, object]) -> BtError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class ConfigError(BtError, ValueError):
    """A flag, a file or a manifest is wrong; the user can correct it."""


class CheckpointError(BtError):
    """A checkpoint cannot be read or written."""


class TrainingError(BtError):
    """Local steps are not finite, one after another."""


class OutOfMemoryError(BtError):
    """Not even one sequence at a time fits into memory."""


class ProtocolError(BtError):
    """Bytes from a peer break the protocol."""


class WireFormatError(ProtocolError):
    """Malformed, too large, or of unknown shape."""


class RecordRejectedError(ProtocolError):
    """Well formed, but expired, unsigned or out of range."""


class PeerError(BtError):
    """One named peer failed us."""

    retryable = True

    def __init__(self, message: str, *, peer_id: str) -> None:
        """Keep the peer's full id beside the message."""
        super().__init__(message)
        self.peer_id = peer_id


class PeerTimeoutError(PeerError, TimeoutError):
    """The peer gave no answer within the deadline."""


class PeerUnreachableError(PeerError):
    """The peer cannot be dialled, or the connection broke."""


class PeerRefusedError(PeerError):
    """The peer answered with an error of its own."""


class PeerBusyError(PeerRefusedError):
    """The peer has no room for us now; ask another, or later."""


class PeerLostCacheError(PeerRefusedError):
    """The peer no longer keeps what it saw in earlier traversals; send it all again."""


class SwarmError(BtError):
    """The swarm as a whole cannot be used."""

    retryable = True


class BootstrapError(SwarmError):
    """None of the initial peers could be reached."""


class AveragingError(BtError):
    """A round ended without an average; the weights are as before it."""

    retryable = True


class GroupNotFormedError(AveragingError):
    """Nobody else was there in time."""


class AverageRefusedError(AveragingError):
    """The average is whole, but this replica keeps its own weights."""


class RoundFailedError(AveragingError):
    """A group formed, but its average is partial, not finite or otherwise refused."""

    def __init__(
        self,
        message: str,
        *,
        blamed: Mapping[str, str] | None = None,
        late: Iterable[str] = (),
    ) -> None:
        """Keep by whom it failed, by full peer ids.

        Args:
            message: what went wrong.
            blamed: what members did that no honest program does.
            late: members whose weights did not come while those of others did.
        """
        super().__init__(message)
        self.blamed = dict(blamed or {})
        self.late = frozenset(late)


class OwnWeightsError(RoundFailedError):
    """Own weights are not finite, so they were not sent."""


class RoundTimeoutError(RoundFailedError):
    """The average was not there at its deadline."""


class BusyError(BtError):
    """A holder has no room for this client: it has all it may have, or others were there before."""

    retryable = True


class CacheLostError(BtError):
    """A holder has given up a client's cache: new weights, or no memory left for it."""


class ChainError(BtError):
    """No text can be generated."""


class NoRouteError(ChainError):
    """Some block has no live holder."""

    def __init__(self, message: str, *, missing_blocks: Sequence[int]) -> None:
        """Keep the indices of the blocks that nobody serves."""
        super().__init__(message)
        self.missing_blocks = tuple(missing_blocks)
