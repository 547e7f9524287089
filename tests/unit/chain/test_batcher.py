"""bt_p2p.chain.batcher: what is computed together, in whose turn, and what never is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence

import pytest

from bt_p2p.chain.batcher import Batcher, Waiting, pick_batch
from bt_p2p.errors import BusyError, CacheLostError
from bt_p2p.protocol.limits import MAX_BATCH_TOKENS, MAX_WAITING_REQUESTS

DEADLINE_S = 10.0


class Gate:
    """Computes the upper case of words, batch by batch, each when it is let through.

    Attributes:
        batches: those begun so far.
    """

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.batcher = Batcher[str, str](self.compute)
        self._begun = threading.Semaphore(0)
        self._may_go = threading.Semaphore(0)
        self._is_open = False

    def compute(self, words: Sequence[str]) -> Sequence[str | Exception]:
        self.batches.append(list(words))
        self._begun.release()
        if not self._is_open:
            assert self._may_go.acquire(timeout=DEADLINE_S)
        if "spoils all" in words:
            raise ValueError("spoilt")
        return [CacheLostError("lost") if word == "lost" else word.upper() for word in words]

    def ask(self, word: str, asker: str = "me", **fields) -> asyncio.Task[str]:
        fields = {"num_tokens": 1, **fields}
        return asyncio.create_task(self.batcher.ask(word, asker=asker, **fields))

    async def wait_begun(self) -> None:
        """Until the worker has begun another batch."""
        assert await asyncio.to_thread(self._begun.acquire, timeout=DEADLINE_S)

    async def occupied(self) -> asyncio.Task[str]:
        """A job that keeps the worker busy."""
        task = self.ask("first", "somebody")
        await self.wait_begun()
        return task

    def open(self) -> None:
        """Let everything through from now on."""
        self._is_open = True
        self._may_go.release()


def played(story: Callable[[Gate], Coroutine[None, None, None]]) -> list[list[str]]:
    """The batches of a story in which the gate was opened."""
    gate = Gate()

    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await story(gate)

    try:
        asyncio.run(bounded())
    finally:
        gate.open()
    return gate.batches


def test_a_lone_job_is_computed_at_once() -> None:
    """Nothing else must come before it is."""

    async def story(gate: Gate) -> None:
        gate.open()
        assert "A" == await gate.ask("a")

    assert [["a"]] == played(story)


def test_what_waits_is_computed_together() -> None:
    """While one batch is computed the next one gathers; each gets its own answer."""

    async def story(gate: Gate) -> None:
        first = await gate.occupied()
        tasks = [gate.ask(word) for word in "abc"]
        await asyncio.sleep(0)
        gate.open()
        assert ["FIRST", "A", "B", "C"] == await asyncio.gather(first, *tasks)

    assert [["first"], ["a", "b", "c"]] == played(story)


def test_one_who_asks_much_does_not_keep_others_waiting() -> None:
    """Each large job fills a batch; the stranger's only one comes second."""

    async def story(gate: Gate) -> None:
        await gate.occupied()
        many = [gate.ask(f"large {n}", num_tokens=MAX_BATCH_TOKENS) for n in range(4)]
        one = gate.ask("small", "stranger", num_tokens=MAX_BATCH_TOKENS)
        await asyncio.sleep(0)
        gate.open()
        await asyncio.gather(*many, one)

    assert [["large 0"], ["small"], ["large 1"], ["large 2"], ["large 3"]] == played(story)[1:]


def test_a_job_given_up_while_it_waits_is_never_computed() -> None:
    """And makes room for another of the same asker."""

    async def story(gate: Gate) -> None:
        await gate.occupied()
        tasks = [gate.ask(str(n)) for n in range(MAX_WAITING_REQUESTS)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]
        another = gate.ask("another")
        await asyncio.sleep(0)
        gate.open()
        await asyncio.gather(another, *tasks[:1], *tasks[2:])

    [_, words] = played(story)
    assert MAX_WAITING_REQUESTS == len(words)
    assert ("1" in words, "another" in words) == (False, True)


def test_a_job_given_up_while_it_is_computed_spoils_no_other() -> None:
    """The others of its batch, and what comes later, are answered."""

    async def story(gate: Gate) -> None:
        first = await gate.occupied()
        second = gate.ask("second")
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        gate.open()
        assert "SECOND" == await second

    assert [["first"], ["second"]] == played(story)


def test_no_more_than_so_many_of_one_asker_wait() -> None:
    """The next one is refused at once; others are let in."""

    async def story(gate: Gate) -> None:
        await gate.occupied()
        tasks = [gate.ask(str(n)) for n in range(MAX_WAITING_REQUESTS)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError, match=f"busy: {MAX_WAITING_REQUESTS} of your requests"):
            await gate.ask("too much")
        other = gate.ask("other", "stranger")
        await asyncio.sleep(0)
        gate.open()
        assert "OTHER" == await other
        await asyncio.gather(*tasks)
        assert "AGAIN" == await gate.ask("again")

    assert "too much" not in [word for batch in played(story) for word in batch]


