"""`bt-node serve` as a real process over a real swarm, asked by the real `openai` client."""

from __future__ import annotations

import re
import signal
import socket
import subprocess

import openai
import psutil
import pytest

from bt_p2p.protocol.manifest import RunManifest
from node.snapshot import read_snapshot
from tests.e2e.conftest import (
    END_TIMEOUT_S,
    Programs,
    descendants,
    node_of,
    wait_until,
    write_tiny_manifest,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

KEY = "key-of-the-test"
START_TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def manifest(programs: Programs) -> RunManifest:
    """Two small blocks."""
    return write_tiny_manifest(programs.folder / "manifest.json")


@pytest.fixture(scope="module")
def swarm(programs: Programs, manifest: RunManifest) -> str:
    """An address of a swarm with a holder for each block."""
    address = ""
    for name in ("first", "second"):
        state = programs.folder / name
        entry = ["--initial-peers", address] if address else []
        programs.start(
            "node", "join", "--manifest", "manifest.json", "--state-dir", str(state),
            "--host", "127.0.0.1", "--threads", "1", *entry, log=f"{name}.log",
        )  # fmt: skip
        wait_until(
            lambda state=state: (found := read_snapshot(state)) and found.state == "training",
            deadline_s=START_TIMEOUT_S,
            what=f"{name} trains",
        )
        address = node_of(state).addresses[0]
    return address


@pytest.fixture(scope="module")
def server(programs: Programs, swarm: str) -> tuple[subprocess.Popen[bytes], str]:
    """A server for one request at a time, with a key, and its URL."""
    programs.environment["BT_NODE_API_KEY"] = KEY
    process = programs.start(
        "node", "serve", "--initial-peers", swarm, "--port", "0", "--max-concurrent", "1",
        log="serve.log",
    )  # fmt: skip
    del programs.environment["BT_NODE_API_KEY"]

    def url() -> str | None:
        assert process.poll() is None, programs.text("serve.log")
        found = re.search(r"on (http://127\.0\.0\.1:\d+/v1)$", programs.text("serve.log"), re.M)
        return found and found[1]

    wait_until(url, deadline_s=START_TIMEOUT_S, what="the server listens")
    return process, str(url())


def test_the_openai_client_completes_streams_and_cancels(
    programs: Programs, manifest: RunManifest, server: tuple[subprocess.Popen[bytes], str]
) -> None:
    """One story, and its end leaves no process behind."""
    process, url = server
    with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0, timeout=30) as client:
        (model,) = client.models.list().data
        assert manifest.run_id == model.id

        def ask(**options: object):
            fields = {"model": model.id, "prompt": "The private ", "seed": 1, "max_tokens": 20}
            return client.completions.create(**{**fields, **options})

        # whole, with all that the client reads of it
        done = ask(logprobs=3)
        (choice,) = done.choices
        assert ("length", 12, 20) == (
            choice.finish_reason, done.usage.prompt_tokens, done.usage.completion_tokens,
        )  # fmt: skip
        assert 20 == len(choice.logprobs.token_logprobs)

        # streamed, the same text, unless a round ends in between and changes the weights
        def is_the_same() -> bool:
            with ask(stream=True, stream_options={"include_usage": True}) as stream:
                chunks = list(stream)
            assert 32 == chunks[-1].usage.total_tokens
            streamed = "".join(part.text for chunk in chunks for part in chunk.choices)
            return ask().choices[0].text == streamed

        wait_until(is_the_same, deadline_s=15, what="whole and streamed text are the same")
        assert 20 == ask(extra_body={"mode": "sweep"}).usage.completion_tokens

        # a client that goes away frees the only place
        with ask(stream=True, max_tokens=4096) as stream:
            next(iter(stream))
            with pytest.raises(openai.RateLimitError, match="answers 1 requests at once"):
                ask()

        def is_free() -> bool:
            try:
                return bool(ask(max_tokens=1))
            except openai.RateLimitError:
                return False

        wait_until(is_free, deadline_s=5, what="the cancelled generation ends")

        # errors that a client can act on
        with pytest.raises(openai.BadRequestError, match="max_tokens") as caught:
            ask(max_tokens=5000)
        assert "max_tokens" == caught.value.param
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key="wrong").models.list()

        # a signal ends it at once, in the middle of an answer
        with ask(stream=True, max_tokens=4096) as stream:
            next(iter(stream))
            children = descendants(process.pid)
            process.send_signal(signal.SIGTERM)
            assert 143 == process.wait(END_TIMEOUT_S)
    _, alive = psutil.wait_procs(children, timeout=END_TIMEOUT_S)
    assert [] == alive
    log = programs.text("serve.log")
    assert "private" not in log
    assert 2 == len(log.splitlines()), log


def test_ctrl_c_ends_a_server_that_answers_nobody(programs: Programs, swarm: str) -> None:
    """With its own exit code, also while it starts."""
    process = programs.start(
        "node", "serve", "--initial-peers", swarm, "--port", "0", log="early.log"
    )
    wait_until(lambda: "starting" in programs.text("early.log"), deadline_s=20, what="it starts")
    process.send_signal(signal.SIGINT)
    assert 130 == process.wait(START_TIMEOUT_S)
    assert "error" not in programs.text("early.log")


def test_strangers_and_used_ports_are_refused_in_one_line(programs: Programs) -> None:
    """Before torch is loaded, with exit code 2."""
    exposed = programs.run("node", "serve", "--host", "0.0.0.0", "--port", "0")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        used = programs.run("node", "serve", "--port", str(port))
    assert (2, 2) == (exposed.returncode, used.returncode)
    for done, part in ((exposed, "set an API key"), (used, f"port {port} is in use")):
        (line,) = done.stderr.splitlines()
        assert line.startswith("bt-node: error: ")
        assert part in line
