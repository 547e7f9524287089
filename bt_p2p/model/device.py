"""Which device to run on, and whether bf16 autocast pays there."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from bt_p2p.clock import SystemClock
from bt_p2p.errors import ConfigError

BF16_MIN_SPEEDUP = 1.3
"""bf16 costs accuracy, so on a CPU it must be clearly faster than float32."""
_BENCHMARK_S = 0.1
"""Seconds of the micro-benchmark."""
_MIN_PASSES = 10
"""Passes in each number format, however slow the machine is."""
_BENCHMARK_SHAPE = (1024, 256, 256)
"""Rows, inputs and outputs of the measured matrix product: a small block's own size."""

_OUT_OF_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "std::bad_alloc",
    "could not create a primitive",  # oneDNN's words for it
)


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceChoice:
    """Where a block runs, and why."""

    device: torch.device
    autocast_bf16: bool
    """Run matrix products in bf16."""
    reason: str
    """One line for the log."""


def pick_device(name: str) -> DeviceChoice:
    """The device for a name; takes about 100 ms on a CPU.

    Args:
        name: auto, cpu, cuda, cuda:N or mps. `auto` takes cuda, then mps, then cpu.

    Raises:
        ConfigError: the name is unknown, or this machine has no such device.
    """
    wanted = require_device(name)
    device = torch.device(wanted)
    if device.type == "cuda":
        has_bf16 = torch.cuda.is_bf16_supported()
        title = torch.cuda.get_device_name(device)
        reason = f"{wanted} ({title}), bf16 {'on' if has_bf16 else 'not supported'}"
        return DeviceChoice(device=device, autocast_bf16=has_bf16, reason=reason)
    if device.type == "mps":
        return DeviceChoice(device=device, autocast_bf16=False, reason="mps, bf16 off")
    speedup = bf16_speedup()
    has_win = speedup >= BF16_MIN_SPEEDUP
    reason = f"cpu, bf16 {'on' if has_win else 'off'} ({speedup:.1f} times the speed of float32)"
    return DeviceChoice(device=device, autocast_bf16=has_win, reason=reason)


def require_device(name: str) -> str:
    """The full name of the device that a name means; computes nothing.

    Raises:
        ConfigError: the name is unknown, or this machine has no such device.
    """
    names = device_names()
    wanted = name
    if name == "auto":
        wanted = next(found for found in ("cuda:0", "mps", "cpu") if found in names)
    elif name == "cuda":
        wanted = "cuda:0"
    if wanted not in names:
        raise ConfigError(
            f"device {name!r} is not available; this machine has {', '.join(names)} "
            f"(or say auto, which takes the best of them)"
        )
    return wanted


def device_names() -> list[str]:
    """Names of the devices of this machine, cpu first."""
    names = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        names.append("mps")
    return names


def bf16_speedup() -> float:
    """Measured speed of a bf16 autocast matrix product on this CPU over a float32 one."""
    now_s = SystemClock().monotonic_s
    rows, inputs, outputs = _BENCHMARK_SHAPE
    x = torch.ones(rows, inputs)
    weight = torch.ones(outputs, inputs)
    best_s = dict.fromkeys((False, True), float("inf"))
    deadline_s = now_s() + _BENCHMARK_S
    num_passes = 0
    with torch.inference_mode():
        # in turns, so that other programs disturb both alike; the first pass only warms up
        while now_s() < deadline_s or num_passes <= _MIN_PASSES:
            for use_bf16 in best_s:
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=use_bf16):
                    start_s = now_s()
                    F.linear(x, weight)
                    if num_passes:
                        best_s[use_bf16] = min(best_s[use_bf16], now_s() - start_s)
            num_passes += 1
    return best_s[False] / best_s[True]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that an allocation did not fit; torch has no one type for it."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and any(words in text for words in _OUT_OF_MEMORY)
