"""How exactly tensors travel between peers: the client's choice for each request.

`float32` is exact. `float16` halves the bytes; log-probabilities are then normalised again. `int8` sends z
and features, which one block hands to the next, as whole numbers from -127 to 127 with a scale for each
position, and log-probabilities as `float16`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, get_args

import numpy as np
import torch
from torch import Tensor

from bt_p2p.chain.modes import Precision
from bt_p2p.errors import WireFormatError

PRECISIONS: Final[tuple[Precision, ...]] = get_args(Precision)

_FLOATS = {"float32": "<f4", "float16": "<f2"}
_MAX_FLOAT16 = 65504.0
_STEPS = 127


def log_prob_precision(precision: Precision) -> Precision:
    """That of log-probabilities, which lose too much in 8 bits."""
    return "float16" if precision == "int8" else precision


def encoded_size_bytes(shape: Sequence[int], precision: Precision) -> int:
    """Of a tensor of this shape."""
    numel = math.prod(shape)
    if precision == "int8":
        return numel + 4 * (numel // shape[-1])
    return np.dtype(_FLOATS[precision]).itemsize * numel


def encode(tensor: Tensor, precision: Precision) -> bytes:
    """A finite float tensor, little endian, in row-major order; rows follow their scales in `int8`."""
    values = tensor.detach().float().contiguous().numpy()
    if precision == "int8":
        scales = np.abs(values).max(axis=-1, keepdims=True) / _STEPS
        rows = np.rint(values / np.where(scales > 0, scales, 1))
        return b"".join((scales.astype("<f4").tobytes(), rows.astype("<i1").tobytes()))
    if precision == "float16":
        values = values.clip(-_MAX_FLOAT16, _MAX_FLOAT16)
    data: bytes = values.astype(_FLOATS[precision]).tobytes()
    return data


def decode(data: bytes, shape: Sequence[int], precision: Precision) -> Tensor:
    """A float32 tensor of a stranger's bytes, which may hold NaN and infinities.

    Raises:
        WireFormatError: there are not as many bytes as the shape needs.
    """
    if len(data) != encoded_size_bytes(shape, precision):
        raise WireFormatError(
            f"{precision} tensor of shape {tuple(shape)} in {len(data)} bytes, "
            f"expected {encoded_size_bytes(shape, precision)}"
        )
    if precision == "int8":
        num_rows = math.prod(shape[:-1])
        scales = np.frombuffer(data, dtype="<f4", count=num_rows)[:, None]
        rows = np.frombuffer(data, dtype="<i1", offset=4 * num_rows).reshape(num_rows, -1)
        with np.errstate(over="ignore", invalid="ignore"):
            values = scales * rows.astype(np.float32)
    else:
        values = np.frombuffer(data, dtype=_FLOATS[precision]).astype(np.float32)
    return torch.from_numpy(values).reshape(tuple(shape))


def rounded(tensor: Tensor | None, precision: Precision) -> Tensor | None:
    """What arrives of a tensor."""
    return None if tensor is None else decode(encode(tensor, precision), tensor.shape, precision)


def normalised(log_probs_NPV: Tensor, precision: Precision) -> Tensor:
    """Log-probabilities as they arrived; those that were rounded sum to one again."""
    return log_probs_NPV if precision == "float32" else torch.log_softmax(log_probs_NPV, dim=-1)
