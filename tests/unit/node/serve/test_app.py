"""node.serve: the whole application over holders in memory."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from node.serve import connection, health
from node.serve.completions import Completions
from tests.unit.node.serve.conftest import MANIFEST

CONTEXT = MANIFEST.model.context


def events(response) -> list:
    """The documents of a stream, without its end."""
    assert "text/event-stream; charset=utf-8" == response.headers["content-type"]
    lines = response.text.split("\n\n")
    assert ["data: [DONE]", ""] == lines[-2:]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


def texts(documents: list) -> str:
    """The text of a stream."""
    return "".join(choice["text"] for document in documents for choice in document["choices"])


def error_of(response) -> tuple[int, str | None, str | None]:
    """Status, field and code of a refusal."""
    error = response.json()["error"]
    assert {"message", "type", "param", "code"} == set(error)
    return response.status_code, error["param"], error["code"]


def test_a_completion_has_text_and_usage(site) -> None:
    """All in the shape of OpenAI's."""
    done = site().ask(max_tokens=12)
    document = done.json()
    assert 200 == done.status_code
    assert ("text_completion", MANIFEST.run_id) == (document["object"], document["model"])
    assert document["id"].startswith("cmpl-")
    assert {"prompt_tokens": 4, "completion_tokens": 12, "total_tokens": 16} == document["usage"]
    (choice,) = document["choices"]
    assert (0, "length", None) == (choice["index"], choice["finish_reason"], choice["logprobs"])
    assert 0 < len(choice["text"]) <= 12


def test_the_same_seed_gives_the_same_text(site) -> None:
    """None given is another one each time."""
    found = [
        site().ask(seed=seed, max_tokens=12).json()["choices"][0]["text"] for seed in (3, 3, 4)
    ]
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("mode", ["ar", "draft", "sweep"])
@pytest.mark.parametrize("seed", range(4))
def test_a_stream_joins_to_the_whole_text(site, mode, seed) -> None:
    """The bytes of an untrained model are rarely whole characters."""
    whole = site().ask(seed=seed, max_tokens=30, mode=mode, echo=True).json()
    found = events(site().ask(seed=seed, max_tokens=30, mode=mode, echo=True, stream=True))
    assert whole["choices"][0]["text"] == texts(found)
    assert texts(found).startswith("the ")
    assert [None] * (len(found) - 1) + ["length"] == [
        document["choices"][0]["finish_reason"] for document in found
    ]
    assert 1 == len({document["id"] for document in found})
    assert not any("usage" in document for document in found)


def test_a_stream_can_tell_its_usage(site) -> None:
    """In a chunk of its own; the others say null."""
    found = events(site().ask(max_tokens=5, stream=True, stream_options={"include_usage": True}))
    assert [None] * (len(found) - 1) == [document["usage"] for document in found[:-1]]
    assert ([], 5) == (found[-1]["choices"], found[-1]["usage"]["completion_tokens"])


@pytest.mark.parametrize("mode", ["ar", "sweep"])
def test_the_default_mode_is_the_servers(site, mode) -> None:
    """A sweep of four bytes needs one traversal: each block is asked once."""
    num_calls = {"ar": 8, "sweep": 2}[mode]
    by_default, by_field = site(mode=mode), site()
    by_default.ask(max_tokens=4)
    by_field.ask(max_tokens=4, mode=mode)
    assert (num_calls, num_calls) == (len(by_default.blocks.calls), len(by_field.blocks.calls))


def test_a_stop_sequence_ends_the_text(site) -> None:
    """Nobody is asked for more, and the sequence is not part of the text."""
    options = {"max_tokens": 30, "logprobs": 0, "temperature": 0}
    whole = site().ask(**options).json()["choices"][0]
    tokens = whole["logprobs"]["tokens"]
    stop = next(token for token in tokens if len(token) == 1)
    position = tokens.index(stop)
    one = site()
    document = one.ask(**options, stop=[stop, "never seen"]).json()
    (choice,) = document["choices"]
    assert ("stop", tokens[:position]) == (choice["finish_reason"], choice["logprobs"]["tokens"])
    assert (position + 1) == document["usage"]["completion_tokens"] == len(one.blocks.calls) / 2
    assert stop not in choice["text"]


