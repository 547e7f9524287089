"""Feeds one decoder, in a process of its own: `python -m benchmarks.fuzz.worker`.

What it does is in a file in shared memory, where whoever watches it finds the last input after any end.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import logging
import mmap
import os
import random
import struct
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.fuzz.mutation import mutate

if TYPE_CHECKING:
    from benchmarks.fuzz.decoder import Decoder

MAX_INPUT_SIZE_BYTES = 1 << 16
_COUNTS = struct.Struct("<QQQ")
STATE_SIZE_BYTES = _COUNTS.size + MAX_INPUT_SIZE_BYTES
_ATHERIS_SHARE = 0.5
"""Of the inputs that atheris changes itself; the others are changed by us."""
_OURS = ("bt_p2p", "node")
"""Packages whose branches guide atheris."""


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """How far a worker is."""

    num_inputs: int = 0
    num_accepted: int = 0
    last_input: bytes = b""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """An exception that no decoder may raise, once for each place."""

    error: str
    place: str
    """File and line, outermost of ours first."""
    input_hex: str


class StateFile:
    """What a worker and its watcher share."""

    def __init__(self, path: Path) -> None:
        """Map an existing file of `STATE_SIZE_BYTES`."""
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), STATE_SIZE_BYTES)

    def begin(self, num_inputs: int, num_accepted: int, data: bytes) -> None:
        """Note an input before it is fed."""
        part = data[:MAX_INPUT_SIZE_BYTES]
        self._map[_COUNTS.size : _COUNTS.size + len(part)] = part
        _COUNTS.pack_into(self._map, 0, num_inputs, num_accepted, len(part))

    def read(self) -> State:
        """The input under way, or the last one."""
        num_inputs, num_accepted, size = _COUNTS.unpack_from(self._map)
        return State(
            num_inputs=num_inputs,
            num_accepted=num_accepted,
            last_input=self._map[_COUNTS.size : _COUNTS.size + size],
        )


class Feeder:
    """Gives inputs to a decoder and keeps what should not have happened."""

    def __init__(self, decoder: Decoder, state: StateFile, faults_path: Path) -> None:
        """Nothing is fed yet."""
        self._decoder = decoder
        self._state = state
        self._faults_path = faults_path
        self._places: set[tuple[str, str]] = set()
        self._num_inputs = 0
        self._num_accepted = 0

    def feed(self, data: bytes) -> None:
        """One input."""
        self._state.begin(self._num_inputs, self._num_accepted, data)
        try:
            self._num_accepted += self._decoder.accepts(data)
        except Exception as exc:  # noqa: BLE001 - to find them is what this is for
            self._keep(exc, data)
        self._num_inputs += 1

    def end(self) -> None:
        """Note that the last input was survived."""
        self._state.begin(self._num_inputs, self._num_accepted, b"")

    def _keep(self, error: Exception, data: bytes) -> None:
        frames = traceback.extract_tb(error.__traceback__)[-6:]
        place = " > ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
        key = (type(error).__name__, place)
        if key in self._places:
            return
        self._places.add(key)
        fault = Fault(error=f"{key[0]}: {str(error)[:200]}", place=place, input_hex=data.hex())
        with self._faults_path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(fault)) + "\n")


def main() -> None:
    """Feed one decoder until all inputs are used."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--decoder", required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--faults", type=Path, required=True)
    parser.add_argument("--inputs", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--with-swarm", action="store_true")
    parser.add_argument("--guided", action="store_true")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    memory = Path("/dev/shm")  # noqa: S108 - of this process alone; files there cost no disk
    with (
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder,
        asyncio.Runner() as runner,
    ):
        load = _load_guided if options.guided else _load
        decoder = next(
            each
            for each in load(Path(folder), runner.get_loop(), with_swarm=options.with_swarm)
            if each.name == options.decoder
        )
        feeder = Feeder(decoder, StateFile(options.state), options.faults)
        for message in decoder.messages:
            if not decoder.accepts(message):
                raise SystemExit(f"{decoder.name} refuses a message that was meant to be valid")
        if options.guided:
            _feed_guided(decoder, feeder, options.inputs, options.seed, Path(folder) / "corpus")
        rng = random.Random(options.seed)  # noqa: S311 - to be repeated
        for _ in range(options.inputs):
            feeder.feed(_next_input(rng, decoder, decoder.messages))
        feeder.end()


def _next_input(rng: random.Random, decoder: Decoder, messages: tuple[bytes, ...]) -> bytes:
    return mutate(rng, messages, decoder.form, max_size_bytes=decoder.max_size_bytes)


def _load(folder: Path, loop: asyncio.AbstractEventLoop, *, with_swarm: bool) -> list[Decoder]:
    found: list[Decoder]
    if with_swarm:
        found = importlib.import_module("benchmarks.fuzz.swarm_decoders").swarm_decoders()
    else:
        found = importlib.import_module("benchmarks.fuzz.decoders").pure_decoders(folder, loop)
    return found


def _load_guided(
    folder: Path, loop: asyncio.AbstractEventLoop, *, with_swarm: bool
) -> list[Decoder]:
    """As `_load`; atheris rewrites our modules while they are imported, so that it sees branches."""
    import atheris  # noqa: PLC0415 - optional

    with atheris.instrument_imports(include=list(_OURS)):
        return _load(folder, loop, with_swarm=with_swarm)


def _feed_guided(
    decoder: Decoder, feeder: Feeder, num_inputs: int, seed: int, corpus: Path
) -> None:
    """Feed what atheris finds interesting; it ends the process."""
    import atheris  # noqa: PLC0415 - optional

    corpus.mkdir()
    for index, message in enumerate(decoder.messages):
        (corpus / str(index)).write_bytes(message)

    def change(data: bytes, max_size_bytes: int, change_seed: int) -> bytes:
        rng = random.Random(change_seed)  # noqa: S311 - to be repeated
        if rng.random() < _ATHERIS_SHARE:
            found: bytes = atheris.Mutate(data, max_size_bytes)
            return found
        return _next_input(rng, decoder, (*decoder.messages, data))[:max_size_bytes]

    count = _count_down(num_inputs, feeder)
    arguments = [
        sys.argv[0],
        f"-runs={2 * num_inputs}",  # the count ends it
        f"-seed={1 + seed % (2**31)}",
        f"-max_len={decoder.max_size_bytes}",
        "-rss_limit_mb=0",  # the watcher looks
        "-timeout=100000",
        "-verbosity=1",
        str(corpus),
    ]
    atheris.Setup(arguments, count, custom_mutator=change)
    atheris.Fuzz()


def _count_down(num_inputs: int, feeder: Feeder) -> Callable[[bytes], None]:
    left = num_inputs

    def feed(data: bytes) -> None:
        nonlocal left
        if left == 0:
            feeder.end()
            sys.stderr.flush()
            os._exit(0)  # atheris takes an ordinary exit for a crash
        left -= 1
        feeder.feed(data)

    return feed


if __name__ == "__main__":
    main()
