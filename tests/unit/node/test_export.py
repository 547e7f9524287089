"""A whole model in a folder, and what becomes of a damaged one."""

from __future__ import annotations

import json

import pytest
import torch

from bt_p2p.errors import CheckpointError, ConfigError
from bt_p2p.testing.tiny import tiny_manifest, tiny_weights
from node.export import (
    FACTS_NAME,
    MANIFEST_NAME,
    WEIGHTS_NAME,
    ModelExport,
    load_export,
    save_export,
)

MANIFEST = tiny_manifest()
MODEL = ModelExport(
    manifest=MANIFEST,
    weights=tuple(tiny_weights(MANIFEST, block) for block in range(3)),
    rounds=(4, 5, 6),
)


@pytest.fixture
def folder(tmp_path):
    """An export in a folder that did not exist."""
    path = tmp_path / "new" / "model"
    save_export(path, MODEL, exported_at_s=1.0, sources=("a", "b", "c"))
    return path


def test_a_model_comes_back_as_it_was(folder) -> None:
    found = load_export(folder)
    assert MANIFEST == found.manifest
    assert (4, 5, 6) == found.rounds
    for expected, tensors in zip(MODEL.weights, found.weights, strict=True):
        assert list(expected) == list(tensors)
        assert all(torch.equal(expected[name], tensors[name]) for name in expected)


def test_a_later_export_replaces_it(folder) -> None:
    later = ModelExport(manifest=MANIFEST, weights=MODEL.weights, rounds=(7, 7, 7))
    save_export(folder, later, exported_at_s=2.0, sources=("a", "b", "c"))
    assert (7, 7, 7) == load_export(folder).rounds
    assert {WEIGHTS_NAME, MANIFEST_NAME, FACTS_NAME} == {path.name for path in folder.iterdir()}


def flip_a_byte(folder) -> None:
    data = bytearray((folder / WEIGHTS_NAME).read_bytes())
    data[-1] ^= 1
    (folder / WEIGHTS_NAME).write_bytes(data)


def change_facts(folder, **changes) -> None:
    path = folder / FACTS_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def change_manifest(folder) -> None:
    other = tiny_manifest("other")
    (folder / MANIFEST_NAME).write_bytes(other.canonical_bytes())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (flip_a_byte, "does not match the hash"),
        (lambda folder: (folder / WEIGHTS_NAME).unlink(), "cannot be read"),
        (lambda folder: (folder / WEIGHTS_NAME).write_bytes(bytes(10**6)), "larger than"),
        (lambda folder: (folder / FACTS_NAME).unlink(), "bt-node export wrote"),
        (lambda folder: (folder / FACTS_NAME).write_text("[]"), "not valid"),
        (lambda folder: (folder / FACTS_NAME).write_text("{"), "not JSON"),
        (lambda folder: change_facts(folder, rounds=[1]), "with 1; export again"),
        (lambda folder: change_facts(folder, sha256="0"), "not valid"),
        (change_manifest, "export again"),
    ],
    ids=["bit", "no weights", "large", "no facts", "list", "cut", "rounds", "hash", "manifest"],
)
def test_a_damaged_folder_is_refused_with_what_to_do(folder, damage, message) -> None:
    damage(folder)
    with pytest.raises(ConfigError, match=message):
        load_export(folder)


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="--out"):
        save_export(tmp_path / "file" / "model", MODEL, exported_at_s=1.0, sources=())
