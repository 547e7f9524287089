"""bt_p2p.chain.generate: bytes from traversals."""

from __future__ import annotations

import asyncio

import pytest

from bt_p2p.chain.drafter import BlockDrafter
from bt_p2p.chain.generate import Chunk, GenerateOptions, check_options, generate
from bt_p2p.chain.sampling import Sampling
from bt_p2p.errors import ChainError, ConfigError
from bt_p2p.model.block import initial_block
from bt_p2p.protocol.manifest import MASK_TOKEN
from bt_p2p.testing.tiny import tiny_manifest

PLAIN = tiny_manifest(num_blocks=2)
CASCADE = tiny_manifest(num_blocks=2, objective="cascade")
DIFFUSION = tiny_manifest(num_blocks=2, objective="diffusion")
CONTEXT = PLAIN.model.context
GREEDY = Sampling(temperature=0)


class TokenRecorder:
    """Keeps the tokens and start of every traversal."""

    def __init__(self, swarm) -> None:
        self.seen: list[tuple[list[int], int]] = []
        self._traverse = swarm.session.traverse
        swarm.session.traverse = self.traverse

    async def traverse(self, tokens_NT, *, start, mode, z_NPZ=None, is_kept=False):
        self.seen.append((tokens_NT[0].tolist(), start))
        assert ("advance", True) == (mode, is_kept)
        return await self._traverse(tokens_NT, start=start, mode=mode, z_NPZ=z_NPZ, is_kept=is_kept)


def chunks(swarm, prompt: bytes = b"the ", drafter=None, **options) -> list[Chunk]:
    """All chunks of one generation."""

    async def collect() -> list[Chunk]:
        found = GenerateOptions(**options)
        return [chunk async for chunk in generate(swarm.session, prompt, found, drafter)]

    return asyncio.run(collect())


def text(swarm, **options) -> bytes:
    """All bytes of one generation."""
    return b"".join(chunk.data for chunk in chunks(swarm, **options))


def test_ar_asks_once_for_each_byte(small_swarm) -> None:
    """Each traversal sees the bytes before it and no mask."""
    swarm = small_swarm(PLAIN, [1, 1])
    recorder = TokenRecorder(swarm)
    data = text(swarm, max_new_bytes=3)
    known = b"the " + data
    assert [(list(known[:n]), n - 1) for n in (4, 5, 6)] == recorder.seen
    assert (3, 3) == (len(data), swarm.session.num_traversals)


@pytest.mark.parametrize("manifest", [PLAIN, DIFFUSION], ids=["plain", "diffusion"])
@pytest.mark.parametrize(
    ("num_bytes", "chunk", "sizes"),
    [(7, 3, [3, 3, 1]), (8, None, [4, 4]), (2, 4, [2]), (3, 1, [1, 1, 1])],
)
def test_a_sweep_asks_once_for_each_chunk(small_swarm, manifest, num_bytes, chunk, sizes) -> None:
    """The last chunk is what is left; None is the longest the run trains."""
    swarm = small_swarm(manifest, [1, 1])
    found = chunks(swarm, mode="sweep", max_new_bytes=num_bytes, chunk_bytes=chunk)
    assert sizes == [len(each.data) for each in found]
    assert len(sizes) == swarm.session.num_traversals


def test_masks_come_only_after_the_known_bytes(small_swarm) -> None:
    """The last known byte predicts the first new one, a mask each byte after it."""
    swarm = small_swarm(PLAIN, [1, 1])
    recorder = TokenRecorder(swarm)
    data = text(swarm, mode="sweep", max_new_bytes=5, chunk_bytes=3)
    first = ([*b"the ", MASK_TOKEN, MASK_TOKEN], 3)
    second = ([*b"the ", *data[:3], MASK_TOKEN], 6)
    assert [first, second] == recorder.seen


