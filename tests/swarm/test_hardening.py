"""Each mend of hivemind: the fault without it, and no fault with it.

Mends are global and some faults are fatal, so every case runs in a process of its own.
"""

from __future__ import annotations

import ast
import functools
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.swarm, pytest.mark.slow, pytest.mark.timeout(120)]

PRELUDE = """
import asyncio, sys, torch
import hivemind
from bt_p2p.swarm.hardening import harden
if sys.argv[1] == "mended":
    harden()
"""


def run(code: str, variant: str, *, timeout_s: float = 40.0) -> subprocess.CompletedProcess[str]:
    """Run a case with or without the mends."""
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + code, variant],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def answer(code: str, variant: str) -> str:
    """The last line a case prints; empty if it died before."""
    done = run(code, variant)
    lines = done.stdout.strip().splitlines()
    return lines[-1] if done.returncode == 0 and lines else ""


NESTED = """
import msgpack
from hivemind.utils.serializer import MSGPackSerializer
data = b"\\x01"
for _ in range(20000):
    data = msgpack.packb(msgpack.ExtType(0x40, data))
try:
    MSGPackSerializer.loads(data)
    print("loaded")
except RecursionError:
    print("RecursionError")
except ValueError as exc:
    print("refused" if "nested over" in str(exc) else exc)
"""


def test_nested_extension_types_are_refused_instead_of_crashing() -> None:
    """A few hundred bytes from a stranger end an unprotected DHT process."""
    assert "refused" == answer(NESTED, "mended")
    assert "refused" != answer(NESTED, "bare")


UNDECODABLE = """
import time
from hivemind.utils import get_dht_time
from hivemind.dht.node import DHTNode
from hivemind.dht.routing import DHTID
from hivemind.dht.protocol import DHTProtocol

async def main():
    node = await DHTNode.create()
    key = DHTID.generate(source="key")
    until = get_dht_time() + 60
    pack = DHTProtocol.serializer.dumps
    node.protocol.storage.store_subkey(key, "good", pack("value"), until)
    node.protocol.storage.store_subkey(key, "bad", b"\\xc1", until + 1)
    try:
        found = await asyncio.wait_for(node.get("key", latest=True), 5)
        print(sorted(found.value))
    except (asyncio.TimeoutError, TimeoutError):
        print("hangs")
    except Exception as exc:
        print("raises")
    await node.shutdown()

asyncio.run(main())
"""


def test_one_undecodable_subkey_does_not_hide_the_others() -> None:
    """Without the mend every reader of the key waits for ever, or gets nothing."""
    assert "['good']" == answer(UNDECODABLE, "mended")
    assert "['good']" != answer(UNDECODABLE, "bare")


STREAM = """
from hivemind.p2p import P2P

async def main():
    reader = asyncio.StreamReader()
    reader.feed_data((1 << 40).to_bytes(P2P.HEADER_LEN, P2P.BYTEORDER) + b"x" * 1000)
    try:
        await asyncio.wait_for(P2P.receive_raw_data(reader), 1)
    except ValueError as exc:
        print("refused")
    except (asyncio.TimeoutError, TimeoutError):
        print("waits for a terabyte")

asyncio.run(main())
"""


def test_an_announced_terabyte_is_refused_before_it_is_read() -> None:
    """Without the mend memory is filled as long as the stranger sends."""
    assert "refused" == answer(STREAM, "mended")
    assert "waits for a terabyte" == answer(STREAM, "bare")


REDUCER = """
from hivemind.averaging.partition import AllreduceException, TensorPartReducer

async def main(part, weight):
    reducer = TensorPartReducer((torch.Size([3]),), 2)
    mine = asyncio.create_task(reducer.accumulate_part(0, 0, torch.ones(3)))
    await asyncio.sleep(0)
    try:
        average = await reducer.accumulate_part(1, 0, part, weight=weight)
        await mine
        print("honest" if torch.allclose(average, torch.ones(3)) else "spoilt")
    except AllreduceException:
        mine.cancel()
        print("refused")

asyncio.run(main({part}, {weight}))
"""


