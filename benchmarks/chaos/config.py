"""A TOML file -> how long, how many, and how often which fault."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bt_p2p.errors import ConfigError
from bt_p2p.protocol.manifest import RunManifest, first_problem

FOLDER = Path(__file__).parent
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
FaultKind = Literal[
    "kill",
    "kill_child",
    "freeze",
    "restart",
    "cut_link",
    "slow_link",
    "bad_frames",
    "poison",
    "full_disk",
]
PoisonKind = Literal["nan", "scale", "flip"]
"""Weights that are not finite, a thousand times too large, or of the wrong sign."""
POISONS: tuple[PoisonKind, ...] = get_args(PoisonKind)
KINDS: tuple[FaultKind, ...] = get_args(FaultKind)
TITLES: dict[FaultKind, str] = {
    "kill": "kill -9, then a restart",
    "kill_child": "kill -9 of one child process",
    "freeze": "SIGSTOP, then SIGCONT",
    "restart": "SIGTERM, then a restart",
    "cut_link": "link cut, then mended",
    "slow_link": "slow link",
    "bad_frames": "a client that sends garbage",
    "poison": "a replica that poisons an average",
    "full_disk": "disk full, then free again",
}


class ChaosConfig(BaseModel):
    """The whole file."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    seed: int = 0
    num_faults: Count
    fault_every_s: Seconds
    """Mean time from one fault to the next."""
    quiet_s: Seconds
    """After the last fault, before the scores."""
    num_blocks: Count = 2
    replicas: Annotated[int, Field(ge=2)] = 3
    """Of each block; the first of each is never killed, so that leaks can be seen in it."""
    round_s: Seconds = 10.0
    eval_bytes: Count = 16_384
    shares: dict[FaultKind, Annotated[float, Field(ge=0)]]
    """How often each kind, relative to the others."""

    @model_validator(mode="after")
    def _some_fault(self) -> ChaosConfig:
        if not sum(self.shares.values()):
            raise ValueError("all shares are 0")
        return self

    @property
    def seconds(self) -> float:
        """Of faults and the quiet after them."""
        return self.num_faults * self.fault_every_s + self.quiet_s

    def manifest(self, name: str) -> RunManifest:
        """A tiny run, with its whole decay in the time there is."""
        return RunManifest.build(
            {
                "name": name,
                "seed": self.seed,
                "model": {
                    "num_blocks": self.num_blocks,
                    "layers_per_block": 1,
                    "d_model": 64,
                    "context": 64,
                },
                "objective": {"sweep_fraction": 0.0},
                "rounds": {
                    "round_s": self.round_s,
                    "decay_rounds": max(1, round(self.seconds / self.round_s)),
                },
                "optimizer": {"batch_size": 16},
            }
        )


def read_config(name: str) -> ChaosConfig:
    """Read a file beside the code by its name alone, any other by its path.

    Raises:
        ConfigError: cannot be read, or names the first wrong field.
    """
    beside = FOLDER / f"{name}.toml"
    path = beside if beside.parent == FOLDER and beside.is_file() else Path(name)
    try:
        return ChaosConfig.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as exc:
        known = ", ".join(sorted(each.stem for each in FOLDER.glob("*.toml")))
        raise ConfigError(
            f"config {name} cannot be read ({exc.strerror}); give a TOML file or one of: {known}"
        ) from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"config {path} is not valid TOML: {exc}") from exc
    except ValidationError as exc:
        raise ConfigError(f"config {path} is not valid: {first_problem(exc)}") from exc
