"""Block requests and replies <-> frames. Frames are hostile: sizes, shapes and values are checked.

Tokens travel as uint16, z and log-probabilities as float32, little endian.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bt_p2p.chain.block_rpc import ForwardReply, ForwardRequest
from bt_p2p.errors import WireFormatError
from bt_p2p.protocol.limits import MAX_REQUEST_SEQUENCES
from bt_p2p.protocol.manifest import VOCAB_SIZE
from bt_p2p.swarm.streams import Frame

_MAX_DIM = 1 << 20
_LOG_SUM_TOLERANCE = 1e-2


def encode_request(request: ForwardRequest) -> Frame:
    """The frame that asks for a forward pass."""
    header: dict[str, Any] = {
        "op": "forward",
        "run": request.run_id,
        "block": request.block,
        "mode": request.mode,
        "start": request.start,
        "tokens": list(request.tokens_NT.shape),
        "z": None if request.z_NPZ is None else list(request.z_NPZ.shape),
    }
    body = request.tokens_NT.to(torch.int32).numpy().astype("<u2").tobytes()
    if request.z_NPZ is not None:
        body += _float_bytes(request.z_NPZ)
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
    z_shape = None if header.get("z") is None else _shape(header["z"], num_dims=3)
    num_token_bytes = 2 * int(np.prod(tokens_shape))
    num_z_bytes = 0 if z_shape is None else 4 * int(np.prod(z_shape))
    if len(frame.body) != num_token_bytes + num_z_bytes:
        raise WireFormatError(
            f"request body has {len(frame.body)} bytes, its shapes need "
            f"{num_token_bytes + num_z_bytes}"
        )
    mode, run_id = header.get("mode"), header.get("run")
    if mode not in ("read", "advance"):
        raise WireFormatError(f"mode {mode!r:.40} is not read or advance")
    if not isinstance(run_id, str):
        raise WireFormatError("run is not text")
    tokens = np.frombuffer(frame.body, dtype="<u2", count=num_token_bytes // 2)
    z = None
    if z_shape is not None:
        z = _floats(frame.body[num_token_bytes:], z_shape)
    return ForwardRequest(
        run_id=run_id,
        block=_int(header, "block"),
        mode=mode,
        tokens_NT=torch.from_numpy(tokens.astype(np.int64)).reshape(tokens_shape),
        start=_int(header, "start"),
        z_NPZ=z,
    )


def encode_reply(reply: ForwardReply) -> Frame:
    """The frame that answers a forward request."""
    header = {
        "ok": True,
        "round": reply.round_index,
        "compute_ms": reply.compute_ms,
        "log_probs": list(reply.log_probs_NPV.shape),
        "z": None if reply.z_NPZ is None else list(reply.z_NPZ.shape),
    }
    body = _float_bytes(reply.log_probs_NPV)
    if reply.z_NPZ is not None:
        body += _float_bytes(reply.z_NPZ)
    return Frame(header=header, body=body)


def decode_reply(frame: Frame, request: ForwardRequest) -> ForwardReply:
    """Read a holder's answer, which must be distributions of the shape that was asked for.

    Raises:
        WireFormatError: another shape, not finite, or not normalised.
    """
    num_sequences, num_tokens = request.tokens_NT.shape
    expected = (num_sequences, num_tokens - request.start, VOCAB_SIZE)
    shape = _shape(frame.header.get("log_probs"), num_dims=3)
    z_shape = None if frame.header.get("z") is None else _shape(frame.header["z"], num_dims=3)
    if shape != expected:
        raise WireFormatError(f"log-probabilities have shape {shape}, expected {expected}")
    z_expected = None if request.z_NPZ is None else tuple(request.z_NPZ.shape)
    if z_shape != z_expected:
        raise WireFormatError(f"z has shape {z_shape}, expected {z_expected}")
    num_bytes = 4 * int(np.prod(shape))
    num_z_bytes = 0 if z_shape is None else 4 * int(np.prod(z_shape))
    if len(frame.body) != num_bytes + num_z_bytes:
        raise WireFormatError(
            f"reply body has {len(frame.body)} bytes, its shapes need {num_bytes}"
        )
    log_probs = _floats(frame.body[:num_bytes], shape)
    if not bool(torch.isfinite(log_probs).all()):
        raise WireFormatError("log-probabilities are not finite")
    if float(log_probs.logsumexp(dim=-1).abs().max()) > _LOG_SUM_TOLERANCE:
        raise WireFormatError("log-probabilities do not sum to one")
    z = None
    if z_shape is not None:
        z = _floats(frame.body[num_bytes:], z_shape)
        if not bool(torch.isfinite(z).all()):
            raise WireFormatError("z is not finite")
    compute_ms = frame.header.get("compute_ms")
    return ForwardReply(
        log_probs_NPV=log_probs,
        z_NPZ=z,
        round_index=_int(frame.header, "round"),
        compute_ms=float(compute_ms) if isinstance(compute_ms, int | float) else 0.0,
    )


def _float_bytes(tensor: Tensor) -> bytes:
    data: bytes = tensor.detach().float().contiguous().numpy().astype("<f4").tobytes()
    return data


def _floats(data: bytes, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(np.frombuffer(data, dtype="<f4").copy()).reshape(shape)


def _shape(value: Any, *, num_dims: int) -> tuple[int, ...]:
    if (
        not isinstance(value, list)
        or len(value) != num_dims
        or not all(type(dim) is int and 1 <= dim <= _MAX_DIM for dim in value)
    ):
        raise WireFormatError(f"shape {value!r:.60} is not {num_dims} positive sizes")
    return tuple(value)


def _int(header: dict[str, Any], key: str) -> int:
    value = header.get(key)
    if type(value) is not int or not 0 <= value < 2**40:
        raise WireFormatError(f"{key} is {value!r:.40}, not a whole number in range")
    return value
