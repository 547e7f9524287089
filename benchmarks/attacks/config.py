"""A TOML file -> scenarios."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bt_p2p.errors import ConfigError
from bt_p2p.protocol.manifest import CorpusSpec, RunManifest, first_problem

Count = Annotated[int, Field(ge=1)]
Kind = Literal["nan", "sign_flip", "noise", "replay", "label_flip", "hidden", "lying_reducer"]
Protection = Literal["none", "merge", "gate", "trimmed", "full"]
"""
- `none`: the mean of what all brought, adopted whatever it is
- `merge`: centered clipping alone
- `trimmed`: a coordinate-wise trimmed mean in its place, alone
- `gate`: the mean, but judged and remembered
- `full`: clipping and gate, as bt-node does it
"""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Scenario(_Part):
    """One training of some replicas of one block, some of them hostile."""

    kind: Kind | None = None
    num_attackers: Annotated[int, Field(ge=0)] = 0
    replicas: Count = 10
    """Attackers among them."""
    protection: Protection = "full"

    @property
    def name(self) -> str:
        """For files."""
        return f"{self.replicas}-{self.kind or 'honest'}-{self.num_attackers}-{self.protection}"


class AttackConfig(_Part):
    """What is trained, and under which attacks."""

    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (0,)
    rounds: Count
    round_steps: Count
    """Local steps of each replica between averages."""
    final_bytes: Annotated[int, Field(ge=2)]
    """Of the test text, scored at the end."""
    curve_bytes: Annotated[int, Field(ge=2)] = 4096
    """Of the validation text, scored after each round."""
    replicas: Annotated[int, Field(ge=2)]
    attackers: tuple[Count, ...]
    """Numbers of attackers among the replicas."""
    kinds: tuple[Kind, ...]
    protections: tuple[Protection, ...] = ("none", "full")
    """Compared under each attack."""
    pair_kinds: tuple[Kind, ...] = ()
    """Attacks on a group of two, one of which is hostile."""
    manifest: dict[str, object]
    """Of the run, as a founder would give it; corpus, seed and decay are filled in."""

    @model_validator(mode="after")
    def _some_are_honest(self) -> AttackConfig:
        if any(number >= self.replicas for number in self.attackers):
            raise ValueError("at least one replica must be honest")
        return self

    @property
    def scenarios(self) -> list[Scenario]:
        """All of them, those without attackers first."""
        found = [
            Scenario(replicas=self.replicas, protection=protection)
            for protection in self.protections
        ]
        # what honest replicas reach when those that attack are not there
        found += [
            Scenario(replicas=self.replicas - number, protection="none")
            for number in self.attackers
        ]
        found += [
            Scenario(kind=kind, num_attackers=number, replicas=self.replicas, protection=protection)
            for kind in self.kinds
            for number in self.attackers
            for protection in self.protections
        ]
        if self.pair_kinds:
            found += [Scenario(replicas=number, protection="none") for number in (1, 2)]
            found.append(Scenario(replicas=2, protection="full"))
        found += [
            Scenario(kind=kind, num_attackers=1, replicas=2, protection=protection)
            for kind in self.pair_kinds
            for protection in ("none", "full")
        ]
        return list(dict.fromkeys(found))

    def run_manifest(self, seed: int, corpus: CorpusSpec) -> RunManifest:
        """The run that volunteers would join.

        Raises:
            ConfigError: a field is wrong.
        """
        rounds = {"decay_rounds": self.rounds}
        return RunManifest.build(
            {"name": "attacks", **self.manifest, "seed": seed, "corpus": corpus, "rounds": rounds}
        )


def read_config(path: Path) -> AttackConfig:
    """Read and check a config.

    Raises:
        ConfigError: cannot be read, or names the first wrong field.
    """
    try:
        return AttackConfig.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as exc:
        raise ConfigError(f"config {path} cannot be read ({exc.strerror})") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"config {path} is not valid TOML: {exc}") from exc
    except ValidationError as exc:
        raise ConfigError(f"config {path} is not valid: {first_problem(exc)}") from exc
