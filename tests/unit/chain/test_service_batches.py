"""bt_p2p.chain.service: requests that are computed together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from bt_p2p.chain.block_rpc import ForwardReply, ForwardRequest
from bt_p2p.chain.service import LocalBlockService
from bt_p2p.errors import CacheLostError, WireFormatError
from bt_p2p.objective.registry import make_objective
from bt_p2p.protocol.limits import CACHE_ID_SIZE_BYTES
from bt_p2p.protocol.manifest import RunManifest
from bt_p2p.testing.tiny import tiny_manifest, tiny_weights

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
DEADLINE_S = 10.0


class HeldService(LocalBlockService):
    """A service whose worker can be kept busy, and which counts the requests of each pass."""

    def __init__(self, manifest: RunManifest) -> None:
        super().__init__(manifest, 1)
        self.sizes: list[int] = []
        self.adopt(shaken_weights(manifest, 1), 1)

    def hold(self) -> Callable[[], None]:
        """Nothing is computed until what is returned is called."""
        is_released = threading.Event()
        self._batcher.between(lambda: is_released.wait(DEADLINE_S))
        return is_released.set

    def _compute(self, jobs):
        self.sizes.append(len(jobs))
        return super()._compute(jobs)


def shaken_weights(manifest: RunManifest, seed: int) -> dict[str, torch.Tensor]:
    """Initial weights and noise: some are zero at first, which would hide a mistake."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: tensor + 0.1 * torch.randn(tensor.shape, generator=generator)
        for name, tensor in tiny_weights(manifest, 1).items()
    }


@pytest.fixture(params=["plain", "cascade", "diffusion"])
def manifest(request) -> RunManifest:
    """A run of each kind of objective."""
    return tiny_manifest(objective=request.param)


def name_of(index: int) -> bytes:
    """A cache id."""
    return bytes([index]) * CACHE_ID_SIZE_BYTES


def make_request(
    manifest: RunManifest, seed: int, shape: tuple[int, int] = (1, 1), **fields: Any
) -> ForwardRequest:
    """Random tokens, features for `cascade` unless the seed is even, z to advance."""
    generator = torch.Generator().manual_seed(seed)
    request = ForwardRequest(
        run_id=manifest.run_id,
        block=1,
        mode="advance",
        tokens_NT=torch.randint(0, 257, shape, generator=generator),
        start=0,
    )
    request = replace(request, **fields)
    if manifest.objective.name == "cascade" and seed % 2:
        features_NTD = torch.randn(*shape, manifest.model.d_model, generator=generator)
        request = replace(request, features_NTD=features_NTD)
    if request.mode == "advance":
        noise = make_objective(manifest, 1).initial_noise(
            shape[0], shape[1] - request.start, generator
        )
        request = replace(request, z_NPZ=noise)
    return request


def mixed_requests(manifest: RunManifest) -> list[ForwardRequest]:
    """Many lengths, numbers of sequences, pasts and both modes; the pasts are those of `fill`."""
    return [
        make_request(manifest, 10, cache_id=name_of(0), past=7),
        make_request(manifest, 11, cache_id=name_of(1), past=3),
        make_request(manifest, 12, (2, 5), start=2),
        make_request(manifest, 13, (2, 4), cache_id=name_of(2), past=6, start=3),
        make_request(manifest, 14, (1, 9), cache_id=name_of(3), mode="read", start=8),
        make_request(manifest, 15, (3, 2), mode="read"),
    ]


def fill(manifest: RunManifest) -> list[ForwardRequest]:
    """What comes before the mixed requests."""
    shapes = [(1, 7), (1, 5), (2, 6)]
    return [
        make_request(manifest, index, shape, cache_id=name_of(index))
        for index, shape in enumerate(shapes)
    ]


async def ask_together(
    service: HeldService, requests: Sequence[ForwardRequest], askers: Sequence[str] = ("me",)
) -> list[ForwardReply | BaseException]:
    """Answers to requests that wait at the same moment."""
    release = service.hold()
    tasks = [
        asyncio.create_task(service.forward(request, asker=askers[index % len(askers)]))
        for index, request in enumerate(requests)
    ]
    await asyncio.sleep(0)
    release()
    return await asyncio.gather(*tasks, return_exceptions=True)


async def ask_apart(service: HeldService, requests: Sequence[ForwardRequest]) -> list[ForwardReply]:
    """Answers to one request after another."""
    return [await service.forward(request, asker="me") for request in requests]


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """With a deadline."""

    async def bounded():
        async with asyncio.timeout(DEADLINE_S):
            return await coroutine

    return asyncio.run(bounded())


def assert_same(expected: ForwardReply, found: ForwardReply | BaseException) -> None:
    """All tensors agree."""
    assert isinstance(found, ForwardReply), found
    for name in ("log_probs_NPV", "z_NPZ", "features_NTD"):
        theirs, mine = getattr(expected, name), getattr(found, name)
        assert (theirs is None) == (mine is None)
        if theirs is not None:
            torch.testing.assert_close(theirs, mine, **CLOSE)


def test_together_they_get_what_each_gets_alone(manifest) -> None:
    """In one pass, whatever the lengths, the pasts and the modes."""
    together, apart = HeldService(manifest), HeldService(manifest)
    for service in (together, apart):
        run(ask_apart(service, fill(manifest)))
    together.sizes.clear()
    found = run(ask_together(together, mixed_requests(manifest)))
    expected = run(ask_apart(apart, mixed_requests(manifest)))
    assert [6] == together.sizes
    for mine, theirs in zip(found, expected, strict=True):
        assert_same(theirs, mine)


