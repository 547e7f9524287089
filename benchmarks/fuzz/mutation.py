"""A malformed message from valid ones: its tree is changed, or its bytes are."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence

from benchmarks.fuzz.forms import Form, Pairs, Tree

_TREE_SHARE = 0.6
_MAX_CHANGES = 4
_ODD_BYTES = (
    b"\0",
    b"\xff",
    b"\x80",
    b"\x7f",
    b"\xff\xff\xff\xff",
    b"\0\0\0\x80",
    b"\xff" * 8,
    b"\0" * 64,
    b"\x91" * 64,
    b"[" * 64,
)


def mutate(
    rng: random.Random, messages: Sequence[bytes], form: Form | None, *, max_size_bytes: int
) -> bytes:
    """A changed copy of one of some messages, of at most `max_size_bytes`."""
    data = rng.choice(messages)
    if form is not None and rng.random() < _TREE_SHARE:
        try:
            data = _mutate_tree(rng, data, form)
        except (ValueError, OverflowError, RecursionError):  # it is no valid message, or cannot be
            data = _mutate_bytes(rng, data, messages)
        if rng.random() < 1 - _TREE_SHARE:
            data = _mutate_bytes(rng, data, messages)
    else:
        data = _mutate_bytes(rng, data, messages)
    return data[:max_size_bytes]


def _mutate_tree(rng: random.Random, data: bytes, form: Form) -> bytes:
    found, rest = form.split(data)
    root = [copy.deepcopy(found)]
    for _ in range(rng.randint(1, _MAX_CHANGES)):
        slots = list(_slots(root))
        holder, index = rng.choice(slots)
        match rng.randrange(8):
            case 0 | 1 | 2:
                holder[index] = rng.choice(form.odd)
            case 3:
                other_holder, other_index = rng.choice(slots)
                holder[index] = copy.deepcopy(other_holder[other_index])
            case 4:
                for _ in range(rng.choice((1, 5, 17, 40))):
                    holder[index] = [holder[index]]
            case _:
                _resize(rng, holder[index], form)
    return form.join(root[0], rest, rng)


def _slots(node: list[Tree]) -> list[tuple[list[Tree], int]]:
    """Every place in a tree, as the list it is in and its index there."""
    found: list[tuple[list[Tree], int]] = []
    waiting = [node]
    while waiting:
        holder = waiting.pop()
        for index, item in enumerate(holder):
            if not isinstance(holder, Pairs):
                found.append((holder, index))
            if isinstance(item, list):
                waiting.append(item)
    return found


def _resize(rng: random.Random, node: Tree, form: Form) -> None:
    """Add to, take from or shuffle a list or a map."""
    if not isinstance(node, list):
        return
    match rng.randrange(4):
        case 0 if node:
            del node[rng.randrange(len(node))]
        case 1 if node:
            node.extend(
                copy.deepcopy(node[rng.randrange(len(node))]) for _ in range(rng.choice((1, 40)))
            )
        case 2:
            rng.shuffle(node)
        case _ if isinstance(node, Pairs):
            node.append([rng.choice(form.odd), rng.choice(form.odd)])
        case _:
            node.insert(rng.randint(0, len(node)), rng.choice(form.odd))


def _mutate_bytes(rng: random.Random, data: bytes, messages: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, _MAX_CHANGES)):
        rng.choice(_BYTE_CHANGES)(rng, changed, rng.choice(messages))
    return bytes(changed)


def _flip_bit(rng: random.Random, data: bytearray, _other: bytes) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set_byte(rng: random.Random, data: bytearray, _other: bytes) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.randrange(256)


def _write_odd(rng: random.Random, data: bytearray, _other: bytes) -> None:
    odd, at = rng.choice(_ODD_BYTES), rng.randint(0, len(data))
    data[at : at + (len(odd) if rng.random() < 0.5 else 0)] = odd  # in place of others, or between


def _truncate(rng: random.Random, data: bytearray, _other: bytes) -> None:
    del data[rng.randint(0, len(data)) :]


def _cut_out(rng: random.Random, data: bytearray, _other: bytes) -> None:
    at = rng.randint(0, len(data))
    del data[at : at + rng.choice((1, 2, 4, 8, 64))]


def _repeat(rng: random.Random, data: bytearray, _other: bytes) -> None:
    at = rng.randint(0, len(data))
    part = data[at : at + rng.choice((1, 4, 32))]
    data[at:at] = part * rng.choice((1, 2, 100))


def _splice(rng: random.Random, data: bytearray, other: bytes) -> None:
    at = rng.randint(0, len(data))
    data[at:] = other[rng.randint(0, len(other)) :]


def _append(rng: random.Random, data: bytearray, other: bytes) -> None:
    data += other if rng.random() < 0.5 else rng.randbytes(rng.choice((1, 8, 200)))


def _swap_case(rng: random.Random, data: bytearray, _other: bytes) -> None:
    at = rng.randint(0, len(data))
    data[at : at + 8] = data[at : at + 8].swapcase()


_BYTE_CHANGES: tuple[Callable[[random.Random, bytearray, bytes], None], ...] = (
    *(_flip_bit, _flip_bit, _set_byte, _set_byte, _write_odd, _truncate),
    *(_cut_out, _repeat, _splice, _append, _swap_case),
)