@pytest.mark.parametrize(
    ("part", "weight"),
    [
        ("torch.tensor([1.0, float('nan'), 1.0])", "1.0"),
        ("torch.full((3,), 5.0)", "1e12"),
        ("torch.full((3,), 5.0)", "-0.5"),
        ("torch.full((1,), 5.0)", "1.0"),
    ],
)
def test_a_member_cannot_spoil_the_average(part: str, weight: str) -> None:
    """NaN, an absurd or negative weight, and a shape that would be broadcast."""
    code = REDUCER.format(part=part, weight=weight)

    assert "refused" == answer(code, "mended")
    assert "spoilt" == answer(code, "bare")


RESULT = """
from hivemind.averaging.partition import AllreduceException, TensorPartContainer

async def main():
    container = TensorPartContainer([torch.ones(4)], (0.5, 0.5), part_size_bytes=8)
    try:
        container.register_processed_part(0, 0, torch.full((2,), float("inf")))
        print("taken")
    except AllreduceException:
        print("refused")

asyncio.run(main())
"""


def test_a_reducer_cannot_hand_back_nonsense() -> None:
    """Its share of the average has to be finite and of the right shape."""
    assert "refused" == answer(RESULT, "mended")
    assert "taken" == answer(RESULT, "bare")


LARGE = """
import multiprocessing, os, pickle, struct, threading

def main():
    reader, writer = multiprocessing.Pipe(duplex=False)
    os.set_blocking(reader.fileno(), False)  # as uvloop leaves it
    message = pickle.dumps(b"x" * 20_000)
    framed = struct.pack("!i", len(message)) + message
    os.write(writer.fileno(), framed[:10_000])
    rest = threading.Timer(0.2, os.write, (writer.fileno(), framed[10_000:]))
    rest.start()
    try:
        print(len(reader.recv()))
    except BlockingIOError:
        print("desynced")
    rest.join()

main()
"""


def test_a_control_message_in_two_parts_does_not_desync_the_pipe() -> None:
    """Without the mend a message above 16 KiB can leave the child deaf for good."""
    assert "20000" == answer(LARGE, "mended")
    assert "desynced" == answer(LARGE, "bare")


DIAL = """
from hivemind.p2p import P2P, PeerID
from hivemind.p2p.p2p_daemon_bindings.utils import P2PDaemonError

NOBODY = PeerID.from_base58("12D3KooWCtcgQySagj3N4MLdcC1hYb8M7DjjkfTC6qwJmeYH91Gp")

async def main():
    p2p = await P2P.create()
    writers = []
    connect = p2p._client.control.daemon_connector.open_connection

    async def open_connection():
        reader, writer = await connect()
        writers.append(writer)
        return reader, writer

    p2p._client.control.daemon_connector.open_connection = open_connection
    try:
        await asyncio.wait_for(p2p.call_binary_stream_handler(NOBODY, "/x"), 10)
    except P2PDaemonError:
        print("closed" if writers[-1].is_closing() else "open")
    writers[-1].close()
    await p2p.shutdown()

asyncio.run(main())
"""


def test_a_dial_that_fails_leaves_no_socket_open() -> None:
    """Without the mend each one is left to the garbage collector."""
    assert "closed" == answer(DIAL, "mended")
    assert "open" == answer(DIAL, "bare")


SHARED = """
from pathlib import Path
import os

shared = torch.zeros(10).share_memory_()
for path in Path("/dev/shm").glob(f"torch_{os.getpid()}_*"):
    path.unlink()  # as the helper of a process does that has shared it and died
del shared
print("alive")
"""


def test_shared_memory_whose_file_is_gone_does_not_abort_the_process() -> None:
    """Without the mend it is a C++ exception in a destructor, which nothing can catch."""
    assert "alive" == answer(SHARED, "mended")
    assert "" == answer(SHARED, "bare")