def test_log_probabilities_are_those_of_the_composed_model(site) -> None:
    """Greedy: the byte drawn is the likeliest; a stream tells the same."""
    options = {"max_tokens": 8, "temperature": 0, "logprobs": 2}
    found = site().ask(**options).json()["choices"][0]["logprobs"]
    assert [8] * 4 == [len(found[name]) for name in sorted(found)]
    for token, log_prob, top in zip(
        found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True
    ):
        assert (2, log_prob) == (len(top), top[token])
        assert log_prob == max(top.values()) < 0
        assert len(token) == 1 or token.startswith("bytes:\\x")
    streamed = [
        document["choices"][0]["logprobs"]
        for document in events(site().ask(**options, stream=True))
    ]
    for name, values in found.items():
        assert values == [value for part in streamed for value in part[name]]


def test_only_the_run_itself_is_a_model(site) -> None:
    """One entry, and no other name is answered."""
    one = site()
    (entry,) = one.http.get("/v1/models").json()["data"]
    assert (MANIFEST.run_id, "model") == (entry["id"], entry["object"])
    assert (404, "model", "model_not_found") == error_of(one.ask(model="davinci"))


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"prompt": "x" * (CONTEXT + 1)}, (400, "prompt", "context_length_exceeded")),
        ({"prompt": "ä" * CONTEXT}, (400, "prompt", "context_length_exceeded")),
        ({"max_tokens": 51}, (400, "max_tokens", None)),
        ({"n": 2}, (400, "n", None)),
    ],
)
def test_what_goes_too_far_is_refused(site, fields, refusal) -> None:
    """Before any holder is asked."""
    one = site(max_tokens=50)
    assert refusal == error_of(one.ask(**fields))
    assert [] == one.blocks.calls


def test_the_body_is_json_and_of_a_limited_size(site) -> None:
    """Any other type is what a web page may send unasked."""
    one = site()
    assert (415, None, None) == error_of(one.http.post("/v1/completions", content="{}"))
    huge = "x" * connection.MAX_BODY_SIZE_BYTES
    assert (413, None, None) == error_of(one.ask(prompt=huge))


def test_other_paths_and_methods_are_refused_in_the_same_shape(site) -> None:
    """Clients read the message."""
    http = site().http
    assert (404, None, None) == error_of(http.get("/v1/chat/completions"))
    assert (405, None, None) == error_of(http.get("/v1/completions"))


@pytest.mark.parametrize("stream", [False, True])
def test_a_missing_block_is_told_with_a_status(site, stream) -> None:
    """Also to who wanted a stream: nothing was sent yet."""
    one = site()
    one.leases.pop()
    assert (503, None, "missing_blocks") == error_of(one.ask(stream=stream))
    one.is_down = True
    assert (503, None, "swarm_failed") == error_of(one.ask(stream=stream))


def test_a_chain_that_breaks_ends_a_stream_with_an_error(site) -> None:
    """What came before stays, and no [DONE] says that it was all."""
    one = site()
    holder = one.holders[0]
    ask = one.blocks.forward

    async def forward(peer_id, request, *, timeout_s):
        if len(one.blocks.calls) == 20:
            one.faults.always(holder, "drop")
        return await ask(peer_id, request, timeout_s=timeout_s)

    one.blocks.forward = forward
    response = one.ask(max_tokens=30, stream=True)
    lines = [line for line in response.text.split("\n\n") if line]
    last = json.loads(lines[-1].removeprefix("data: "))
    assert (200, "swarm_failed") == (response.status_code, last["error"]["code"])
    assert 1 < len(lines)
    assert "[DONE]" not in response.text


def test_health_names_the_missing_blocks(site) -> None:
    """A block whose only holder does not answer requests yet is missing, too."""
    good, bad, down = site(), site(), site()
    bad.leases[1] = bad.leases[1].model_copy(update={"state": "syncing"})
    down.is_down = True
    found = [one.http.get("/healthz") for one in (good, bad, down)]
    assert [(200, "ok", []), (503, "missing_blocks", [1]), (503, "no_answer", None)] == [
        (one.status_code, one.json()["status"], one.json()["missing_blocks"]) for one in found
    ]
    assert (MANIFEST.run_id, 2) == (found[0].json()["run_id"], found[0].json()["blocks"])


def test_health_does_not_read_the_swarm_each_time(site, monkeypatch) -> None:
    """It needs no key, so it must cost little."""
    one = site()
    assert [200] * 3 == [one.http.get("/healthz").status_code for _ in range(3)]
    assert 1 == one.num_look_ups
    monkeypatch.setattr(health, "_KEEP_S", -1.0)
    one.leases.pop()
    assert 503 == one.http.get("/healthz").status_code