@pytest.mark.parametrize("mode", ["ar", "sweep"])
def test_the_window_moves_past_the_context(small_swarm, mode) -> None:
    """By half a context at a time; each traversal sees at most the context and at least half."""
    swarm = small_swarm(PLAIN, [1, 1])
    recorder = TokenRecorder(swarm)
    prompt = bytes(range(65, 65 + CONTEXT))
    found = chunks(swarm, prompt, mode=mode, max_new_bytes=2 * CONTEXT)
    so_far = prompt
    starts = set()
    for (tokens, start), chunk in zip(recorder.seen, found, strict=True):
        known = so_far[-(start + 1) :]
        assert [*known, *[MASK_TOKEN] * (len(chunk.data) - 1)] == tokens
        assert CONTEXT // 2 < len(tokens) <= CONTEXT
        starts.add(len(so_far) - len(known))
        so_far += chunk.data
    assert starts <= {0, 8, 16, 24, 32}
    assert {8, 16, 24} <= starts


@pytest.mark.parametrize("mode", ["ar", "sweep"])
def test_greedy_bytes_do_not_depend_on_the_seed(small_swarm, mode) -> None:
    """The likeliest byte is the likeliest byte."""
    swarm = small_swarm(PLAIN, [1, 1])
    options = {"mode": mode, "sampling": GREEDY, "max_new_bytes": 6}
    assert text(swarm, seed=1, **options) == text(swarm, seed=2, **options)


@pytest.mark.parametrize("mode", ["ar", "sweep"])
def test_a_chunk_has_the_distributions_of_its_bytes(small_swarm, mode) -> None:
    """Those of the composed model: temperature does not change them, and greedy takes the best."""
    (greedy, *_), (warm, *_) = (
        chunks(small_swarm(PLAIN, [1, 1]), mode=mode, sampling=sampling, max_new_bytes=4)
        for sampling in (GREEDY, Sampling(temperature=2.0, top_p=0.5))
    )
    assert (len(greedy.data), 256) == tuple(greedy.log_probs_PV.shape)
    assert list(greedy.data) == greedy.log_probs_PV.argmax(dim=-1).tolist()
    assert greedy.log_probs_PV.equal(warm.log_probs_PV)


@pytest.mark.parametrize("manifest", [PLAIN, DIFFUSION], ids=["plain", "diffusion"])
@pytest.mark.parametrize("mode", ["ar", "sweep"])
def test_the_same_seed_gives_the_same_bytes(small_swarm, manifest, mode) -> None:
    """From other holders of the same weights, too; another seed gives others."""
    options = {"mode": mode, "max_new_bytes": 12, "sampling": Sampling(temperature=1.0)}
    first = text(small_swarm(manifest, [1, 1]), seed=5, **options)
    assert first == text(small_swarm(manifest, [2, 2]), seed=5, **options)
    assert first != text(small_swarm(manifest, [1, 1]), seed=6, **options)


def test_a_failing_holder_changes_nothing_but_its_mention(small_swarm) -> None:
    """The chunk says who failed."""
    expected = text(small_swarm(DIFFUSION, [1, 1]), max_new_bytes=4)
    swarm = small_swarm(DIFFUSION, [2, 1])
    swarm.faults.once(swarm.holders[0][0], "not_finite")
    found = chunks(swarm, max_new_bytes=4)
    assert expected == b"".join(chunk.data for chunk in found)
    assert [1, 0, 0, 0] == [len(chunk.failed_peers) for chunk in found]
    assert [2] * 4 == [len(chunk.hops) for chunk in found]


def test_what_came_before_a_failure_stays(small_swarm) -> None:
    """The error ends the stream, not the bytes already given."""
    swarm = small_swarm(PLAIN, [1, 1])

    async def collect() -> list[bytes]:
        found: list[bytes] = []
        stream = generate(swarm.session, b"the ", GenerateOptions(max_new_bytes=9))
        found += [(await anext(stream)).data, (await anext(stream)).data]
        swarm.faults.always(swarm.holders[0][0], "drop")
        with pytest.raises(ChainError):
            await anext(stream)
        return found

    assert [1, 1] == [len(data) for data in asyncio.run(collect())]