ENDING_SENDER = """
import multiprocessing.connection, multiprocessing.resource_sharer, threading

class Sent(multiprocessing.resource_sharer.DupFd):
    def __init__(self, address):
        self._id = (address, 1)

listener = multiprocessing.connection.Listener(family="AF_UNIX")
hang_up = threading.Thread(target=lambda: listener._listener._socket.accept()[0].close())
hang_up.start()
try:
    Sent(listener.address).detach()
except OSError:
    print("an error that loops survive")
except EOFError:
    print("an error that ends them")
hang_up.join()
"""


def test_a_sender_that_ends_does_not_end_who_receives() -> None:
    """Without the mend an averager that stops in the middle of a request ends the DHT process."""
    assert "an error that loops survive" == answer(ENDING_SENDER, "mended")
    assert "an error that ends them" == answer(ENDING_SENDER, "bare")


SEARCH = """
from hivemind.averaging.key_manager import GroupKeyManager
from hivemind.averaging.matchmaking import PotentialLeaders
from hivemind.utils import get_dht_time
from hivemind.p2p import PeerID

class Directory:
    peer_id = PeerID(b"me")
    num_gets = 0
    async def get(self, *args, **kwargs):
        self.num_gets += 1
    async def store(self, *args, **kwargs):
        return True

class Step:
    deadline = scheduled_time = get_dht_time() + 60

async def main():
    directory = Directory()
    manager = GroupKeyManager(directory, "run", "", None)
    leaders = PotentialLeaders(directory.peer_id, 5.0, None)
    async with leaders.begin_search(Step, manager):
        for _ in range(2):  # the first ends at once: our own declaration ends it
            try:
                await asyncio.wait_for(leaders.pop_next_leader(), 1.0)
            except asyncio.TimeoutError:
                pass
    print("calm" if directory.num_gets <= 10 else "busy")

asyncio.run(main())
"""


def test_a_replica_that_waits_for_others_does_not_ask_without_a_pause() -> None:
    """It cost half a CPU second each round, more than the average itself."""
    assert "calm" == answer(SEARCH, "mended")
    assert "busy" == answer(SEARCH, "bare")