def test_caches_go_on_after_a_pass_together(manifest) -> None:
    """Step after step, as if each had been alone."""
    together, apart = HeldService(manifest), HeldService(manifest)
    for service in (together, apart):
        run(ask_apart(service, fill(manifest)[:2]))
    for step in range(3):
        requests = [
            make_request(manifest, 20 + 2 * step + index, cache_id=name_of(index), past=past + step)
            for index, past in enumerate((7, 5))
        ]
        found = run(ask_together(together, requests))
        for mine, theirs in zip(found, run(ask_apart(apart, requests)), strict=True):
            assert_same(theirs, mine)


def test_a_request_that_fails_fails_alone(manifest) -> None:
    """A lost cache, and an objective that refuses; the others of the pass are answered."""
    service = HeldService(manifest)
    bad = [make_request(manifest, 1, cache_id=name_of(9), past=4)]
    if manifest.objective.name == "diffusion":
        bad.append(replace(make_request(manifest, 1), z_NPZ=None))
    good = [make_request(manifest, 2), make_request(manifest, 3, (2, 4))]
    *lost, first, second = run(ask_together(service, [*bad, *good]))
    assert [CacheLostError, WireFormatError][: len(bad)] == [type(each) for each in lost]
    for theirs, mine in zip(
        run(ask_apart(HeldService(manifest), good)), (first, second), strict=True
    ):
        assert_same(theirs, mine)
    assert (2, 0) == (service.num_requests, service.readiness(manifest.run_id, 1).num_waiting)


def test_a_pass_that_breaks_is_made_for_each_alone(manifest, monkeypatch) -> None:
    """So that whoever broke it breaks no other; their caches are as they should be."""
    service, apart = HeldService(manifest), HeldService(manifest)
    for each in (service, apart):
        run(ask_apart(each, fill(manifest)))
    whole_pass = service._block.forward_segments

    def break_if_marked(segments):
        outputs = whole_pass(segments)
        if any(segment.tokens_NT.shape == (1, 13) for segment in segments):
            raise RuntimeError("no memory")
        return outputs

    monkeypatch.setattr(service._block, "forward_segments", break_if_marked)
    good = mixed_requests(manifest)
    *found, broken = run(ask_together(service, [*good, make_request(manifest, 1, (1, 13))]))
    assert isinstance(broken, RuntimeError)
    for mine, theirs in zip(found, run(ask_apart(apart, good)), strict=True):
        assert_same(theirs, mine)


def test_two_requests_for_one_cache_come_one_after_another() -> None:
    """The second sees what the first left."""
    manifest = tiny_manifest()
    service = HeldService(manifest)
    first = make_request(manifest, 1, (1, 6), cache_id=name_of(0))
    second = make_request(manifest, 2, cache_id=name_of(0), past=6)
    replies = run(ask_together(service, [first, second]))
    assert [1, 1] == service.sizes
    expected = run(ask_apart(HeldService(manifest), [first, second]))
    for mine, theirs in zip(replies, expected, strict=True):
        assert_same(theirs, mine)


def test_one_clients_cache_is_no_other_ones() -> None:
    """Even under the same name, in the same pass."""
    manifest = tiny_manifest()
    service = HeldService(manifest)
    mine, theirs = (make_request(manifest, seed, (1, 6), cache_id=name_of(0)) for seed in (1, 2))
    run(ask_together(service, [mine, theirs], ["me", "other"]))
    assert [2] == service.sizes
    next_one = make_request(manifest, 3, cache_id=name_of(0), past=6)
    found = run(service.forward(next_one, asker="me"))
    assert_same(run(ask_apart(HeldService(manifest), [mine, next_one]))[1], found)
    with pytest.raises(CacheLostError):
        run(service.forward(next_one, asker="stranger"))


def test_new_weights_come_between_passes() -> None:
    """Those who wait get the old ones all, those after them the new ones; old caches are gone."""
    manifest = tiny_manifest()
    service = HeldService(manifest)
    run(ask_apart(service, fill(manifest)[:1]))
    new = shaken_weights(manifest, 2)
    going_on = make_request(manifest, 1, cache_id=name_of(0), past=7)

    async def adopt_while_some_wait():
        release = service.hold()
        before = [make_request(manifest, seed, (1, 4)) for seed in range(3)]
        tasks = [asyncio.create_task(service.forward(each, asker="me")) for each in before]
        await asyncio.sleep(0)
        adopting = asyncio.create_task(asyncio.to_thread(service.adopt, new, 2))
        release()
        old = await asyncio.gather(*tasks)
        await adopting
        return old, await service.forward(before[0], asker="me")

    old, fresh = run(adopt_while_some_wait())
    assert ([1, 1, 1], 2) == ([reply.round_index for reply in old], fresh.round_index)
    assert not torch.allclose(old[0].log_probs_NPV, fresh.log_probs_NPV)
    with pytest.raises(CacheLostError):
        run(service.forward(going_on, asker="me"))


def test_a_request_given_up_is_not_computed() -> None:
    """Nor counted as waiting."""
    manifest = tiny_manifest()
    service = HeldService(manifest)

    async def give_up():
        release = service.hold()
        task = asyncio.create_task(service.forward(make_request(manifest, 1), asker="me"))
        await asyncio.sleep(0)
        assert 1 == service.readiness(manifest.run_id, 1).num_waiting
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        release()
        await service.forward(make_request(manifest, 2), asker="me")

    run(give_up())
    assert ([1], 1) == (service.sizes, service.num_requests)
    assert 0 == service.readiness(manifest.run_id, 1).num_waiting
