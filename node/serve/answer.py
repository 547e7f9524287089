"""From bytes drawn to text sent: whole characters, up to the first stop sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from bt_p2p.chain.text import TextDecoder

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawnByte:
    """One byte of the answer and how likely it was, before temperature and top-p."""

    value: int
    log_prob: float
    """In nats."""
    likeliest: Mapping[int, float]
    """Log-probabilities of the likeliest bytes, and of this one."""
    text_offset: int = 0
    """The character of the answer that it belongs to."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """What can be sent now."""

    text: str
    drawn: tuple[DrawnByte, ...] = ()
    """Bytes behind the text, if their log-probabilities are wanted."""


class Answer:
    """Holds back what may still become a stop sequence or a whole character.

    The pieces join to the decoding of all bytes before the first stop sequence.

    Attributes:
        num_bytes: drawn so far, up to the end of a stop sequence.
        is_stopped: whether a stop sequence was drawn; nothing more is taken.
    """

    def __init__(self, stops: Sequence[bytes], *, num_likeliest: int | None) -> None:
        """Start empty.

        Args:
            stops: sequences that end the answer and are not part of it.
            num_likeliest: likeliest bytes to tell of; None tells no log-probabilities at all.
        """
        self.num_bytes = 0
        self.is_stopped = False
        self._stops = sorted(stops, key=len, reverse=True)
        self._num_likeliest = num_likeliest
        self._decoder = TextDecoder()
        self._num_chars = 0
        self._held = bytearray()
        self._held_drawn: list[DrawnByte] = []
        self._waiting: list[DrawnByte] = []

    @property
    def finish_reason(self) -> FinishReason:
        """Why it ends, once it has."""
        return "stop" if self.is_stopped else "length"

    def add(self, data: bytes, log_probs_PV: Tensor) -> Piece:
        """Take new bytes; returns what they complete.

        Args:
            data: bytes of one traversal.
            log_probs_PV: float32 [bytes, 256], the distributions they were drawn from.
        """
        for position, value in enumerate(data):
            if self.is_stopped:
                break
            self.num_bytes += 1
            self._held.append(value)
            if self._num_likeliest is not None:
                drawn = _drawn_byte(value, log_probs_PV[position], self._num_likeliest)
                self._held_drawn.append(drawn)
            stop = next((stop for stop in self._stops if self._held.endswith(stop)), None)
            if stop is not None:
                self.is_stopped = True
                del self._held[-len(stop) :]
                del self._held_drawn[len(self._held) :]
        return self._release(len(self._held) - self._num_doubtful())

    def finish(self) -> Piece:
        """The rest, once no more bytes come: a character cut off becomes a replacement."""
        piece = self._release(len(self._held))
        text = piece.text + self._decoder.finish()
        rest = tuple(self._waiting)
        self._waiting.clear()
        return Piece(text=text, drawn=piece.drawn + rest)

    def _num_doubtful(self) -> int:
        """How many of the last bytes may be the beginning of a stop sequence."""
        if self.is_stopped or not self._stops:
            return 0
        longest = min(len(self._held), len(self._stops[0]) - 1)
        return next(
            (
                size
                for size in range(longest, 0, -1)
                if any(stop.startswith(self._held[-size:]) for stop in self._stops)
            ),
            0,
        )

    def _release(self, num_bytes: int) -> Piece:
        text = ""
        for position in range(num_bytes):
            new = self._decoder.feed(bytes(self._held[position : position + 1]))
            text += new
            self._num_chars += len(new)
            if self._held_drawn:
                # the last character shown has this byte, unless it begins or goes on with the next
                offset = self._num_chars - (1 if self._decoder.is_at_boundary else 0)
                self._waiting.append(replace(self._held_drawn[position], text_offset=offset))
        del self._held[:num_bytes]
        del self._held_drawn[:num_bytes]
        if not text:
            return Piece(text="")
        drawn = tuple(self._waiting)
        self._waiting.clear()
        return Piece(text=text, drawn=drawn)


def _drawn_byte(value: int, log_probs_V: Tensor, num_likeliest: int) -> DrawnByte:
    log_prob = float(log_probs_V[value])
    top = log_probs_V.topk(num_likeliest)
    likeliest = dict(zip(top.indices.tolist(), top.values.tolist(), strict=True))
    return DrawnByte(value=value, log_prob=log_prob, likeliest={**likeliest, value: log_prob})
