"""Tensors <-> bytes for peers (safetensors), and the hash of a set of tensors."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from bt_p2p.errors import WireFormatError

TensorSpec = tuple[tuple[int, ...], torch.dtype]
"""Shape and dtype of one tensor."""

_HEADER_BYTES_PER_TENSOR = 256
"""Room for shape, dtype and offsets of one tensor in the header, besides its name."""
_HEADER_BYTES = 1024


def tensor_bytes(tensor: Tensor) -> bytes:
    """The raw bytes of a tensor in row-major order."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes()


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """Hex sha256 over names, dtypes, shapes and bytes, in order of the names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        title = json.dumps([name, str(tensor.dtype), list(tensor.shape)])
        digest.update(f"{len(title)}:{title}".encode())
        digest.update(tensor_bytes(tensor))
    return digest.hexdigest()


def encode_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    """Safetensors bytes of the tensors, without metadata."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(plain)


def max_encoded_size_bytes(expected: Mapping[str, TensorSpec]) -> int:
    """Largest size `decode_tensors` accepts for these tensors."""
    header = _HEADER_BYTES + sum(
        _HEADER_BYTES_PER_TENSOR + 6 * len(name.encode()) for name in expected
    )
    return header + sum(math.prod(shape) * dtype.itemsize for shape, dtype in expected.values())


def decode_tensors(data: bytes, expected: Mapping[str, TensorSpec]) -> dict[str, Tensor]:
    """Read tensors a stranger sent: exactly the expected ones, all finite.

    The size is checked before anything is parsed.

    Args:
        data: safetensors bytes.
        expected: shape and dtype of every tensor, by name.

    Returns:
        The tensors, in the order of `expected`.

    Raises:
        WireFormatError: too large, malformed, other names, shapes or dtypes, or not finite.
    """
    largest = max_encoded_size_bytes(expected)
    if len(data) > largest:
        raise WireFormatError(
            f"weights of {len(data)} bytes are over the {largest} bytes of this block; "
            f"drop this peer"
        )
    try:
        tensors = safetensors.torch.load(data)
    except (safetensors.SafetensorError, ValueError, KeyError, RuntimeError) as exc:
        raise WireFormatError(f"weights are not safetensors: {exc}; drop this peer") from exc
    if tensors.keys() != expected.keys():
        odd = min(tensors.keys() ^ expected.keys())
        raise WireFormatError(
            f"weights have the wrong names, first {odd!r:.80}; the peer runs another model"
        )
    for name, (shape, dtype) in expected.items():
        tensor = tensors[name]
        if tuple(tensor.shape) != tuple(shape) or tensor.dtype != dtype:
            raise WireFormatError(
                f"tensor {name} is {tensor.dtype} {list(tensor.shape)}, expected {dtype} "
                f"{list(shape)}; the peer runs another model"
            )
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise WireFormatError(f"tensor {name} is not finite; drop this peer")
    return {name: tensors[name] for name in expected}
