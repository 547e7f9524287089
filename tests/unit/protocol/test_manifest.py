"""bt_p2p.protocol.manifest: one byte string for a run, and an id that proves it."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bt_p2p.errors import ConfigError, ProtocolError, WireFormatError
from bt_p2p.protocol.limits import MAX_MANIFEST_SIZE_BYTES
from bt_p2p.protocol.manifest import RunManifest, is_run_id
from bt_p2p.testing.tiny import tiny_manifest

MANIFEST = tiny_manifest("prose")
DATA = MANIFEST.canonical_bytes()


def test_run_id_is_the_name_and_26_characters_of_the_hash() -> None:
    """130 bits of sha256 in lower-case base32."""
    digest = hashlib.sha256(DATA).digest()
    expected = "prose-" + base64.b32encode(digest).decode().lower()[:26]
    assert expected == MANIFEST.run_id
    assert is_run_id(MANIFEST.run_id)
    assert digest.hex() == MANIFEST.fingerprint


def test_canonical_bytes_are_sorted_compact_json() -> None:
    """One manifest has one byte string."""
    expected = json.dumps(json.loads(DATA), sort_keys=True, separators=(",", ":")).encode()
    assert expected == DATA
    assert len(DATA) <= MAX_MANIFEST_SIZE_BYTES


def test_a_manifest_survives_the_way_through_bytes() -> None:
    """What is read is what was written."""
    assert MANIFEST == RunManifest.from_untrusted_bytes(DATA, run_id=MANIFEST.run_id)


def test_names_beyond_ascii_survive_too() -> None:
    """Descriptions of a corpus are any text."""
    manifest = RunManifest.build({"corpus": {"kind": "text", "name": "Märchen 童話"}})
    data = manifest.canonical_bytes()
    assert manifest == RunManifest.from_untrusted_bytes(data, run_id=manifest.run_id)


@pytest.mark.parametrize("index", range(0, len(DATA), 41))
def test_a_changed_byte_is_refused(index: int) -> None:
    """The id proves every byte."""
    changed = bytearray(DATA)
    changed[index] ^= 1
    with pytest.raises(WireFormatError):
        RunManifest.from_untrusted_bytes(bytes(changed), run_id=MANIFEST.run_id)


def test_another_run_id_is_refused_and_both_are_named() -> None:
    """A stranger cannot answer with his own run."""
    other = tiny_manifest("other")
    with pytest.raises(WireFormatError) as caught:
        RunManifest.from_untrusted_bytes(DATA, run_id=other.run_id)
    assert other.run_id in str(caught.value)
    assert MANIFEST.run_id in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(DATA.replace(b":", b": "), id="spaces"),
        pytest.param(DATA + b"\n", id="newline"),
        pytest.param(b"{}", id="defaults left out"),
        pytest.param(DATA.replace(b'"seed":0', b'"seed":false'), id="other type"),
        pytest.param(DATA.replace(b'"seed":0', b'"seed":0,"seed":0'), id="repeated"),
    ],
)
def test_bytes_that_are_not_canonical_are_refused(data: bytes) -> None:
    """Equal values in other bytes would be a second id for one run."""
    with pytest.raises(WireFormatError, match="does not match its id"):
        RunManifest.from_untrusted_bytes(data, run_id=MANIFEST.run_id)


def test_bytes_over_the_cap_are_refused_unread() -> None:
    """The size comes first."""
    data = b"{" * (MAX_MANIFEST_SIZE_BYTES + 1)
    with pytest.raises(WireFormatError, match="2049 bytes is over the cap of 2048"):
        RunManifest.from_untrusted_bytes(data, run_id=MANIFEST.run_id)


def test_an_unknown_field_cannot_break_the_message() -> None:
    """A stranger's field name stays on one line, without control characters."""
    data = json.dumps({"evil\n\x1b[31m" + "x" * 500: 1}).encode()
    with pytest.raises(WireFormatError) as caught:
        RunManifest.from_untrusted_bytes(data, run_id=MANIFEST.run_id)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


@given(st.binary(max_size=300))
def test_arbitrary_bytes_raise_only_protocol_errors(data: bytes) -> None:
    """Strangers send anything."""
    with pytest.raises(ProtocolError):
        RunManifest.from_untrusted_bytes(data, run_id=MANIFEST.run_id)


@given(st.integers(0, len(DATA) - 1), st.integers(0, 3), st.binary(max_size=6))
def test_mutated_bytes_raise_only_protocol_errors(at: int, cut: int, new: bytes) -> None:
    """Nor do bytes that are almost right get through."""
    mutated = DATA[:at] + new + DATA[at + cut :]
    if mutated == DATA:
        return
    with pytest.raises(ProtocolError):
        RunManifest.from_untrusted_bytes(mutated, run_id=MANIFEST.run_id)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=25)
