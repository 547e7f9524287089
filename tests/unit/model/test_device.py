"""bt_p2p.model.device."""

from __future__ import annotations

import pytest
import torch

from bt_p2p.errors import ConfigError
from bt_p2p.model import device as device_module
from bt_p2p.model.device import bf16_speedup, device_names, pick_device


@pytest.fixture
def only_cpu(monkeypatch):
    """A machine without accelerators."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


@pytest.mark.parametrize("name", ["auto", "cpu"])
@pytest.mark.parametrize(("speedup", "expected"), [(1.29, False), (1.3, True), (4.0, True)])
def test_cpu_uses_bf16_only_for_a_clear_win(only_cpu, monkeypatch, name, speedup, expected):
    """The reason says what was measured."""
    monkeypatch.setattr(device_module, "bf16_speedup", lambda: speedup)
    choice = pick_device(name)
    assert torch.device("cpu") == choice.device
    assert expected == choice.autocast_bf16
    assert f"{speedup:.1f} times" in choice.reason


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:7", "mps", "tpu", ""])
def test_absent_devices_are_refused_naming_what_exists(only_cpu, name):
    """A volunteer who asked for a GPU must not train on the CPU unawares."""
    with pytest.raises(ConfigError, match="this machine has cpu"):
        pick_device(name)


def test_auto_prefers_cuda(monkeypatch):
    """And takes bf16 where the GPU has it."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Test GPU")
    assert ["cpu", "cuda:0", "cuda:1"] == device_names()[:3]
    for name, expected in [("auto", "cuda:0"), ("cuda", "cuda:0"), ("cuda:1", "cuda:1")]:
        choice = pick_device(name)
        assert (expected, True) == (str(choice.device), choice.autocast_bf16)
        assert "Test GPU" in choice.reason


def test_mps_runs_without_bf16(monkeypatch):
    """Its bf16 is not worth the accuracy."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    choice = pick_device("auto")
    assert ("mps", False) == (choice.device.type, choice.autocast_bf16)


def test_measured_speedup_is_a_positive_ratio():
    """The real benchmark runs on this CPU."""
    assert 0.01 < bf16_speedup() < 100