class Caller:
    """A client at the level of ASGI, that can go away in the middle."""

    def __init__(self, app, **fields: object) -> None:
        self.sent: list[dict] = []
        self.has_begun = asyncio.Event()
        self.is_gone = asyncio.Event()
        self.is_reading = asyncio.Event()
        self.is_reading.set()
        body = {"model": MANIFEST.run_id, "prompt": "the ", "max_tokens": 50, **fields}
        self._body = json.dumps(body).encode()
        self._is_read = False
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/completions",
            "raw_path": b"/v1/completions",
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        }
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> dict:
        if not self._is_read:
            self._is_read = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self.is_gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict) -> None:
        await self.is_reading.wait()
        self.sent.append(message)
        if message["type"] == "http.response.body":
            self.has_begun.set()

    @property
    def status(self) -> int:
        """Of the response."""
        return self.sent[0]["status"]


class Gate:
    """Holders that stop answering after some requests, and tell what became of the last one."""

    def __init__(self, site, num_open: int) -> None:
        self.num_cancelled = 0
        self.is_waiting = asyncio.Event()
        self._ask = site.blocks.forward
        self._num_open = num_open
        site.blocks.forward = self.forward

    async def forward(self, peer_id, request, *, timeout_s):
        self._num_open -= 1
        if self._num_open < 0:
            self.is_waiting.set()
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                self.num_cancelled += 1
                raise
        return await self._ask(peer_id, request, timeout_s=timeout_s)


@pytest.mark.parametrize(("stream", "num_open"), [(False, 0), (False, 20), (True, 0), (True, 40)])
def test_a_client_that_goes_away_cancels_its_generation(site, stream, num_open) -> None:
    """Every block's request ends at once, and the place is free for the next client."""

    async def story() -> None:
        one = site(max_concurrent=1)
        gate = Gate(one, num_open)
        first = Caller(one.app, stream=stream)
        await gate.is_waiting.wait()
        assert (stream and num_open > 0) == first.has_begun.is_set()
        second = Caller(one.app)
        await second.task
        assert 429 == second.status
        headers = dict(second.sent[0]["headers"])
        assert b"1" == headers[b"retry-after"]

        first.is_gone.set()
        await asyncio.wait_for(first.task, 5)
        assert 2 == gate.num_cancelled
        assert {asyncio.current_task()} == asyncio.all_tasks()

        gate._num_open = 1000
        third = Caller(one.app)
        await third.task
        assert 200 == third.status

    asyncio.run(story())


def test_a_client_that_goes_away_before_its_body_is_nothing_special(site, caplog) -> None:
    """No response, no log."""

    async def story() -> None:
        one = site()
        caller = Caller(one.app)
        caller._is_read = True
        caller.is_gone.set()
        await caller.task
        assert [] == caller.sent

    asyncio.run(story())
    assert [] == caplog.records


def test_a_slow_body_is_given_up(site, monkeypatch) -> None:
    """Whoever sends nothing holds nothing."""
    monkeypatch.setattr(connection, "BODY_TIMEOUT_S", 0.01)

    async def story() -> None:
        one = site()
        caller = Caller(one.app)
        caller._is_read = True
        await caller.task
        assert 408 == caller.status

    asyncio.run(story())


def test_a_client_that_does_not_read_is_treated_as_gone(site, monkeypatch) -> None:
    """Its place is free again."""
    monkeypatch.setattr("node.serve.event_stream.SEND_TIMEOUT_S", 0.01)

    async def story() -> None:
        one = site(max_concurrent=1)
        stuck = Caller(one.app, stream=True)
        stuck.is_reading.clear()
        await asyncio.wait_for(stuck.task, 5)
        assert [] == stuck.sent
        second = Caller(one.app)
        await second.task
        assert 200 == second.status

    asyncio.run(story())


@pytest.mark.parametrize("stream", [False, True])
def test_a_fault_is_logged_by_its_place_and_never_by_a_text(
    site, monkeypatch, caplog, stream
) -> None:
    """Exceptions may carry what the user wrote."""

    def fail(self, *_: object) -> None:
        raise KeyError(self._limits.mode, "private prompt")

    caplog.set_level(logging.DEBUG)
    one = site()
    one.ask(prompt="private prompt", stop=["private stop"])
    monkeypatch.setattr(Completions, "_options", fail)
    assert (500, None, None) == error_of(one.ask(prompt="private prompt", stream=stream))
    logged = [record.getMessage() for record in caplog.records if record.name.startswith("node")]
    assert 1 == len(logged)
    assert "a request failed: KeyError at test_app.py:" in logged[0]
    assert "private" not in caplog.text
