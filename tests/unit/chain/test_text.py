"""bt_p2p.chain.text: whole characters only."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from bt_p2p.chain.text import TextDecoder


@given(st.lists(st.binary(max_size=6) | st.text(max_size=4).map(str.encode)), st.data())
def test_pieces_join_to_the_whole_decoding(parts: list[bytes], data: st.DataObject) -> None:
    """Cut anywhere, also inside characters and inside nonsense."""
    whole = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    decoder = TextDecoder()
    pieces = [
        decoder.feed(whole[start:end])
        for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)
    ]
    last = decoder.finish()
    assert whole.decode(errors="replace") == "".join(pieces) + last
    assert len(last) <= 1


@given(st.text())
@example("ä€😀")
def test_no_half_character_is_ever_shown(text: str) -> None:
    """Byte by byte, valid text needs no replacement."""
    decoder = TextDecoder()
    pieces = [decoder.feed(bytes([byte])) for byte in text.encode()]
    assert (list(text), "") == ([piece for piece in pieces if piece], decoder.finish())


def test_a_character_cut_off_at_the_end_becomes_one_replacement() -> None:
    """Three of four bytes."""
    decoder = TextDecoder()
    assert "a" == decoder.feed(b"a\xf0\x9f\x98")
    assert "\ufffd" == decoder.finish()


def test_it_says_whether_a_character_is_under_way() -> None:
    """Nonsense is over at once; the beginning of a character is not."""
    decoder = TextDecoder()
    found = []
    for byte in b"a\xe2\x82\xac\xff\xc3b":
        decoder.feed(bytes([byte]))
        found.append(decoder.is_at_boundary)
    assert [True, False, False, True, True, False, True] == found