@given(st.sampled_from(sorted(RunManifest.model_fields)), JSON_VALUES)
def test_any_value_in_any_field_raises_only_protocol_errors(field: str, value: Any) -> None:
    """Valid JSON of a wrong shape, infinities and NaN included."""
    data = json.dumps({**json.loads(DATA), field: value}).encode()
    message = ""
    try:
        RunManifest.from_untrusted_bytes(data, run_id=MANIFEST.run_id)
    except ProtocolError as error:
        message = str(error)
    assert "\n" not in message


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({"name": "No Spaces"}, ["name", "'No Spaces'"]),
        ({"name": "-dash"}, ["name", "'-dash'"]),
        ({"name": "a" * 33}, ["name", "aaa"]),
        ({"name": "line\n"}, ["name", r"'line\n'"]),
        ({"seed": -1}, ["seed", "-1"]),
        ({"seed": 2**63}, ["seed", "9223372036854775808"]),
        ({"protocol_version": 2}, ["protocol_version", "2"]),
        ({"bogus": 1}, ["bogus", "1"]),
        ({"model": {"num_blocks": 0}}, ["model.num_blocks", "0"]),
        ({"model": {"d_model": 4}}, ["model.d_model", "4"]),
        ({"model": {"d_model": 20, "num_heads": 4}}, ["d_model 20", "num_heads (8)"]),
        ({"model": {"context": 65537}}, ["model.context", "65537"]),
        ({"model": {"layers_per_block": "two"}}, ["model.layers_per_block", "'two'"]),
        ({"model": {"extra": 7}}, ["model.extra", "7"]),
        ({"objective": {"name": "magic"}}, ["objective.name", "'magic'"]),
        ({"objective": {"sigma_min": 5.0, "sigma_max": 5.0}}, ["sigma_min 5.0", "sigma_max 5.0"]),
        ({"objective": {"sigma_log_mean": float("nan")}}, ["objective.sigma_log_mean", "nan"]),
        ({"objective": {"sweep_max_bytes": 128}}, ["sweep_max_bytes 128", "context of 128"]),
        ({"objective": {"name": "end_to_end"}}, ["end_to_end", "num_blocks must be 1, not 3"]),
        ({"corpus": {"sha256": "abc"}}, ["corpus.sha256", "'abc'"]),
        ({"corpus": {"holdout_every": 1}}, ["corpus.holdout_every", "1"]),
        ({"corpus": {"name": "\udc80"}}, ["corpus.name", r"'\udc80'"]),
        ({"rounds": {"round_s": 0.5}}, ["rounds.round_s", "0.5"]),
        ({"rounds": {"compression": "zip"}}, ["rounds.compression", "'zip'"]),
        ({"optimizer": {"learning_rate": float("inf")}}, ["optimizer.learning_rate", "inf"]),
        ({"optimizer": {"beta1": 1.0}}, ["optimizer.beta1", "1.0"]),
        ({"optimizer": {"batch_size": 0}}, ["optimizer.batch_size", "0"]),
    ],
)
def test_wrong_values_are_named_with_their_field(values: dict[str, Any], parts: list[str]) -> None:
    """A user sees what to correct, on one line."""
    with pytest.raises(ConfigError) as caught:
        RunManifest.build(values)
    message = str(caught.value)
    assert [] == [part for part in parts if part not in message]
    assert "\n" not in message


def test_a_manifest_that_does_not_fit_one_record_is_refused() -> None:
    """Long names of characters that JSON escapes, and numbers of many digits."""
    values: dict[str, Any] = {"corpus": {"name": "\x01" * 200, "size_bytes": 10**900}}
    with pytest.raises(ConfigError, match="over the cap of 2048"):
        RunManifest.build(values)


def test_end_to_end_runs_have_one_block() -> None:
    """The control objective trains all layers together."""
    manifest = RunManifest.build({"objective": {"name": "end_to_end"}, "model": {"num_blocks": 1}})
    assert 1 == manifest.model.num_blocks


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"run-{'a' * 26}", True),
        (f"my-long-run-7-{'z' * 26}", True),
        (f"run-{'a' * 25}", False),
        (f"run-{'1' * 26}", False),
        (f"-{'a' * 26}", False),
        (f"run-{'a' * 26}\n", False),
        (f"RUN-{'a' * 26}", False),
        ("", False),
    ],
)
def test_run_ids_are_told_from_other_text(text: str, expected: bool) -> None:
    """A name, a dash and 26 characters."""
    assert expected == is_run_id(text)
