"""A TOML file -> what to train."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bt_p2p.errors import ConfigError
from bt_p2p.protocol.manifest import CorpusSpec, RunManifest, first_problem

FOLDER = Path(__file__).parent
"""Where the configs lie that have a name."""

Name = Annotated[str, Field(pattern=r"^[a-z0-9](?:[a-z0-9_]{0,22}[a-z0-9])?$")]
Options = dict[str, bool | int | float | str]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ModelShape(_Part):
    """What all arms have in common; each cuts the layers in its own way."""

    d_model: int = 128
    num_heads: int = 4
    context: int = 128
    mlp_ratio: int = 4
    total_layers: Annotated[int, Field(ge=1, le=1024)] = 8
    """Layers of the whole model."""


class Budget(_Part):
    """A training of its own, with its own decay of the learning rate."""

    name: Name
    steps: Annotated[int, Field(ge=1)]


class Arm(_Part):
    """One way to train the model."""

    name: Name
    objective: str
    """As in the manifest."""
    num_blocks: Annotated[int, Field(ge=1, le=256)] = 1
    layers: Annotated[int, Field(ge=1)] | None = None
    """Layers in each block; total_layers / num_blocks if not given."""
    budgets: tuple[str, ...] | None = None
    """Names of its budgets; all if not given."""
    seeds: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    """All if not given."""
    options: Options = {}
    """Fields of the manifest's objective, over those of all arms."""
    refresh_steps: Annotated[int, Field(ge=1)] = 100
    """`cascade`: steps after which the frozen copies of the blocks below are renewed."""


class QualityConfig(_Part):
    """What one run of the benchmark does."""

    device: Annotated[str, Field(pattern=r"^(cpu|mps|cuda(:\d+)?)$")] = "cpu"
    """cpu, cuda, cuda:N or mps."""
    bf16: bool = False
    """Matrix products of the training in bf16; scores are always taken in float32."""
    compile: bool = False
    """Compile the blocks that train."""
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (0, 1)
    """Of the manifest: initial weights and order of the data."""
    batch_size: Annotated[int, Field(ge=1)] = 32
    """Sequences in a step."""
    steps_per_round: Annotated[int, Field(ge=1)] = 25
    """The learning rate follows rounds, here of so many steps."""
    evals: Annotated[int, Field(ge=1, le=1000)] = 12
    """Points on the curve of a training."""
    curve_bytes: Annotated[int, Field(ge=2)] = 131_072
    """Bytes of the validation text that the curve is scored on."""
    model: ModelShape = ModelShape()
    optimizer: Options = {}
    """Fields of the manifest's optimizer; its defaults otherwise."""
    objective: Options = {}
    """Fields of the manifest's objective for all arms."""
    budgets: Annotated[tuple[Budget, ...], Field(min_length=1)]
    arms: Annotated[tuple[Arm, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_are_known(self) -> QualityConfig:
        budgets = [budget.name for budget in self.budgets]
        for what, names in (("budget", budgets), ("arm", [arm.name for arm in self.arms])):
            repeated = {name for name in names if names.count(name) > 1}
            if repeated:
                raise ValueError(
                    f"{what} {sorted(repeated)[0]} is there more than once; give each its own name"
                )
        for arm in self.arms:
            unknown = set(arm.budgets or ()) - set(budgets)
            if unknown:
                raise ValueError(
                    f"arm {arm.name} names budget {sorted(unknown)[0]}; "
                    f"there are: {', '.join(budgets)}"
                )
        return self

    @model_validator(mode="after")
    def _steps_and_layers_divide(self) -> QualityConfig:
        for budget in self.budgets:
            if budget.steps % self.steps_per_round:
                raise ValueError(
                    f"budget {budget.name} has {budget.steps} steps, which is no multiple of "
                    f"steps_per_round {self.steps_per_round}"
                )
        for arm in self.arms:
            if arm.layers is None and self.model.total_layers % arm.num_blocks:
                raise ValueError(
                    f"arm {arm.name} cuts {self.model.total_layers} layers into {arm.num_blocks} "
                    f"blocks, which does not come out even; give its layers"
                )
        return self

    def budgets_of(self, arm: Arm) -> tuple[Budget, ...]:
        """The budgets an arm trains with."""
        names = arm.budgets
        return tuple(budget for budget in self.budgets if names is None or budget.name in names)

    def seeds_of(self, arm: Arm) -> tuple[int, ...]:
        """The seeds an arm trains with."""
        return self.seeds if arm.seeds is None else arm.seeds

    def manifest(self, arm: Arm, budget: Budget, seed: int, corpus: CorpusSpec) -> RunManifest:
        """The run that a volunteer would join to train this arm.

        Raises:
            ConfigError: a field of the manifest is wrong; names the arm.
        """
        shape = self.model
        try:
            return RunManifest.build(
                {
                    "name": f"quality-{arm.name.replace('_', '-')}",
                    "seed": seed,
                    "model": {
                        **shape.model_dump(exclude={"total_layers"}),
                        "num_blocks": arm.num_blocks,
                        "layers_per_block": arm.layers or shape.total_layers // arm.num_blocks,
                    },
                    "objective": {**self.objective, **arm.options, "name": arm.objective},
                    "corpus": corpus,
                    "rounds": {"decay_rounds": budget.steps // self.steps_per_round},
                    "optimizer": {**self.optimizer, "batch_size": self.batch_size},
                }
            )
        except ConfigError as exc:
            raise ConfigError(f"arm {arm.name}: {exc}") from exc


def config_path(name: str) -> Path:
    """The file meant: one beside the code by its name alone, any other by its path.

    Raises:
        ConfigError: there is none; lists the names.
    """
    beside = FOLDER / f"{name}.toml"
    if beside.parent == FOLDER and beside.is_file():
        return beside
    if Path(name).is_file():
        return Path(name)
    known = ", ".join(sorted(path.stem for path in FOLDER.glob("*.toml")))
    raise ConfigError(f"there is no config {name!r}; give a TOML file or one of: {known}")


def read_config(path: Path) -> QualityConfig:
    """Read and check a config.

    Raises:
        ConfigError: cannot be read, or names the first wrong field.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(f"config {path} cannot be read ({exc.strerror})") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"config {path} is not valid TOML: {exc}") from exc
    try:
        return QualityConfig.model_validate(values)
    except ValidationError as exc:
        problem = first_problem(exc).removeprefix("manifest: ")
        raise ConfigError(f"config {path} is not valid: {problem}") from exc
