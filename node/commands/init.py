"""`bt-node init`: a manifest from flags over a TOML file over defaults."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import typer

from bt_p2p.corpus.corpus import load_corpus, require_context
from bt_p2p.errors import ConfigError
from bt_p2p.model.sizes import block_sizes
from bt_p2p.protocol.identity import load_or_create_identity
from bt_p2p.protocol.manifest import CorpusSpec, RunManifest


@dataclass(frozen=True, kw_only=True, slots=True)
class InitOptions:
    """What the user asked for."""

    output: Path
    config: Path | None
    flags: Mapping[str, object]
    """Nested like the manifest; None where a flag was not given."""
    text: Path | None
    dataset: str | None
    owner_key: Path | None
    """Of the owner of a closed run; made if it is missing."""
    cache_dir: Path


def write_manifest(options: InitOptions) -> None:
    """Check the corpus, write the manifest, print the run id and what a volunteer needs.

    Raises:
        ConfigError: a field, the TOML file, the text or the output file is wrong.
    """
    if options.output.exists():
        raise ConfigError(
            f"{options.output} exists; move it away, or choose another file with --output"
        )
    values = merge(_read_toml(options.config), options.flags)
    values["corpus"] = {**_section(values, "corpus"), **_corpus_choice(options)}
    if options.owner_key is not None:
        owner, is_new = load_or_create_identity(options.owner_key)
        values["owner"] = owner.peer_id
        if is_new:
            typer.echo(f"made {options.owner_key}: back it up, it signs the run's tokens", err=True)
    manifest = RunManifest.build(values)
    corpus = load_corpus(manifest.corpus, data=options.text, cache_dir=options.cache_dir)
    require_context(corpus, manifest.model.context)
    manifest = RunManifest.build({**values, "corpus": corpus.spec.model_dump()})
    text = json.dumps(manifest.model_dump(mode="json"), indent=2) + "\n"
    try:
        options.output.write_text(text, encoding="utf-8")
    except OSError as exc:
        raise ConfigError(f"{options.output} cannot be written ({exc.strerror})") from exc
    sizes = block_sizes(
        manifest.model, manifest.objective, batch_size=manifest.optimizer.batch_size
    )
    typer.echo(manifest.run_id)
    typer.echo(
        f"wrote {options.output}: {manifest.model.num_blocks} blocks of "
        f"{sizes.num_parameters:,} parameters, text of {corpus.spec.size_bytes:,} bytes",
        err=True,
    )
    typer.echo(f"start it: bt-node join --manifest {options.output}", err=True)


def merge(base: Mapping[str, object], over: Mapping[str, object]) -> dict[str, object]:
    """Values of `over` that are not None replace those of `base`, section by section."""
    merged = dict(base)
    for key, value in over.items():
        if isinstance(value, Mapping):
            section = merge(_section(base, key), value)
            if section:
                merged[key] = section
        elif value is not None:
            merged[key] = value
    return merged


def _section(values: Mapping[str, object], key: str) -> dict[str, object]:
    section = values.get(key, {})
    if not isinstance(section, Mapping):
        raise ConfigError(f"{key} is {section!r:.60}, but it has to be a section of fields")
    return dict(section)


def _corpus_choice(options: InitOptions) -> dict[str, object]:
    if options.text is not None and options.dataset is not None:
        raise ConfigError("--text and --dataset exclude each other; give one of them")
    if options.text is not None:
        return CorpusSpec(kind="text", name=options.text.name).model_dump()
    if options.dataset is not None:
        return CorpusSpec(kind="hf", name=options.dataset).model_dump()
    return {}


def _read_toml(path: Path | None) -> dict[str, object]:
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(f"config {path} cannot be read ({exc.strerror})") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"config {path} is not valid TOML: {exc}") from exc