STRANGER = """
import uuid
import bt_p2p.swarm.hardening as hardening
from hivemind.dht.routing import DHTID
from hivemind.dht.storage import DHTLocalStorage
from hivemind.p2p import P2P
from hivemind.p2p.p2p_daemon_bindings.control import ControlClient
from hivemind.proto import dht_pb2, p2pd_pb2
from hivemind.utils import get_dht_time

NUM_CALLS, NUM_STREAMS = 150, 80
until = get_dht_time() + 600

async def calls(server, client):
    running = most = 0
    enough = asyncio.Event()

    async def handle(request, context):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await enough.wait()
        return request

    await server.add_protobuf_handler("handle", handle, dht_pb2.PingRequest)
    ping = dht_pb2.PingRequest()
    tasks = [
        asyncio.ensure_future(
            client.call_protobuf_handler(server.peer_id, "handle", ping, dht_pb2.PingRequest)
        )
        for _ in range(NUM_CALLS)
    ]
    while running + sum(task.done() for task in tasks) < NUM_CALLS:
        await asyncio.sleep(0.02)
    enough.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    refused = [each for each in answers if "busy: 64 requests at once are yours" in str(each)]
    return most, len(refused), len(server._client.control._handler_tasks)

async def streams(server, client, name):
    async def handle(info, reader, writer):
        writer.write(b"x")
        await reader.read()
        writer.close()

    async def opened():
        _, reader, writer = await client.call_binary_stream_handler(server.peer_id, name)
        try:
            return len(await asyncio.wait_for(reader.read(1), 10)), writer
        except ConnectionError:
            return 0, writer

    await server.add_binary_stream_handler(name, handle)
    found = [await opened() for _ in range(NUM_STREAMS)]
    for _, writer in found:
        writer.close()
    return sum(count for count, _ in found)

async def cancelled():
    class Client:
        persistent_conn_max_msg_size = 1 << 20

    client, call_id = Client(), uuid.uuid4()
    client.unary_handlers = {"slow": lambda data, peer: asyncio.sleep(60)}
    client._handler_tasks, client._pending_messages = {}, asyncio.Queue()
    request = p2pd_pb2.CallUnaryRequest(peer=b"peer", proto="slow", data=b"")
    task = asyncio.create_task(ControlClient._handle_persistent_request(client, call_id, request))
    client._handler_tasks[call_id] = task
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return len(client._handler_tasks)

def stored():
    hardening.MAX_STORED_SIZE_BYTES = 300_000
    storage, other = DHTLocalStorage(), DHTLocalStorage()
    keys = [DHTID.generate(source=str(index)) for index in range(400)]
    num_keys = sum(storage.store_subkey(key, b"s", b"x" * 1000, until) for key in keys)
    num_plain = sum(
        storage.store(DHTID.generate(source=f"plain {index}"), b"x" * 1000, until)
        for index in range(100)
    )
    is_renewed = storage.store_subkey(keys[0], b"s", b"y" * 1000, until + 1)
    num_subkeys = sum(other.store_subkey(keys[0], index, b"x", until) for index in range(2000))
    return num_keys, num_plain, is_renewed, num_subkeys

def renewed():
    storage, key = DHTLocalStorage(), DHTID.generate(source="key")
    for index in range(10_000):
        storage.store_subkey(key, b"s", b"x", until + index / 100 * (index % 2))
    inner = storage.get(key).value
    return max(len(storage.expiration_heap), len(inner.expiration_heap)) < 100

async def main():
    server = await P2P.create()
    client = await P2P.create(initial_peers=await server.get_visible_maddrs())
    found = {"calls": await calls(server, client)}
    for name in ("hivemind", "/bt-p2p/x"):
        found[name] = await streams(server, client, name)
    found |= {"cancelled": await cancelled(), "stored": stored(), "renewed": renewed()}
    await client.shutdown()
    await server.shutdown()
    print(repr(found))

asyncio.run(main())
"""


@functools.cache
def stranger(variant: str) -> dict[str, object]:
    """What one peer can take of a process of hivemind."""
    found: dict[str, object] = ast.literal_eval(answer(STRANGER, variant))
    return found


def test_a_peer_gets_a_quarter_of_the_calls_that_are_answered_at_once() -> None:
    """Without the mend all that it makes are answered at the same time. None is remembered."""
    assert (64, 86, 0) == stranger("mended")["calls"]
    assert (150, 0, 0) == stranger("bare")["calls"]


def test_a_peer_gets_a_quarter_of_the_streams_of_hivemind() -> None:
    """Ours are counted elsewhere, with a word to the peer."""
    assert (64, 80) == (stranger("mended")["hivemind"], stranger("mended")["/bt-p2p/x"])
    assert (80, 80) == (stranger("bare")["hivemind"], stranger("bare")["/bt-p2p/x"])


def test_a_call_that_is_cancelled_is_forgotten() -> None:
    """Without the mend each of them is kept for ever."""
    assert 0 == stranger("mended")["cancelled"]
    assert 1 == stranger("bare")["cancelled"]


def test_strangers_cannot_fill_the_memory_with_records() -> None:
    """New ones are refused when there is no room; those that are there can be renewed."""
    assert (300, 0, True, 1024) == stranger("mended")["stored"]
    assert (400, 100, True, 2000) == stranger("bare")["stored"]


def test_a_record_that_is_stored_again_and_again_takes_no_more_room() -> None:
    """Without the mend it does until it expires."""
    assert stranger("mended")["renewed"]
    assert not stranger("bare")["renewed"]
