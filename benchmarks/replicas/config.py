"""A TOML file -> scenarios."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bt_p2p.errors import ConfigError
from bt_p2p.protocol.manifest import CorpusSpec, RunManifest, first_problem

Count = Annotated[int, Field(ge=1)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Scenario(_Part):
    """One training of some replicas of one block."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
    replicas: Count = 4
    round_steps: Count = 25
    """Local steps between averages."""
    participation: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Probability that a replica attends the end of a round."""
    missed: Literal["kept", "dropped", "late"] = "kept"
    """What becomes of the update of a round that a replica missed.

    `kept`: it trains on and brings everything next time, as bt-node does. `dropped`: the update is
    lost; next time it takes the others' average without contributing. `late`: the update arrives
    one round late and is averaged in then; only the upload is late, it still gets every average.
    """
    outer_lr: Annotated[float, Field(gt=0)] | None = None
    """Learning rate of the outer optimizer; plain averages without."""
    outer_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    average_takes: Annotated[int, Field(ge=0)] = 0
    """Steps of the next round that replicas have taken by the time an average is there."""
    kept_share: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Of what these steps changed, when the average is added; at 0 it is as if replicas had waited."""

    @model_validator(mode="after")
    def _is_consistent(self) -> Scenario:
        if self.outer_lr is not None and (self.participation < 1 or self.replicas < 2):
            raise ValueError(f"{self.name}: an outer optimizer needs all of several replicas")
        if self.average_takes >= self.round_steps:
            raise ValueError(f"{self.name}: an average must be there before its next one begins")
        return self

    @property
    def title(self) -> str:
        """For people."""
        words = [f"{self.replicas} replica{'s' if self.replicas > 1 else ''}"]
        if self.participation < 1:
            words.append(f"{self.participation:.0%}, missed updates {self.missed}")
        if self.outer_lr is not None:
            words.append(f"outer lr {self.outer_lr:g}, momentum {self.outer_momentum:g}")
        if self.average_takes:
            words.append(f"average {self.average_takes / self.round_steps:.0%} of a round later")
        if self.kept_share < 1:
            words.append(f"{self.kept_share:.0%} of the steps meanwhile kept")
        return ", ".join(words)


class SimConfig(_Part):
    """What `sim` does. Steps are those of each replica."""

    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (0,)
    steps: Count
    lr_steps: Count = 25
    """The learning rate falls after so many steps, however long a round is."""
    eval_every: Count = 100
    """Steps between points of the curve; whole rounds."""
    curve_bytes: Annotated[int, Field(ge=2)] = 32_768
    """Of the validation text, scored for each point of the curve."""
    final_bytes: Annotated[int, Field(ge=2)] = 131_072
    """Of the test text, scored at the end."""
    bf16: bool = True
    compile: bool = False
    """Compile the block: half the time for a step, but needs a C++ compiler."""
    manifest: dict[str, object]
    """Of the run, as a founder would give it; corpus, seed and decay are filled in."""
    scenarios: Annotated[tuple[Scenario, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _rounds_come_out_even(self) -> SimConfig:
        for scenario in self.scenarios:
            if self.steps % scenario.round_steps or self.eval_every % scenario.round_steps:
                raise ValueError(f"{scenario.name}: steps and eval_every must be whole rounds")
        if self.steps % self.lr_steps or self.steps % self.eval_every:
            raise ValueError("steps must be a multiple of lr_steps and of eval_every")
        if len({scenario.name for scenario in self.scenarios}) < len(self.scenarios):
            raise ValueError("two scenarios have the same name")
        return self

    def run_manifest(self, seed: int, corpus: CorpusSpec) -> RunManifest:
        """The run that volunteers would join.

        Raises:
            ConfigError: a field is wrong.
        """
        rounds = {"decay_rounds": self.steps // self.lr_steps}
        return RunManifest.build(
            {"name": "replicas", **self.manifest, "seed": seed, "corpus": corpus, "rounds": rounds}
        )


def read_config(path: Path) -> SimConfig:
    """Read and check a config.

    Raises:
        ConfigError: cannot be read, or names the first wrong field.
    """
    try:
        return SimConfig.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as exc:
        raise ConfigError(f"config {path} cannot be read ({exc.strerror})") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"config {path} is not valid TOML: {exc}") from exc
    except ValidationError as exc:
        raise ConfigError(f"config {path} is not valid: {first_problem(exc)}") from exc