def test_an_error_of_one_job_is_nobody_elses() -> None:
    """Whether it is known which one, or each must be tried alone."""

    async def story(gate: Gate) -> None:
        await gate.occupied()
        tasks = [gate.ask(word) for word in ("a", "lost", "spoils all", "b")]
        await asyncio.sleep(0)
        gate.open()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert ["A", CacheLostError, ValueError, "B"] == [
            answer if isinstance(answer, str) else type(answer) for answer in found
        ]

    together, *alone = played(story)[1:]
    assert [[word] for word in together] == alone


def test_work_between_batches_waits_for_the_one_that_is_computed() -> None:
    """It sees none half done."""

    async def story(gate: Gate) -> None:
        first = await gate.occupied()
        work = gate.batcher.between(lambda: gate.batches.append(["between"]))
        assert not work.done()
        gate.open()
        await asyncio.wrap_future(work)
        assert "FIRST" == await first

    assert [["first"], ["between"]] == played(story)


def picked(queues: dict[str, list[tuple[str, int, bytes | None]]], max_tokens: int) -> str:
    """The jobs of a batch; each is given by name, tokens and key."""

    async def pick() -> str:
        waiting = {
            asker: [
                Waiting[str, str](job=name, asker=asker, num_tokens=size, key=key)
                for name, size, key in jobs
            ]
            for asker, jobs in queues.items()
        }
        return "".join(each.job for each in pick_batch(waiting, max_tokens=max_tokens))

    return asyncio.run(pick())


def test_askers_take_turns() -> None:
    """One of each, and again."""
    queues = {
        "x": [("a", 1, None), ("b", 1, None), ("c", 1, None)],
        "y": [("d", 1, None)],
        "z": [("e", 1, None), ("f", 1, None)],
    }
    assert ("adebfc", "adeb") == (picked(queues, 9), picked(queues, 4))


def test_a_job_that_does_not_fit_ends_the_batch() -> None:
    """Small ones behind it do not pass it again and again."""
    queues = {"x": [("a", 2, None)], "y": [("b", 9, None)], "z": [("c", 1, None)]}
    assert "a" == picked(queues, 5)


def test_a_job_over_the_bound_is_alone() -> None:
    """It is computed all the same."""
    assert "a" == picked({"x": [("a", 9, None)], "y": [("b", 1, None)]}, 5)


def test_jobs_of_one_key_are_computed_one_after_another() -> None:
    """The second, and all of that asker behind it, waits; another asker's key is another one."""
    queues = {
        "x": [("a", 1, b"k"), ("b", 1, b"k"), ("c", 1, None)],
        "y": [("d", 1, b"k"), ("e", 1, None)],
    }
    assert "ade" == picked(queues, 9)


def test_nothing_waits() -> None:
    """Then nothing is computed."""
    assert "" == picked({}, 9)


def test_a_batch_waits_for_others_while_many_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who were answered lately will ask again: half of them are waited for."""
    monkeypatch.setattr("bt_p2p.chain.batcher.MAX_GATHER_S", 0.0)
    monkeypatch.setattr("bt_p2p.chain.batcher.RECENT_S", DEADLINE_S)

    async def story(gate: Gate) -> None:
        gate.open()
        await asyncio.gather(*(gate.ask("word", f"peer {index}") for index in range(4)))
        monkeypatch.setattr("bt_p2p.chain.batcher.MAX_GATHER_S", DEADLINE_S)
        gate.batches.clear()
        one = gate.ask("one", "peer 1")
        await asyncio.sleep(0.1)
        assert [] == gate.batches
        await asyncio.gather(one, gate.ask("two", "peer 2"))

    assert [["one", "two"]] == played(story)


def test_a_lone_asker_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one of two, and nobody waits for those who asked long ago."""
    endless_s = 2 * DEADLINE_S
    monkeypatch.setattr("bt_p2p.chain.batcher.MAX_GATHER_S", endless_s)

    async def story(gate: Gate) -> None:
        gate.open()
        for word in ("a", "b", "c"):
            await gate.ask(word)
        await gate.ask("d", "another")
        await gate.ask("e")
        monkeypatch.setattr("bt_p2p.chain.batcher.MAX_GATHER_S", 0.0)
        await asyncio.gather(*(gate.ask("word", f"peer {index}") for index in range(9)))
        monkeypatch.setattr("bt_p2p.chain.batcher.MAX_GATHER_S", endless_s)
        await asyncio.sleep(0.3)
        await gate.ask("f")

    played(story)
