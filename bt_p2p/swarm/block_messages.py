"""Block requests and replies <-> frames. Frames are hostile: sizes, shapes and values are checked.

Tokens travel as uint16, little endian; z, features and log-probabilities as `chain.precision` has it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bt_p2p.chain.block_rpc import (
    ForwardReply,
    ForwardRequest,
    HandedOn,
    HandTo,
    Readiness,
    check_reply_shapes,
    check_reply_values,
)
from bt_p2p.chain.modes import Precision
from bt_p2p.chain.precision import (
    PRECISIONS,
    decode,
    encode,
    encoded_size_bytes,
    log_prob_precision,
    normalised,
)
from bt_p2p.errors import WireFormatError
from bt_p2p.protocol.limits import LINK_ID_SIZE_BYTES, MAX_REQUEST_SEQUENCES
from bt_p2p.swarm.streams import Frame

_MAX_DIM = 1 << 20
_MAX_COMPUTE_MS = 1e7
_MAX_PEER_ID_CHARS = 128


def encode_request(request: ForwardRequest) -> Frame:
    """The frame that asks for a forward pass."""
    header: dict[str, Any] = {
        "op": "forward",
        "run": request.run_id,
        "block": request.block,
        "mode": request.mode,
        "start": request.start,
        "tokens": list(request.tokens_NT.shape),
        "z": _shape_or_none(request.z_NPZ),
        "features": _shape_or_none(request.features_NTD),
        "cache": request.cache_id,
        "past": request.past,
        "from": request.takes_from,
        "to": None if request.hands_to is None else list(astuple(request.hands_to)),
        "last": request.is_last,
        "precision": request.precision,
    }
    body = request.tokens_NT.to(torch.int32).numpy().astype("<u2").tobytes()
    body += _encoded(request.z_NPZ, request.precision)
    body += _encoded(request.features_NTD, request.precision)
    return Frame(header=header, body=body)


def decode_request(frame: Frame) -> ForwardRequest:
    """Read a stranger's request.

    Raises:
        WireFormatError: a field is missing or of the wrong kind, or sizes do not fit.
    """
    header = frame.header
    tokens_shape = _shape(header.get("tokens"), num_dims=2)
    if tokens_shape[0] > MAX_REQUEST_SEQUENCES:
        raise WireFormatError(f"{tokens_shape[0]} sequences, allowed are {MAX_REQUEST_SEQUENCES}")
    num_token_bytes = 2 * math.prod(tokens_shape)
    if len(frame.body) < num_token_bytes:
        raise WireFormatError(
            f"request body has {len(frame.body)} bytes, its shapes need {num_token_bytes} and more"
        )
    precision = _precision(header)
    z_NPZ, features_NTD = _read_floats(
        frame, {"z": precision, "features": precision}, num_token_bytes
    )
    mode, run_id = header.get("mode"), header.get("run")
    if mode not in ("read", "advance"):
        raise WireFormatError(f"mode {mode!r:.40} is not read or advance")
    if not isinstance(run_id, str):
        raise WireFormatError("run is not text")
    tokens = np.frombuffer(frame.body, dtype="<u2", count=num_token_bytes // 2)
    return ForwardRequest(
        run_id=run_id,
        block=_int(header, "block"),
        mode=mode,
        tokens_NT=torch.from_numpy(tokens.astype(np.int64)).reshape(tokens_shape),
        start=_int(header, "start"),
        z_NPZ=z_NPZ,
        features_NTD=features_NTD,
        cache_id=_optional_bytes(header, "cache"),
        past=_int(header, "past"),
        takes_from=_optional_bytes(header, "from"),
        hands_to=_hand_to(header.get("to")),
        is_last=header.get("last") is True,
        precision=precision,
    )


def encode_readiness(readiness: Readiness) -> Frame:
    """The frame that says how busy a holder is."""
    return Frame(
        header={
            "ok": True,
            "round": readiness.round_index,
            "waiting": readiness.num_waiting,
            "compute_ms": readiness.compute_ms,
        }
    )


def decode_readiness(frame: Frame) -> Readiness:
    """Read a holder's word on itself.

    Raises:
        WireFormatError: a field is missing, of the wrong kind or out of range.
    """
    compute_ms = frame.header.get("compute_ms")
    if not isinstance(compute_ms, int | float) or not 0 <= compute_ms < _MAX_COMPUTE_MS:
        raise WireFormatError(f"compute_ms is {compute_ms!r:.40}, not a number in range")
    return Readiness(
        round_index=_int(frame.header, "round"),
        num_waiting=_int(frame.header, "waiting"),
        compute_ms=float(compute_ms),
    )


def encode_handed_on(handed: HandedOn) -> Frame:
    """The frame that brings the next holder its input."""
    header = {
        "op": "hand_on",
        "link": handed.link_id,
        "z": _shape_or_none(handed.z_NPZ),
        "features": _shape_or_none(handed.features_NTD),
        "precision": handed.precision,
    }
    body = _encoded(handed.z_NPZ, handed.precision)
    return Frame(header=header, body=body + _encoded(handed.features_NTD, handed.precision))


def decode_handed_on(frame: Frame) -> HandedOn:
    """Read what another holder hands on; the service checks shapes and values before use.

    Raises:
        WireFormatError: a field is missing or of the wrong kind, or sizes do not fit.
    """
    link_id = _optional_bytes(frame.header, "link")
    if link_id is None:
        raise WireFormatError("a link has no name")
    precision = _precision(frame.header)
    z_NPZ, features_NTD = _read_floats(frame, {"z": precision, "features": precision}, 0)
    return HandedOn(link_id=link_id, z_NPZ=z_NPZ, features_NTD=features_NTD, precision=precision)


def encode_reply(reply: ForwardReply, precision: Precision) -> Frame:
    """The frame that answers a forward request, in the precision that it asked for."""
    header = {
        "ok": True,
        "round": reply.round_index,
        "compute_ms": reply.compute_ms,
        "log_probs": list(reply.log_probs_NPV.shape),
        "z": _shape_or_none(reply.z_NPZ),
        "features": _shape_or_none(reply.features_NTD),
    }
    body = _encoded(reply.log_probs_NPV, log_prob_precision(precision))
    body += _encoded(reply.z_NPZ, precision) + _encoded(reply.features_NTD, precision)
    return Frame(header=header, body=body)


def decode_reply(frame: Frame, request: ForwardRequest) -> ForwardReply:
    """Read a holder's answer, which must be distributions of the shape that was asked for.

    Raises:
        WireFormatError: another shape, not finite, or not normalised.
    """
    check_reply_shapes(
        request,
        log_probs=_shape(frame.header.get("log_probs"), num_dims=3),
        z=_optional_shape(frame.header.get("z")),
        features=_optional_shape(frame.header.get("features")),
    )
    precision = log_prob_precision(request.precision)
    log_probs, z_NPZ, features_NTD = _read_floats(
        frame,
        {"log_probs": precision, "z": request.precision, "features": request.precision},
        0,
    )
    assert log_probs is not None
    check_reply_values(log_probs, z_NPZ, features_NTD)
    compute_ms = frame.header.get("compute_ms")
    return ForwardReply(
        log_probs_NPV=normalised(log_probs, precision),
        z_NPZ=z_NPZ,
        features_NTD=features_NTD,
        round_index=_int(frame.header, "round"),
        compute_ms=float(compute_ms) if isinstance(compute_ms, int | float) else 0.0,
    )


def _read_floats(
    frame: Frame, precisions: Mapping[str, Precision], offset: int
) -> list[Tensor | None]:
    """The tensors whose shapes stand in the header, one after another to the end of the body."""
    shapes = {name: _optional_shape(frame.header.get(name)) for name in precisions}
    sizes = {
        name: 0 if shape is None else encoded_size_bytes(shape, precisions[name])
        for name, shape in shapes.items()
    }
    if len(frame.body) != offset + sum(sizes.values()):
        raise WireFormatError(
            f"body has {len(frame.body)} bytes, its shapes need {offset + sum(sizes.values())}"
        )
    tensors: list[Tensor | None] = []
    for name, shape in shapes.items():
        data = frame.body[offset : offset + sizes[name]]
        tensors.append(None if shape is None else decode(data, shape, precisions[name]))
        offset += sizes[name]
    return tensors


def _encoded(tensor: Tensor | None, precision: Precision) -> bytes:
    return b"" if tensor is None else encode(tensor, precision)


def _precision(header: dict[str, Any]) -> Precision:
    found = header.get("precision")
    for precision in PRECISIONS:
        if found == precision:
            return precision
    raise WireFormatError(f"precision {found!r:.40} is not one of {', '.join(PRECISIONS)}")


def _shape(value: Any, *, num_dims: int) -> tuple[int, ...]:
    if (
        not isinstance(value, list)
        or len(value) != num_dims
        or not all(type(dim) is int and 1 <= dim <= _MAX_DIM for dim in value)
    ):
        raise WireFormatError(f"shape {value!r:.60} is not {num_dims} positive sizes")
    return tuple(value)


def _optional_shape(value: Any) -> tuple[int, ...] | None:
    return None if value is None else _shape(value, num_dims=3)


def _shape_or_none(tensor: Tensor | None) -> list[int] | None:
    return None if tensor is None else list(tensor.shape)


def _optional_bytes(header: dict[str, Any], key: str) -> bytes | None:
    value = header.get(key)
    if value is not None and not isinstance(value, bytes):
        raise WireFormatError(f"{key} is {value!r:.40}, not bytes")
    return value


def _hand_to(value: Any) -> HandTo | None:
    match value:
        case None:
            return None
        case [str(peer_id), bytes(link_id)] if (
            len(peer_id) <= _MAX_PEER_ID_CHARS and len(link_id) == LINK_ID_SIZE_BYTES
        ):
            return HandTo(peer_id=peer_id, link_id=link_id)
    raise WireFormatError(f"to is {value!r:.60}, not a peer id and the name of a link")


def _int(header: dict[str, Any], key: str) -> int:
    value = header.get(key)
    if type(value) is not int or not 0 <= value < 2**40:
        raise WireFormatError(f"{key} is {value!r:.40}, not a whole number in range")
    return value