class Oracle:
    """A drafter that knows the answer, but for every `wrong_every`-th byte of the text."""

    def __init__(self, answer: bytes, wrong_every: int | None = None) -> None:
        self._answer = answer
        self._wrong_every = wrong_every

    def draft(self, text, num_bytes, sampling, seed):
        guess = bytearray(self._answer[len(text) : len(text) + num_bytes])
        for index in range(len(guess)):
            if self._wrong_every and (len(text) + index) % self._wrong_every == 0:
                guess[index] ^= 1
        return bytes(guess)


MANIFESTS = pytest.mark.parametrize(
    "manifest", [PLAIN, CASCADE, DIFFUSION], ids=["plain", "cascade", "diffusion"]
)
SAMPLINGS = pytest.mark.parametrize(
    "sampling", [GREEDY, Sampling(temperature=1.0), Sampling(temperature=0.8, top_p=0.9)], ids=str
)


@pytest.mark.parametrize("wrong_every", [None, 1, 3, 5])
@pytest.mark.parametrize("manifest", [PLAIN, CASCADE], ids=["plain", "cascade"])
@SAMPLINGS
def test_drafting_gives_the_bytes_of_ar(small_swarm, manifest, sampling, wrong_every) -> None:
    """Right or wrong guesses, greedy or sampled, over two moves of the window: the same text."""
    options = {"sampling": sampling, "seed": 11, "max_new_bytes": 3 * CONTEXT}
    expected = text(small_swarm(manifest, [1, 1]), **options)
    swarm = small_swarm(manifest, [1, 1])
    drafter = Oracle(b"the " + expected, wrong_every)
    assert expected == text(swarm, mode="draft", chunk_bytes=4, drafter=drafter, **options)
    num_traversals = swarm.session.num_traversals
    if wrong_every is None:
        assert len(expected) / 5 <= num_traversals <= len(expected) / 4
    elif wrong_every == 1:
        assert len(expected) == num_traversals


@pytest.mark.parametrize("manifest", [PLAIN, CASCADE], ids=["plain", "cascade"])
@SAMPLINGS
def test_a_block_guesses_for_the_whole_model(small_swarm, manifest, sampling) -> None:
    """With the same noise it is mostly right, and the text is that of `ar` in any case."""
    options = {"sampling": sampling, "seed": 3, "max_new_bytes": 2 * CONTEXT}
    expected = text(small_swarm(manifest, [1, 1]), **options)
    swarm = small_swarm(manifest, [1, 1])
    drafter = BlockDrafter(initial_block(manifest, 0))
    assert expected == text(swarm, mode="draft", drafter=drafter, **options)


def test_the_first_block_of_one_guesses_everything(small_swarm) -> None:
    """Drafter and model are the same: nine bytes a traversal, but where the window moves."""
    manifest = tiny_manifest(num_blocks=1)
    swarm = small_swarm(manifest, [1])
    drafter = BlockDrafter(initial_block(manifest, 0))
    found = chunks(swarm, b"the ", drafter, mode="draft", max_new_bytes=3 * CONTEXT)
    sizes = [len(chunk.data) for chunk in found]
    assert (9, 3 * CONTEXT) == (max(sizes), sum(sizes))
    assert 8 >= len(sizes)


def test_repeated_text_is_guessed_from_itself(small_swarm) -> None:
    """The default drafter; the text is that of `ar`."""
    options = {"sampling": GREEDY, "max_new_bytes": 40}
    expected = text(small_swarm(PLAIN, [1, 1]), **options)
    assert expected == text(small_swarm(PLAIN, [1, 1]), mode="draft", **options)


