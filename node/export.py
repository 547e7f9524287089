"""A whole model in a folder: all blocks in one file, the manifest, and hashes of both.

model.safetensors   every weight, as blocks.<b>.<name>
manifest.json       the run, as `bt-node init` writes it
loss-curve.png      what is known here of the run's losses, if matplotlib is installed
export.json         run id, sha256 of the weights, rounds behind each block, when and from whom
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from bt_p2p import __version__
from bt_p2p.errors import CheckpointError, ConfigError, WireFormatError
from bt_p2p.model.block import weight_specs
from bt_p2p.model.wire import TensorSpec, decode_tensors, encode_tensors, max_encoded_size_bytes
from bt_p2p.protocol.manifest import RunManifest, first_problem
from node.manifests import read_manifest

WEIGHTS_NAME = "model.safetensors"
MANIFEST_NAME = "manifest.json"
FACTS_NAME = "export.json"
_MAX_FACTS_SIZE_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelExport:
    """All blocks of a run at one time."""

    manifest: RunManifest
    weights: tuple[Mapping[str, Tensor], ...]
    """Of each block, by name."""
    rounds: tuple[int, ...]
    """Rounds of training behind each block."""


class ExportFacts(BaseModel):
    """What export.json says."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run_id: str
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """Of model.safetensors."""
    rounds: tuple[Annotated[int, Field(ge=0)], ...]
    exported_at_s: float
    """Unix time."""
    version: str
    """Of bt_p2p."""
    sources: tuple[str, ...]
    """Of each block, who gave it."""


def save_export(
    folder: Path, model: ModelExport, *, exported_at_s: float, sources: Sequence[str]
) -> ExportFacts:
    """Write a model into a folder, which is made; an older export there is replaced.

    Raises:
        CheckpointError: it cannot be written.
    """
    data = encode_tensors(
        {
            f"blocks.{block}.{name}": tensor
            for block, tensors in enumerate(model.weights)
            for name, tensor in tensors.items()
        }
    )
    facts = ExportFacts(
        run_id=model.manifest.run_id,
        sha256=hashlib.sha256(data).hexdigest(),
        rounds=model.rounds,
        exported_at_s=exported_at_s,
        version=__version__,
        sources=tuple(sources),
    )
    files = {
        WEIGHTS_NAME: data,
        MANIFEST_NAME: model.manifest.model_dump_json(indent=2).encode() + b"\n",
        FACTS_NAME: facts.model_dump_json(indent=2).encode() + b"\n",  # last: it vouches for them
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            temporary = folder / f"{name}.tmp"
            temporary.write_bytes(content)
            temporary.replace(folder / name)
    except OSError as exc:
        raise CheckpointError(
            f"the export cannot be written to {folder} ({exc.strerror}); choose another folder "
            f"with --out"
        ) from exc
    return facts


def load_export(folder: Path) -> ModelExport:
    """Read and check a model that `save_export` wrote.

    Raises:
        ConfigError: it is not such a folder, or its parts do not belong together.
    """
    facts = _read_facts(folder / FACTS_NAME)
    manifest = read_manifest(folder / MANIFEST_NAME)
    num_blocks = manifest.model.num_blocks
    if manifest.run_id != facts.run_id or len(facts.rounds) != num_blocks:
        raise ConfigError(
            f"{folder / MANIFEST_NAME} is of run {manifest.run_id} with {num_blocks} blocks, "
            f"{FACTS_NAME} of run {facts.run_id} with {len(facts.rounds)}; export again"
        )
    expected: dict[str, TensorSpec] = {
        f"blocks.{block}.{name}": spec
        for block in range(num_blocks)
        for name, spec in weight_specs(manifest).items()
    }
    path = folder / WEIGHTS_NAME
    try:
        if path.stat().st_size > max_encoded_size_bytes(expected):
            raise ConfigError(f"{path} is larger than this model; export again")
        data = path.read_bytes()
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read ({exc.strerror}); export again") from exc
    if hashlib.sha256(data).hexdigest() != facts.sha256:
        raise ConfigError(f"{path} does not match the hash in {FACTS_NAME}; export again")
    try:
        tensors = decode_tensors(data, expected)
    except WireFormatError as exc:
        raise ConfigError(f"{path} is not the model of its manifest: {exc}") from exc
    weights = tuple(
        {name: tensors[f"blocks.{block}.{name}"] for name in weight_specs(manifest)}
        for block in range(num_blocks)
    )
    return ModelExport(manifest=manifest, weights=weights, rounds=facts.rounds)


def _read_facts(path: Path) -> ExportFacts:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FACTS_SIZE_BYTES)
        return ExportFacts.model_validate(json.loads(data))
    except OSError as exc:
        raise ConfigError(
            f"{path} cannot be read ({exc.strerror}); give a folder that bt-node export wrote"
        ) from exc
    except ValidationError as exc:
        raise ConfigError(f"{path} is not valid: {first_problem(exc)}; export again") from exc
    except (ValueError, RecursionError) as exc:
        raise ConfigError(f"{path} is not JSON; export again") from exc
