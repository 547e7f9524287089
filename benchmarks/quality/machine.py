"""What it was measured on: machine and code, without names of users, hosts or folders."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import psutil
import torch
from pydantic import BaseModel, ConfigDict

ROOT = Path(__file__).parents[2]
"""Of the repository."""
_GIT_TIMEOUT_S = 10.0


class Machine(BaseModel):
    """What it ran on."""

    model_config = ConfigDict(frozen=True)

    cpu: str
    num_cores: int
    """That this program may use."""
    ram_size_bytes: int
    gpu: str
    """Empty if it was not used."""
    system: str
    python: str
    torch: str


class Code(BaseModel):
    """What ran."""

    model_config = ConfigDict(frozen=True)

    commit: str
    """Empty outside a git repository."""
    is_dirty: bool
    """Something differed from that commit."""


def this_machine(device: str) -> Machine:
    """Look at this machine."""
    is_gpu = device.startswith("cuda") and torch.cuda.is_available()
    return Machine(
        cpu=_cpu_model(),
        num_cores=num_usable_cores(),
        ram_size_bytes=psutil.virtual_memory().total,
        gpu=torch.cuda.get_device_name(torch.device(device)) if is_gpu else "",
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        torch=str(torch.__version__),
    )


def this_code() -> Code:
    """Ask git."""
    commit = _git("rev-parse", "HEAD")
    return Code(commit=commit, is_dirty=bool(commit and _git("status", "--porcelain")))


def num_usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _git(*arguments: str) -> str:
    git = shutil.which("git")
    if git is None:
        return ""
    try:
        done = subprocess.run(
            [git, *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
            timeout=_GIT_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