@MANIFESTS
def test_holders_see_each_byte_once(small_swarm, manifest) -> None:
    """After the prompt, one token goes to each block for each byte, until the window moves."""
    swarm = small_swarm(manifest, [1, 1])
    sent = []
    forward = swarm.client.forward

    async def recorded(peer_id, request, *, timeout_s):
        sent.append((request.block, request.past, request.tokens_NT.shape[1]))
        return await forward(peer_id, request, timeout_s=timeout_s)

    swarm.client.forward = recorded
    text(swarm, max_new_bytes=4)
    expected = [(0, 4), (4, 1), (5, 1), (6, 1)]
    # the last byte of the prompt is read in the first traversal, and kept like the others
    assert expected == [(past, num) for block, past, num in sent if block == 0]
    assert expected == [(past, num) for block, past, num in sent if block == 1]


@MANIFESTS
@pytest.mark.parametrize("mode", ["ar", "draft", "sweep"])
def test_new_weights_or_lost_caches_change_no_byte(small_swarm, manifest, mode) -> None:
    """A holder that forgets is sent everything again; here the weights stay the same."""
    options = {"mode": mode, "seed": 2, "max_new_bytes": 2 * CONTEXT}
    expected = text(small_swarm(manifest, [1, 1]), **options)
    swarm = small_swarm(manifest, [1, 1])
    forward, num_asked = swarm.client.forward, 0

    async def forgetful(peer_id, request, *, timeout_s):
        nonlocal num_asked
        num_asked += 1
        if num_asked % 5 == 0:
            service = swarm.client.services[peer_id]
            service.adopt(service.served_weights(), 0)
        return await forward(peer_id, request, timeout_s=timeout_s)

    swarm.client.forward = forgetful
    assert expected == text(swarm, **options)


@MANIFESTS
@pytest.mark.parametrize("mode", ["ar", "draft", "sweep"])
def test_a_holder_that_leaves_in_the_middle_changes_no_byte(small_swarm, manifest, mode) -> None:
    """Another replica is sent everything, in any mode."""
    options = {"mode": mode, "seed": 2, "max_new_bytes": 20}
    expected = text(small_swarm(manifest, [1, 1]), **options)
    swarm = small_swarm(manifest, [2, 2])

    async def collect() -> bytes:
        data = b""
        async for chunk in generate(swarm.session, b"the ", GenerateOptions(**options)):
            data += chunk.data
            if len(data) >= 8:
                swarm.faults.always(swarm.holders[1][0], "drop")
        return data

    assert expected == asyncio.run(collect())


@pytest.mark.parametrize(
    ("options", "prompt", "part"),
    [
        ({}, b"", "the prompt is empty"),
        ({}, b"x" * (CONTEXT + 1), f"{CONTEXT + 1} bytes, over the context of {CONTEXT}"),
        ({"max_new_bytes": 0}, b"x", "max new bytes 0 is outside 1 to 100000"),
        ({"max_new_bytes": 100_001}, b"x", "max new bytes 100001"),
        ({"mode": "draft", "chunk_bytes": CONTEXT}, b"x", "chunk 16 is outside 1 to 15"),
        ({"mode": "sweep", "chunk_bytes": 0}, b"x", "chunk 0 is outside 1 to 4"),
        ({"mode": "sweep", "chunk_bytes": 5}, b"x", "chunk 5 is outside 1 to 4"),
        ({"seed": -1}, b"x", "seed -1 is outside"),
        ({"seed": 2**70}, b"x", "is outside 0 to"),
    ],
)
def test_what_cannot_be_generated_is_refused(small_swarm, options, prompt, part) -> None:
    """Before anybody is asked."""
    swarm = small_swarm(PLAIN, [1, 1])
    with pytest.raises(ConfigError, match=part):
        chunks(swarm, prompt, **options)
    assert [] == swarm.client.calls


def test_the_limits_themselves_are_allowed() -> None:
    """A prompt as long as the context, the longest chunk, the largest seed."""
    options = GenerateOptions(mode="sweep", max_new_bytes=100_000, chunk_bytes=4, seed=2**63 - 1)
    check_options(options, b"x" * CONTEXT, PLAIN)
