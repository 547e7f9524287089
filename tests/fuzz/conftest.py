"""Decoders to feed; those of hivemind are loaded only where they are asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from benchmarks.fuzz.decoder import Decoder
from benchmarks.fuzz.decoders import pure_decoders


@pytest.fixture(scope="session")
def find_decoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Decoder]]:
    """The decoder of a name."""
    found: dict[str, Decoder] = {}

    def find(name: str) -> Decoder:
        if not found:
            folder = tmp_path_factory.mktemp("decoders")
            decoders = pure_decoders(folder, runner.get_loop())
            found.update({decoder.name: decoder for decoder in decoders})
        if name not in found:
            from benchmarks.fuzz.swarm_decoders import swarm_decoders

            found.update({decoder.name: decoder for decoder in swarm_decoders()})
        return found[name]

    with asyncio.Runner() as runner:
        yield find
