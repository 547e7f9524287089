"""Whatever a stranger sends: a decoder takes it or refuses it with its documented error."""

from __future__ import annotations

import asyncio
import random
import tracemalloc
from pathlib import Path

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.fuzz.decoders import pure_decoders
from benchmarks.fuzz.mutation import mutate

PURE = (
    *("wire", "lease", "lease, signed", "lease view", "membership", "manifest"),
    "manifest of any run",
    *("address", "addresses", "address to announce", "address in a lease", "span"),
    *("frame", "request", "reply in float32", "reply in float16", "reply in int8"),
    *("readiness", "handed on", "bundle", "weights offers", "chunk request", "chunk"),
    *("weights", "checkpoint", "checkpoint with its hash", "manifest file", "facts of an export"),
    *("node snapshot", "peers met", "key file", "completion request"),
)
SWARM = (
    *("record to store", "list of runs", "hivemind msgpack", "hivemind tensor"),
    *("hivemind messages", "partner report"),
)
ALL = [*PURE, *(pytest.param(name, marks=pytest.mark.swarm) for name in SWARM)]
MAX_PEAK_BYTES = 8 * 1024**2
"""Beside what it is given, which is less than a megabyte."""
BOMBS = {
    "four billion items": b"\xdd\xff\xff\xff\xff" + b"\x01" * 64,
    "four billion pairs": b"\xdf\xff\xff\xff\xff" + b"\x01" * 64,
    "four gigabytes of text": b"\xdb\xff\xff\xff\xff" + b"a" * 64,
    "lists of sixty thousand in each other": b"\xdc\xff\xff" * 300,
    "a frame of the largest sizes": b"\xff" * 12 + b"\x80" * 64,
    "a header of all that is allowed": (1 << 16).to_bytes(4, "little") + bytes(8) + b"\x90" * 65536,
    "a safetensors header of the largest size": b"\xff" * 8 + b"{}",
    "a tensor of terabytes": (
        (59).to_bytes(8, "little")
        + b'{"a":{"dtype":"F32","shape":[1000000,1000000],"data_offsets":[0,4000000000000]}}'
    ),
    "deep lists": b"[" * 100_000,
    "deep maps": b'{"a":' * 50_000,
    "deep extensions": None,
    "a long number": b"9" * 100_000,
    "many addresses": b"/ip4/1.2.3.4/tcp/1/p2p/" + b"1" * 100_000,
    "many repeats of a key": b"{" + b",".join([b'"model":"a"'] * 5000) + b"}",
}
few = settings(
    max_examples=30,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


def bomb(name: str) -> bytes:
    """A message that claims to be more than it is, or is meant to exhaust a stack."""
    data = BOMBS[name]
    if data is None:
        data = b"\x01"
        for _ in range(300):
            data = msgpack.packb(msgpack.ExtType(0x40, data))
    return data


def test_every_decoder_is_in_the_lists(tmp_path: Path) -> None:
    """A new one is tested, too."""
    with asyncio.Runner() as runner:
        decoders = pure_decoders(tmp_path, runner.get_loop())
    assert list(PURE) == [decoder.name for decoder in decoders]


@pytest.mark.swarm
def test_every_decoder_of_hivemind_is_in_the_lists() -> None:
    """A new one is tested, too."""
    from benchmarks.fuzz.swarm_decoders import swarm_decoders

    assert set(SWARM) == {decoder.name for decoder in swarm_decoders()}


@pytest.mark.parametrize("name", ALL)
def test_valid_messages_are_accepted(name, find_decoder) -> None:
    """Else their changes would show nothing."""
    decoder = find_decoder(name)
    assert [True] * len(decoder.messages) == [decoder.accepts(data) for data in decoder.messages]


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
@given(seed=st.integers(0, 2**32))
@few
def test_changed_messages_are_accepted_or_refused(name, find_decoder, seed) -> None:
    """Flipped bits, wrong sizes, odd values, repeats, splices; nothing else may come of them."""
    decoder, rng = find_decoder(name), random.Random(seed)
    for _ in range(4):
        data = mutate(rng, decoder.messages, decoder.form, max_size_bytes=decoder.max_size_bytes)
        assert decoder.accepts(data) in (True, False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
@given(data=st.binary(max_size=200) | plain_values.map(msgpack.packb))
@few
def test_any_bytes_and_any_values_are_accepted_or_refused(name, find_decoder, data) -> None:
    """Those that hypothesis finds."""
    assert find_decoder(name).accepts(data) in (True, False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_bombs_take_little_memory(name, find_decoder) -> None:
    """What a message claims is never believed before it is there."""
    decoder = find_decoder(name)
    for each in BOMBS:
        data = bomb(each)
        decoder.accepts(data)  # what is loaded at first use is not counted
        tracemalloc.start()
        try:
            decoder.accepts(data)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak_bytes < MAX_PEAK_BYTES, each
