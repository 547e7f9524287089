"""A TOML file -> what to measure."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bt_p2p.chain.modes import Precision
from bt_p2p.errors import ConfigError
from bt_p2p.protocol.manifest import RunManifest, first_problem

FOLDER = Path(__file__).parent
Count = Annotated[int, Field(ge=1)]
Way = Literal["baseline", "ar", "draft", "sweep"]
"""`baseline`: one byte per traversal, blocks one after another; the others as `GenerateMode`."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Link(_Part):
    """Between a holder and everybody else, each direction by itself."""

    one_way_ms: Annotated[float, Field(ge=0, le=10_000)] = 0.0
    mbit_per_s: Annotated[float, Field(ge=0)] = 0.0
    """0 is no limit."""

    @property
    def title(self) -> str:
        """For people."""
        rate = f"{self.mbit_per_s:g} Mbit/s" if self.mbit_per_s else "no limit"
        return f"{self.one_way_ms:g} ms, {rate}"

    @property
    def is_loopback(self) -> bool:
        """Nothing is emulated, so that no relay is needed."""
        return not self.one_way_ms and not self.mbit_per_s


class Setting(_Part):
    """A model, and what is measured of it. The same text goes to all ways in turn."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
    model: dict[str, object]
    """As in a manifest."""
    objective: dict[str, object] = {}
    """As in a manifest, without its name."""
    trained_arm: str = ""
    """Take weights and model of this arm of benchmarks.quality where it is trained."""
    ways: Annotated[tuple[Way, ...], Field(min_length=1)] = ("baseline", "ar")
    links: Annotated[tuple[Link, ...], Field(min_length=1)] = (Link(),)
    lengths: Annotated[tuple[Count, ...], Field(min_length=1)] = (64,)
    """Bytes of an answer."""
    sweep_bytes: Count = 32
    """In one traversal of `sweep`."""
    precision: Precision = "float32"
    """In which tensors travel."""
    sessions: tuple[Count, ...] = ()
    """So many `ar` answers of the first length at once, on the first link."""

    def manifest(self, objective: str) -> RunManifest:
        """The run with an objective of this name.

        Raises:
            ConfigError: a field is wrong.
        """
        return RunManifest.build(
            {
                "name": f"chain-{self.name.replace('_', '-')}",
                "model": self.model,
                "objective": {**self.objective, "name": objective},
            }
        )


class FaultSetting(_Part):
    """Answers with a holder killed or frozen on the way; two holders of every block."""

    objectives: tuple[Literal["plain", "cascade", "diffusion"], ...] = ("plain",)
    model: dict[str, object]
    """As in a manifest."""
    objective: dict[str, object] = {}
    """As in a manifest, without its name."""
    link: Link = Link(one_way_ms=5)
    new_bytes: Count = 100
    kills: int = 100
    freezes: int = 20


class ChainConfig(_Part):
    """The whole file."""

    repeats: Count = 3
    prompt_bytes: Count = 64
    settings: Annotated[tuple[Setting, ...], Field(min_length=1)]
    faults: FaultSetting

    @model_validator(mode="after")
    def _names_differ(self) -> ChainConfig:
        if len({setting.name for setting in self.settings}) < len(self.settings):
            raise ValueError("two settings have the same name")
        return self


def read_config(name: str) -> ChainConfig:
    """Read a file beside the code by its name alone, any other by its path.

    Raises:
        ConfigError: cannot be read, or names the first wrong field.
    """
    beside = FOLDER / f"{name}.toml"
    path = beside if beside.parent == FOLDER and beside.is_file() else Path(name)
    try:
        return ChainConfig.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as exc:
        known = ", ".join(sorted(each.stem for each in FOLDER.glob("*.toml")))
        raise ConfigError(
            f"config {name} cannot be read ({exc.strerror}); give a TOML file or one of: {known}"
        ) from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"config {path} is not valid TOML: {exc}") from exc
    except ValidationError as exc:
        raise ConfigError(f"config {path} is not valid: {first_problem(exc)}") from exc
