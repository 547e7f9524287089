"""node.serve.answer: whole characters, up to the first stop sequence."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from node.serve.answer import Answer, Piece

FEW = st.binary(max_size=12).map(lambda data: bytes(97 + byte % 3 for byte in data))
"""Bytes of three kinds, so that stop sequences occur."""


def flat(num_bytes: int) -> torch.Tensor:
    """Uniform distributions."""
    return torch.full((num_bytes, 256), -math.log(256))


def pieces(answer: Answer, parts: list[bytes]) -> list[Piece]:
    """All pieces of an answer whose bytes come in parts."""
    return [*[answer.add(part, flat(len(part))) for part in parts], answer.finish()]


def before_stop(data: bytes, stops: list[bytes]) -> tuple[bytes, int]:
    """Literally: the bytes before the stop sequence that ends first, and the bytes drawn by then."""
    for end in range(1, len(data) + 1):
        fitting = [stop for stop in stops if data[:end].endswith(stop)]
        if fitting:
            return data[: end - max(map(len, fitting))], end
    return data, len(data)


@given(st.lists(FEW | st.binary(max_size=6) | st.text(max_size=4).map(str.encode), max_size=6),
       st.lists(FEW.filter(bool), max_size=4))  # fmt: skip
@example([b"ab", b"c"], [b"abc"])
@example([b"aab"], [b"ab", b"aac"])
@example(["ä€😀".encode()[:-1]], [])
def test_the_pieces_join_to_what_comes_before_the_first_stop(parts, stops) -> None:
    """However the bytes arrive; also inside characters and inside nonsense."""
    answer = Answer(stops, num_likeliest=0)
    found = pieces(answer, parts)
    expected, num_drawn = before_stop(b"".join(parts), stops)
    assert expected.decode(errors="replace") == "".join(piece.text for piece in found)
    assert num_drawn == answer.num_bytes
    drawn = [byte for piece in found for byte in piece.drawn]
    assert list(expected) == [byte.value for byte in drawn]


@given(st.text(max_size=6))
@example("aä€😀")
def test_offsets_count_characters(text: str) -> None:
    """Every byte of a character has its index."""
    answer = Answer([], num_likeliest=0)
    found = pieces(answer, [bytes([byte]) for byte in text.encode()])
    expected = [index for index, char in enumerate(text) for _ in char.encode()]
    assert expected == [byte.text_offset for piece in found for byte in piece.drawn]
    assert all(len(piece.drawn) == len(piece.text.encode()) for piece in found)


@pytest.mark.parametrize(
    ("data", "offsets"),
    [(b"\xc3a", [0, 1]), (b"\xe2\x82\xc3\xa4", [0, 0, 1, 1]), (b"\xff\xffa\xf0\x9f", [0, 1, 2, 3, 3])],
)  # fmt: skip
def test_offsets_count_replacements_too(data: bytes, offsets: list[int]) -> None:
    """A byte that is no part of a character stands for one replacement."""
    answer = Answer([], num_likeliest=0)
    found = pieces(answer, [bytes([byte]) for byte in data])
    assert offsets == [byte.text_offset for piece in found for byte in piece.drawn]


def test_what_may_become_a_stop_is_held_back_until_it_cannot() -> None:
    """And then it is all there."""
    answer = Answer([b"<end>"], num_likeliest=None)
    texts = [answer.add(part, flat(len(part))).text for part in (b"a<e", b"nd", b"!<")]
    assert (["a", "", "<end!"], "<") == (texts, answer.finish().text)
    assert ("length", 7) == (answer.finish_reason, answer.num_bytes)


def test_nothing_is_taken_after_a_stop() -> None:
    """The rest of a sweep is not part of the answer, nor counted."""
    answer = Answer([b"."], num_likeliest=None)
    assert Piece(text="ab") == answer.add(b"ab.cd", flat(5))
    assert Piece(text="") == answer.add(b"ef", flat(2))
    assert ("stop", 3, "") == (answer.finish_reason, answer.num_bytes, answer.finish().text)


def test_log_probabilities_are_of_the_byte_drawn_and_of_the_likeliest() -> None:
    """The byte drawn is among them, likely or not."""
    log_probs_PV = torch.log_softmax(torch.arange(256.0), dim=-1)[None]
    (byte,) = Answer([], num_likeliest=2).add(b"A", log_probs_PV).drawn
    assert [255, 254, 65] == list(byte.likeliest)
    assert float(log_probs_PV[0, 65]) == byte.log_prob == byte.likeliest[65]
    assert float(log_probs_PV[0, 255]) == byte.likeliest[255]
